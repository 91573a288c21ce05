"""CLearning and its peers with equal batch, networks and policy delay."""

from typing import Any

import gymnasium as gym
import torch as th
from stable_baselines3 import TD3, HerReplayBuffer
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import sb3_clearning.envs  # noqa: F401  (registers our tasks)
from sb3_clearning import CLearning


def make_env(env_id: str) -> gym.Env:
    """
    :param env_id: The environment's id
    :return: The environment
    """
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    return gym.make(env_id)


def common(batch_size: int, net_arch: list[int]) -> dict[str, Any]:
    """
    :param batch_size: The batch size
    :param net_arch: The networks' hidden layers
    :return: The arguments that all have
    """
    return {
        "batch_size": batch_size,
        "policy_delay": 1,
        "learning_rate": 3e-4,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "policy_kwargs": {"net_arch": net_arch},
        "seed": 0,
    }


def make_models(
    env_id: str, batch_size: int = 256, net_arch: tuple[int, ...] = (256, 256), sbx: bool = True, n_envs: int = 1
) -> dict[str, Any]:
    """
    :param env_id: The environment's id
    :param batch_size: The batch size
    :param net_arch: The networks' hidden layers
    :param sbx: Whether to make SBX's, if it is installed
    :param n_envs: Number of environments of each
    :return: The models by name
    """
    arguments = common(batch_size, list(net_arch))

    def make() -> DummyVecEnv:
        return DummyVecEnv([lambda: Monitor(make_env(env_id)) for _ in range(n_envs)])

    models: dict[str, Any] = {
        "CLearning": CLearning("MultiInputPolicy", make(), **arguments),
        "SB3 TD3 + HER": TD3("MultiInputPolicy", make(), replay_buffer_class=HerReplayBuffer, **arguments),
    }
    if sbx:
        try:
            import sbx as sbx_package
        except ImportError:
            print('SBX is left out: pip install "sb3_clearning[bench]"')
        else:
            models["SBX TD3 + HER"] = sbx_package.TD3(
                "MultiInputPolicy", make(), replay_buffer_class=HerReplayBuffer, **arguments
            )
    return models


def fill(models: dict[str, Any], steps: int = 1500) -> None:
    """
    Collect random steps and make each model ready to train.

    :param models: The models
    :param steps: Number of steps
    """
    for model in models.values():
        model.learning_starts = 2 * steps  # several environments may exceed `steps`
        model.learn(steps)
        model.learning_starts = 0


def set_threads(n: int) -> None:
    """
    :param n: Number of torch's threads
    """
    th.set_num_threads(n)

"""Transitions a second without updates: acting, noise, the environments, storing, logs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import TD3, HerReplayBuffer
from stable_baselines3.common.noise import NormalActionNoise

from benchmarks.timing import Row, compare, repeat, seconds
from sb3_clearning import CLearning
from sb3_clearning.common.fast_mlp import multiply
from sb3_clearning.envs import BatchedPointMaze

EPISODE = BatchedPointMaze.episode_length
HIDDEN = 256


def make_models(n_envs: int, random: bool) -> dict[str, Any]:
    """
    :param n_envs: Number of environments of the batched maze
    :param random: Whether actions are the warm-up's random ones, not the policy's with noise
    :return: The models by name, which never train
    """
    arguments: dict[str, Any] = {
        "buffer_size": max(100_000, (EPISODE + 10) * n_envs),
        "learning_starts": 10**12 if random else 0,
        "gradient_steps": 0,
        "train_freq": 1,
        "policy_kwargs": {"net_arch": [HIDDEN, HIDDEN]},
        "seed": 0,
        "device": "cpu",
    }
    noise = NormalActionNoise(np.zeros(2), 0.1 * np.ones(2))
    return {
        "CLearning": CLearning("MultiInputPolicy", BatchedPointMaze(n_envs), **arguments),
        "SB3 TD3 + HER": TD3(
            "MultiInputPolicy",
            BatchedPointMaze(n_envs),
            replay_buffer_class=HerReplayBuffer,
            action_noise=noise,
            **arguments,
        ),
    }


def _limit(n_envs: int, transitions: int) -> Callable[[], None]:
    """:return: A call of the actor's matrix products for that many transitions, and nothing else"""
    weights = [th.randn(1, 8, HIDDEN), th.randn(1, HIDDEN, HIDDEN), th.randn(1, HIDDEN, 2)]
    outputs = [th.empty(1, n_envs, weight.shape[2]) for weight in weights]
    inputs = th.randn(1, n_envs, 8)

    def products() -> None:
        given = inputs
        for weight, out in zip(weights, outputs, strict=True):
            given = multiply(given, weight, out, copy=False)

    return repeat(transitions // n_envs, products)


def throughput(rounds: int, counts: tuple[int, ...]) -> list[Row]:
    """
    Whole episodes of all environments, with their ends, by the time of the CPU.

    :param rounds: Number of rounds
    :param counts: Numbers of environments
    :return: The rows
    """
    rows: list[Row] = []
    for n_envs in counts:
        for random in (False, True):
            models = make_models(n_envs, random)
            total = EPISODE * n_envs * max(1, 16 // n_envs)
            subjects = {
                name: repeat(1, model.learn, total, reset_num_timesteps=False, log_interval=4)
                for name, model in models.items()
            }
            if not random:
                subjects["matrix products of the actor"] = _limit(n_envs, total)
            name = "throughput, random actions" if random else "throughput"
            setting = f"{n_envs:,} environments"
            times = seconds(subjects, min(rounds, 3) if n_envs > 1000 else rounds, warm_up=2, clock=time.process_time)
            rows += compare(name, setting, times, total, "transitions")
    return rows

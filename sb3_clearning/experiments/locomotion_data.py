"""
Data for the locomotion experiments: an SAC agent is trained on each task, and its experience collected.

``python -m sb3_clearning.experiments locomotion_data`` writes data/locomotion/TASK.npz: states with the global position
(which the agent itself does not see), actions and the episodes' ends. What is there is not made again.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import DummyVecEnv

DATA = Path("data/locomotion")


class Locomotion(NamedTuple):
    """
    A locomotion task.

    :param env_id: The environment's id
    :param n_position: How many of the state's first numbers are the global position, which the agent does not see
    :param env_kwargs: Arguments for ``gym.make``
    """

    env_id: str
    n_position: int
    env_kwargs: dict[str, Any]


TASKS = {
    "hopper": Locomotion("Hopper-v5", 1, {}),
    "walker2d": Locomotion("Walker2d-v5", 1, {}),
    "ant": Locomotion("Ant-v5", 2, {"include_cfrc_ext_in_observation": False}),
    "halfcheetah": Locomotion("HalfCheetah-v5", 1, {}),
}


def make_env(task: Locomotion, **kwargs: Any) -> gym.Env:
    """
    :param task: The task
    :param kwargs: More arguments for ``gym.make``
    :return: The environment, whose states begin with the global position
    """
    return gym.make(task.env_id, exclude_current_positions_from_observation=False, **task.env_kwargs, **kwargs)


def train_agent(task: Locomotion, steps: int, seed: int) -> SAC:
    """
    :param task: The task
    :param steps: Environment steps; an update follows every second one
    :param seed: The seed
    :return: A trained agent that does not see the global position
    """
    env = gym.make(task.env_id, **task.env_kwargs)
    model = SAC(
        "MlpPolicy", env, learning_starts=min(5000, steps // 2), train_freq=2, gradient_steps=1, seed=seed, device="cpu"
    )
    return model.learn(steps, progress_bar=True)


def collect(task: Locomotion, agent: SAC, n_transitions: int, seed: int, n_envs: int = 8) -> dict[str, np.ndarray]:
    """
    The agent's experience with actions drawn from its policy, whole episodes and the ones that were going on at the end.

    :param task: The task
    :param agent: The agent
    :param n_transitions: Number of transitions, a multiple of ``n_envs``
    :param seed: The seed of the episodes
    :param n_envs: Number of environments in step
    :return: ``observations``, ``actions``, ``next_observations``, ``terminations``, ``truncations``, ``rewards``
    """
    envs = DummyVecEnv([lambda: make_env(task) for _ in range(n_envs)])
    envs.seed(seed)
    states = envs.reset()
    assert isinstance(states, np.ndarray)
    columns: dict[str, list[np.ndarray]] = {}
    for _ in range(n_transitions // n_envs):
        actions, _ = agent.predict(states[:, task.n_position :], deterministic=False)
        next_states, rewards, dones, infos = envs.step(actions)
        assert isinstance(next_states, np.ndarray)
        final = next_states.copy()
        for env in np.flatnonzero(dones):
            final[env] = infos[env]["terminal_observation"]
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        step = (states, actions, final, dones & ~truncated, truncated, rewards)
        names = ("observations", "actions", "next_observations", "terminations", "truncations", "rewards")
        for name, values in zip(names, step, strict=True):
            columns.setdefault(name, []).append(np.asarray(values))
        states = next_states
    envs.close()
    # (steps, envs, …) to one environment after the other; the last step of each is cut off.
    result = {name: np.swapaxes(np.stack(values), 0, 1) for name, values in columns.items()}
    result["truncations"][:, -1] |= ~result["terminations"][:, -1]
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in result.items()}
    return {name: values.astype(np.float32) if values.dtype == np.float64 else values for name, values in flat.items()}


def describe(data: dict[str, np.ndarray]) -> str:
    """
    :param data: A dataset
    :return: Its size, and its episodes' mean length and return
    """
    episodes = max(int((data["terminations"] | data["truncations"]).sum()), 1)
    n = len(data["actions"])
    mean_return = data["rewards"].sum() / episodes
    return f"{n} transitions, {episodes} episodes, mean length {n / episodes:.0f}, mean return {mean_return:.0f}"


def main(argv: list[str]) -> None:
    """
    :param argv: Command-line arguments
    """
    parser = argparse.ArgumentParser(prog="python -m sb3_clearning.experiments locomotion_data", description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--steps", type=int, default=80_000, help="the agent's training steps")
    parser.add_argument("--transitions", type=int, default=100_000, help="transitions to collect")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--quick", action="store_true", help="a barely trained agent and few transitions")
    options = parser.parse_args(argv)
    if options.quick:
        options.steps, options.transitions = 1000, 8000
    th.set_num_threads(1)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.tasks:
        path = options.output / f"{name}.npz"
        if path.exists():
            print(f"{path} is there already")
            continue
        task = TASKS[name]
        agent = train_agent(task, options.steps, options.seed)
        data = collect(task, agent, options.transitions, options.seed + 1000)
        agent.save(options.output / f"{name}_agent.zip")
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, **data)  # type: ignore[arg-type]
        unfinished.rename(path)  # never a half-written dataset
        print(f"{name}: {describe(data)}", flush=True)

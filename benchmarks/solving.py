"""Processor minutes until a task is solved: CLearning beside SB3's algorithms with HER, which read the reward."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import gymnasium_robotics  # noqa: F401  (registers the tasks)
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

import sb3_clearning.envs  # noqa: F401  (registers the tasks)
from benchmarks.timing import Row, summary
from sb3_clearning import CLearning, evaluate_goals
from sb3_clearning.common.evaluation import N_ENVS_OF_TABLES
from sb3_clearning.experiments.suite.her import HerSAC, HerTD3

SHARED: dict[str, Any] = {
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "policy_kwargs": {"net_arch": [256, 256]},
    "device": "cpu",
}
#: For each subject its class and arguments. Networks, batches, inputs and warm-up are the same. The learning rates are the
#: defaults of each.
SUBJECTS: dict[str, tuple[Callable[..., OffPolicyAlgorithm], dict[str, Any]]] = {
    "CLearning": (CLearning, SHARED),
    "TD3 + HER": (HerTD3, {**SHARED, "learning_rate": 1e-3, "policy_delay": 1, "buffer_size": 200_000}),
    "SAC + HER": (HerSAC, {**SHARED, "learning_rate": 3e-4, "buffer_size": 200_000}),
}
OURS, *PEERS = SUBJECTS


class Task(NamedTuple):
    """
    When a task counts as solved, and when a subject gives up.

    :param success: The success rate over 50 episodes that counts as solved
    :param every: The number of steps between two evaluations
    :param most: The number of steps to give up after
    :param learning_starts: The number of warm-up steps
    """

    success: float
    every: int
    most: int
    learning_starts: int


TASKS = {
    "FetchReach-v4": Task(0.95, 500, 20_000, 1_000),
    "PointUMaze-v0": Task(0.9, 1_000, 30_000, 1_000),
    "SawyerDrawer-v0": Task(0.9, 2_500, 60_000, 10_000),
}


def minutes_to_solve(env_id: str, task: Task, seed: int) -> dict[str, tuple[float, bool]]:
    """
    The subjects take turns of ``task.every`` steps. Evaluations are not counted.

    :param env_id: The task's environment
    :param task: When it is solved
    :param seed: The training's
    :return: For each subject its processor minutes, and whether it has solved the task in them
    """
    models = {
        name: make("MultiInputPolicy", gym.make(env_id), learning_starts=task.learning_starts, seed=seed, **arguments)
        for name, (make, arguments) in SUBJECTS.items()
    }
    minutes, solved = dict.fromkeys(models, 0.0), dict.fromkeys(models, False)
    for _ in range(0, task.most, task.every):
        for name in [name for name in models if not solved[name]]:
            start = time.process_time()
            models[name].learn(task.every, reset_num_timesteps=False)
            minutes[name] += (time.process_time() - start) / 60
            measured = evaluate_goals(models[name], lambda: gym.make(env_id), 50, n_envs=N_ENVS_OF_TABLES)
            solved[name] = measured["success"] >= task.success
    return {name: (minutes[name], solved[name]) for name in models}


def solving(seeds: Sequence[int], quick: bool = False) -> list[Row]:
    """
    :param seeds: The training's
    :param quick: Whether to do only a few steps, to see that it works
    :return: For each task and subject the minutes to solve it, and the ratio of the best peer's to ours. Where a subject gave
        up, its minutes until then, and the row says so
    """
    rows = []
    for env_id, task in TASKS.items():
        runs = [minutes_to_solve(env_id, Task(task.success, 700, 700, 650) if quick else task, seed) for seed in seeds]
        setting = f"{env_id}, success {task.success}"
        for name in SUBJECTS:
            n_solved = sum(run[name][1] for run in runs)
            rows.append(summary("solving", setting, name, [run[name][0] for run in runs], "minutes"))
            rows.append(summary("solving", setting, f"{name}, solved", [n_solved / len(runs)], "share of seeds"))
        ratios = [min(run[peer][0] for peer in PEERS) / run[OURS][0] for run in runs]
        rows.append(summary("solving", setting, f"{OURS} / best of {' and '.join(PEERS)}", ratios, "ratio"))
    return rows

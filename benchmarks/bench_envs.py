"""
What the goal layer costs: each task's step and reset against those of the raw simulator, used by hand.

A raw environment's reset does what the paper's recipe asks for, with the simulator's own calls: for Jaco and Finger two
resets, for the hand a reset, 50 random steps and a reset. Both sides alternate in short blocks and the best block counts, so
that other work on the machine falls on both. Exits with 1 if a task costs more than 1.2 times the raw simulator.

    python benchmarks/bench_envs.py [--blocks 15] [task ids]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium as gym
import numpy as np

import sb3_clearning.envs  # noqa: F401  (registers the tasks)

LIMIT = 1.2


class Raw:
    """A raw simulator under one interface."""

    def __init__(self, step: Callable[[np.ndarray], Any], reset: Callable[[], Any], low: np.ndarray, high: np.ndarray) -> None:
        self.step, self.reset, self.low, self.high = step, reset, np.asarray(low), np.asarray(high)


def raw_sawyer(name: str) -> Raw:
    from metaworld import envs

    env = getattr(envs, name)()
    env._set_task_called = True
    env._freeze_rand_vec = False
    env.max_path_length = sys.maxsize  # it refuses to go on after 500 steps
    return Raw(env.step, env.reset, env.action_space.low, env.action_space.high)


def raw_maze() -> Raw:
    from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv

    env = PointMazeEnv(continuing_task=True, reset_target=False)
    return Raw(env.step, env.reset, env.action_space.low, env.action_space.high)


def raw_dm_control(kind: str) -> Raw:
    from dm_control import manipulation, suite

    if kind == "finger":
        env = suite.load("finger", "turn_hard", task_kwargs={"time_limit": float("inf")})
    else:
        env = manipulation.load("reach_site_features")

    def reset_twice() -> None:
        env.reset()
        env.reset()

    limits = env.action_spec()
    return Raw(env.step, reset_twice, limits.minimum, limits.maximum)


def raw_adroit(kind: str) -> Raw:
    from gymnasium_robotics.envs.adroit_hand.adroit_door import AdroitHandDoorEnv
    from gymnasium_robotics.envs.adroit_hand.adroit_pen import AdroitHandPenEnv

    env = AdroitHandDoorEnv() if kind == "door" else AdroitHandPenEnv()

    def reset_for_goal() -> None:
        env.reset()
        for action in np.random.uniform(-1, 1, (50, 28)):
            env.step(action)
        env.reset()

    return Raw(env.step, reset_for_goal if kind == "door" else env.reset, env.action_space.low, env.action_space.high)


RAW: dict[str, Callable[[], Raw]] = {
    "SawyerReach-v0": lambda: raw_sawyer("SawyerReachEnvV3"),
    "SawyerPush-v0": lambda: raw_sawyer("SawyerPushEnvV3"),
    "SawyerWindow-v0": lambda: raw_sawyer("SawyerWindowCloseEnvV3"),
    "SawyerDrawer-v0": lambda: raw_sawyer("SawyerDrawerOpenEnvV3"),
    "JacoReach-v0": lambda: raw_dm_control("jaco"),
    "Finger-v0": lambda: raw_dm_control("finger"),
    "AdroitHand-v0": lambda: raw_adroit("door"),
    "AdroitPen-v0": lambda: raw_adroit("pen"),
    "PointUMaze-v0": raw_maze,
}


def seconds_per_call(call: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> float:
    """
    Mean time of some calls.

    :param call: what to time
    :param arguments: those of each call
    :return: seconds for one
    """
    start = time.perf_counter()
    for each in arguments:
        call(*each)
    return (time.perf_counter() - start) / len(arguments)


def measure(task_id: str, blocks: int) -> dict[str, Any]:
    """
    Compare one task with its simulator.

    :param task_id: the task
    :param blocks: how many blocks of 100 steps and 5 resets
    :return: microseconds of both, and their ratios
    """
    task, raw = gym.make(task_id).unwrapped, RAW[task_id]()
    generator = np.random.default_rng(0)
    task.reset(seed=0)
    raw.reset()
    times: dict[str, list[float]] = {"step": [], "raw_step": [], "reset": [], "raw_reset": []}
    for _ in range(blocks):
        actions = generator.uniform(-1, 1, (100, len(raw.low)))
        ours = [(action,) for action in actions.astype(np.float32)]
        theirs = [(raw.low + (action + 1) / 2 * (raw.high - raw.low),) for action in actions]
        task.reset()
        raw.reset()
        times["step"].append(seconds_per_call(task.step, ours))
        times["raw_step"].append(seconds_per_call(raw.step, theirs))
        times["reset"].append(seconds_per_call(task.reset, [()] * 5))
        times["raw_reset"].append(seconds_per_call(raw.reset, [()] * 5))
    task.close()
    best = {name: round(min(values) * 1e6, 1) for name, values in times.items()}
    ratios = {
        "step_ratio": round(best["step"] / best["raw_step"], 2),
        "reset_ratio": round(best["reset"] / best["raw_reset"], 2),
    }
    return {"task": task_id, **{f"{name}_us": value for name, value in best.items()}, **ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(RAW), help="ids; all by default")
    parser.add_argument("--blocks", type=int, default=15, help="of 100 steps and 5 resets each")
    chosen = parser.parse_args()
    unknown = set(chosen.tasks) - set(RAW)
    if unknown:
        parser.error(f"no raw simulator for {sorted(unknown)}: choose from {list(RAW)}")
    too_slow = []
    for task_id in chosen.tasks:
        result = measure(task_id, chosen.blocks)
        print(json.dumps(result), flush=True)
        if max(result["step_ratio"], result["reset_ratio"]) > LIMIT:
            too_slow.append(task_id)
    if too_slow:
        print(f"More than {LIMIT} times the raw simulator: {too_slow}", file=sys.stderr)
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())

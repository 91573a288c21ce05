"""
What the goal layer costs: each task's step and reset against those of the raw simulator, used by hand.

A raw environment's reset does what the paper's recipe asks for, with the simulator's own calls: for Jaco and Finger two
resets, for the hand a reset, 50 random steps and a reset. Both sides start each block from the same physical state, take the
same actions and alternate every ten steps, in processor time, so that other work on the machine falls on both; the median of
the blocks counts. Exits with 1 if a task costs more than 1.2 times the raw simulator.

    python -m benchmarks.tasks [--blocks 15] [task ids]
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
from benchmarks.timing import Row, summary

LIMIT = 1.2


class Raw:
    """A raw simulator under one interface."""

    def __init__(
        self, step: Callable[[np.ndarray], Any], reset: Callable[[], Any], limits: Any, physics: Callable[[], tuple[Any, Any]]
    ) -> None:
        self.step, self.reset, self.physics = step, reset, physics
        low, high = (limits.low, limits.high) if hasattr(limits, "low") else (limits.minimum, limits.maximum)
        self.low, self.high = np.asarray(low), np.asarray(high)

    def enter_state_of(self, task: Any) -> None:
        """Begin from the same physical state: what a step costs depends on what touches what."""
        import mujoco

        from sb3_clearning.envs.mujoco_task import load_simulation, save_simulation

        model, data = self.physics()
        load_simulation(model, data, save_simulation(task.model, task.data))
        mujoco.mj_forward(model, data)


def raw_sawyer(name: str) -> Raw:
    from metaworld import envs

    env = getattr(envs, name)()
    env._set_task_called = True
    env._freeze_rand_vec = False
    env.max_path_length = sys.maxsize  # it refuses to continue after 500 steps
    return Raw(env.step, env.reset, env.action_space, lambda: (env.model, env.data))


def raw_maze() -> Raw:
    from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv

    env = PointMazeEnv(continuing_task=True, reset_target=False)
    return Raw(env.step, env.reset, env.action_space, lambda: (env.model, env.data))


def raw_dm_control(kind: str) -> Raw:
    from dm_control import manipulation, suite

    if kind == "finger":
        env = suite.load("finger", "turn_hard", task_kwargs={"time_limit": float("inf")})
    else:
        env = manipulation.load("reach_site_features")

    def reset_twice() -> None:
        env.reset()
        env.reset()

    return Raw(env.step, reset_twice, env.action_spec(), lambda: (env.physics.model.ptr, env.physics.data.ptr))


def raw_adroit(kind: str) -> Raw:
    from gymnasium_robotics.envs.adroit_hand.adroit_door import AdroitHandDoorEnv
    from gymnasium_robotics.envs.adroit_hand.adroit_pen import AdroitHandPenEnv

    env = AdroitHandDoorEnv() if kind == "door" else AdroitHandPenEnv()

    def reset_for_goal() -> None:
        env.reset()
        for action in np.random.uniform(-1, 1, (50, 28)):
            env.step(action)
        env.reset()

    reset = reset_for_goal if kind == "door" else env.reset
    return Raw(env.step, reset, env.action_space, lambda: (env.model, env.data))


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


def seconds(call: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> float:
    """
    Processor time of some calls.

    :param call: what to time
    :param arguments: those of each call
    :return: seconds for all together
    """
    start = time.process_time()
    for each in arguments:
        call(*each)
    return time.process_time() - start


def measure(task_id: str, blocks: int) -> dict[str, Any]:
    """
    Compare one task with its simulator.

    :param task_id: the task
    :param blocks: how many blocks of 100 steps and 5 resets
    :return: microseconds of both, and their ratios
    """
    task: Any = gym.make(task_id).unwrapped
    raw = RAW[task_id]()
    generator = np.random.default_rng(0)
    task.reset(seed=0)
    times = np.zeros((4, blocks))  # step, raw step, reset, raw reset
    for block in range(blocks):
        times[2, block] = seconds(task.reset, [()] * 5) / 5
        times[3, block] = seconds(raw.reset, [()] * 5) / 5
        raw.enter_state_of(task)
        for _ in range(10):
            actions = generator.uniform(-1, 1, (10, len(raw.low)))
            times[0, block] += seconds(task.step, [(action,) for action in actions.astype(np.float32)]) / 100
            scaled = raw.low + (actions + 1) / 2 * (raw.high - raw.low)
            times[1, block] += seconds(raw.step, [(action,) for action in scaled]) / 100
    task.close()
    step, raw_step, reset, raw_reset = np.round(np.median(times, axis=1) * 1e6, 1).tolist()
    return {
        "task": task_id,
        "step_us": step,
        "raw_step_us": raw_step,
        "step_ratio": round(float(np.median(times[0] / times[1])), 2),
        "reset_us": reset,
        "raw_reset_us": raw_reset,
        "reset_ratio": round(float(np.median(times[2] / times[3])), 2),
    }


def rows(task_id: str, blocks: int) -> list[Row]:
    """
    :param task_id: the task
    :param blocks: see :func:`measure`
    :return: the ratios as rows of the benchmarks' table
    """
    result = measure(task_id, blocks)
    return [
        summary("tasks", task_id, f"{what} / raw {what}", [result[f"{what}_ratio"]], "ratio of time")
        for what in ("step", "reset")
    ]


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

"""The replay buffer against HerReplayBuffer: sampling, adding, memory."""

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import psutil
from gymnasium import spaces
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.peers import make_env
from benchmarks.timing import Row, compare, repeat, seconds, summary
from sb3_clearning import GoalReplayBuffer

RELABEL = {"next": 0.3, "future": 0.2, "random": 0.5}
EPISODE = 50


class Recording:
    """
    A recorded episode of FetchPush-v4, to fill buffers with what the simulator really returns.

    :param n_envs: Number of environments that it is played in
    :param finals: Whether the infos have the final observations, as those of vectorized environments do
    """

    def __init__(self, n_envs: int = 1, finals: bool = False):
        env = make_env("FetchPush-v4")
        self.observation_space, self.action_space = env.observation_space, env.action_space
        obs, _ = env.reset(seed=0)
        self.steps: list[tuple[Any, ...]] = []
        for t in range(EPISODE):
            action = env.action_space.sample()
            next_obs, reward, _, _, info = env.step(action)
            many = [{key: np.stack([value] * n_envs) for key, value in o.items()} for o in (obs, next_obs)]
            infos = [{**info, "TimeLimit.truncated": t == EPISODE - 1} for _ in range(n_envs)]
            if finals and t == EPISODE - 1:
                infos = [{**info, "terminal_observation": next_obs} for info in infos]
            done = np.full(n_envs, t == EPISODE - 1)
            self.steps.append((*many, np.stack([action] * n_envs), np.full(n_envs, reward), done, infos))
            obs = next_obs

    def make(self, kind: str, size: int, n_envs: int = 1) -> Any:
        """
        :param kind: "ours" or "HER"
        :param size: Number of transitions
        :param n_envs: Number of environments
        :return: An empty buffer
        """
        assert isinstance(self.observation_space, spaces.Dict)
        if kind == "ours":
            return GoalReplayBuffer(size, self.observation_space, self.action_space, n_envs=n_envs)
        env = DummyVecEnv([lambda: make_env("FetchPush-v4")])
        return HerReplayBuffer(size, self.observation_space, self.action_space, env=env, n_envs=n_envs)

    def add(self, buffer: Any, count: int, start: int = 0) -> None:
        """
        :param buffer: The buffer
        :param count: Number of steps to add
        :param start: The episode's step to start with
        """
        for t in range(start, start + count):
            buffer.add(*self.steps[t % EPISODE])


def sampling(rounds: int, sizes: tuple[int, ...], her_sizes: tuple[int, ...]) -> list[Row]:
    """
    A batch of 256 from a full buffer.

    :param rounds: Number of rounds
    :param sizes: Sizes of our buffer
    :param her_sizes: Those sizes at which HerReplayBuffer is measured too
    :return: The rows
    """
    recording = Recording()
    subjects = {}
    for size in sizes:
        for kind in ("ours", "HER") if size in her_sizes else ("ours",):
            buffer = recording.make(kind, size)
            recording.add(buffer, size)
            draw = repeat(100, buffer.sample_goals, 256, RELABEL) if kind == "ours" else repeat(10, buffer.sample, 256)
            subjects[f"{kind} {size}"] = draw
    times = seconds(subjects, rounds, warm_up=3)
    each = {name: [t / (100 if name.startswith("ours") else 10) for t in values] for name, values in times.items()}
    rows = [
        summary("sampling 256", f"{int(name.split()[1]):,} transitions", name.split()[0], [1e3 * t for t in values], "ms")
        for name, values in each.items()
    ]
    largest = max(sizes)
    rows.append(
        summary(
            "sampling 256",
            f"{largest:,} transitions",
            f"ours / ours at {min(sizes):,}",
            [a / b for a, b in zip(each[f"ours {largest}"], each[f"ours {min(sizes)}"], strict=True)],
            "ratio",
        )
    )
    for size in her_sizes:
        ratios = [her / own for own, her in zip(each[f"ours {size}"], each[f"HER {size}"], strict=True)]
        rows.append(summary("sampling 256", f"{size:,} transitions", "ours / HER", ratios, "ratio"))
    return rows


def adding(rounds: int, counts: tuple[int, ...]) -> list[Row]:
    """
    One step of all environments.

    :param rounds: Number of rounds
    :param counts: Numbers of environments
    :return: The rows
    """
    rows = []
    for n_envs in counts:
        recording = Recording(n_envs)
        buffers = {kind: recording.make(kind, 200 * n_envs, n_envs) for kind in ("ours", "HER")}
        subjects = {kind: repeat(1, recording.add, buffer, EPISODE) for kind, buffer in buffers.items()}
        times = seconds(subjects, rounds)
        rows += compare("adding", f"{n_envs} environments", times, EPISODE, "steps", ours="ours")
    return rows


def checking(rounds: int, counts: tuple[int, ...]) -> list[Row]:
    """
    What it costs to look for false final observations, in episodes of 50 steps, by the time of the CPU.

    :param rounds: Number of rounds
    :param counts: Numbers of environments
    :return: The rows: the time of adding with the check, as a ratio to that without
    """
    rows = []
    for n_envs in counts:
        recordings = {"unchecked": Recording(n_envs), "checked": Recording(n_envs, finals=True)}
        subjects = {
            name: repeat(5, each.add, each.make("ours", 200 * n_envs, n_envs), EPISODE) for name, each in recordings.items()
        }
        times = seconds(subjects, rounds, warm_up=3, clock=time.process_time)
        ratios = [with_ / without for with_, without in zip(times["checked"], times["unchecked"], strict=True)]
        rows.append(summary("adding", f"{n_envs} environments", "final observations checked, time", ratios, "ratio"))
    return rows


def _measure_memory(kind: str, size: int) -> None:
    """Print the creation's time and memory, and the memory of the full buffer. Runs in its own process."""
    process = psutil.Process(os.getpid())
    recording = Recording()
    recording.add(recording.make(kind, 2 * EPISODE), EPISODE)  # imports and caches
    before = process.memory_info().rss
    start = time.perf_counter()
    buffer = recording.make(kind, size)
    created = time.perf_counter() - start
    empty = process.memory_info().rss - before
    recording.add(buffer, size)
    print(json.dumps({"seconds": created, "empty": empty, "full": process.memory_info().rss - before}))


def memory(size: int) -> list[Row]:
    """
    :param size: Number of transitions
    :return: The rows: resident bytes a transition on FetchPush-v4, and what an empty buffer costs
    """
    measured = {}
    for kind in ("ours", "HER"):
        command = [sys.executable, "-m", "benchmarks.buffer", kind, str(size)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        measured[kind] = json.loads(output.strip().splitlines()[-1])
    setting = f"FetchPush-v4, {size:,} transitions"
    rows = []
    for kind, values in measured.items():
        rows.append(summary("memory", setting, kind, [values["full"] / size], "bytes a transition"))
        rows.append(summary("memory", setting, f"{kind}, empty", [values["empty"] / 1e6], "MB"))
        rows.append(summary("memory", setting, f"{kind}, creating", [1e3 * values["seconds"]], "ms"))
    rows.append(summary("memory", setting, "ours / HER", [measured["ours"]["full"] / measured["HER"]["full"]], "ratio"))
    return rows


if __name__ == "__main__":
    _measure_memory(sys.argv[1], int(sys.argv[2]))

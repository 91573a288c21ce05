"""A long life of the buffer: memory and time stay what they were."""

import statistics
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from sb3_clearning import GoalReplayBuffer
from tests.support.ring_invariants import check_invariants

N_ENVS, BUFFER, STEPS = 8, 200_000, 2_000_000


def _resident() -> int:
    """:return: The process's resident memory, in bytes"""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _sampling_time(buffer: GoalReplayBuffer, small: GoalReplayBuffer, relabel: dict[str, float]) -> float:
    """:return: The time for batches in units of that for a small buffer that stays as it is: other work slows both down"""
    times: dict[int, list[float]] = {0: [], 1: []}
    for turn in range(200):
        start = time.process_time()
        (buffer, small)[turn % 2].sample_goals(256, relabel, n_batches=8)
        times[turn % 2].append(time.process_time() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory from /proc")
def test_two_million_steps() -> None:
    rng = np.random.default_rng(0)
    box = spaces.Box(-np.inf, np.inf, (6,))
    space = spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
    buffer = GoalReplayBuffer(BUFFER, space, spaces.Box(-1, 1, (3,)), device="cpu", n_envs=N_ENVS)
    small = GoalReplayBuffer(2_000, space, spaces.Box(-1, 1, (3,)), device="cpu", n_envs=N_ENVS)
    relabel = {"next": 0.25, "future": 0.25, "random": 0.5}
    remaining = rng.geometric(1 / 60, N_ENVS)
    obs = np.zeros((N_ENVS, 6), dtype=np.float32)
    resident, seconds = [], []
    for step in range(STEPS // N_ENVS):
        next_obs = obs + 1
        remaining -= 1
        done = remaining == 0
        for one in (buffer, small) if step < 500 else (buffer,):
            one.add(
                {"observation": obs, "achieved_goal": obs, "desired_goal": obs},
                {"observation": next_obs, "achieved_goal": next_obs, "desired_goal": obs},
                np.zeros((N_ENVS, 3), dtype=np.float32),
                np.zeros(N_ENVS),
                done,
                [{"TimeLimit.truncated": bool(step % 3)}] * N_ENVS,
            )
        if done.any():
            next_obs[done] = rng.integers(10**6, size=(int(done.sum()), 1)) * 2.0
            remaining[done] = rng.choice([1, 2, 30, 400, 30_000], int(done.sum()), p=[0.2, 0.2, 0.4, 0.19, 0.01])
        obs = next_obs
        if step % 20 == 0:
            buffer.sample_goals(256, relabel)
        if step > BUFFER // N_ENVS and step % (STEPS // N_ENVS // 10) == 0:
            check_invariants(buffer)
            seconds.append(_sampling_time(buffer, small, relabel))
            resident.append(_resident())
    print(f"resident: {[round(value / 1e6, 1) for value in resident]} MB, sampling: {[round(s, 3) for s in seconds]}")
    assert len(resident) >= 8
    assert max(resident) <= 1.02 * resident[0]
    early, late = statistics.median(seconds[:3]), statistics.median(seconds[-3:])
    assert late <= 1.25 * early

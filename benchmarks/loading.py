"""
A compressed .npz file that is larger than the replay buffer into it, against ``np.load`` of the file.
``python -m benchmarks.loading`` prints what ``python -m benchmarks --only loading`` writes to the table. It needs 1.5 GB of
disk.
"""

import argparse
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gymnasium import spaces

from benchmarks.timing import Row, compare, seconds, summary
from sb3_clearning import GoalReplayBuffer

#: Like OGBench's antmaze: 29 numbers for a state, 8 for an action, the goal is a place, a thousand steps in an episode.
STATE, ACTION, CROP, EPISODE = 29, 8, [0, 1], 1001
BUFFER = 1_000_000
SIZE = 10_000_000


def write(path: Path, size: int) -> None:
    """
    :param path: The file, in OGBench's layout
    :param size: Number of transitions
    """
    rng = np.random.default_rng(0)
    rows = size + -(-size // (EPISODE - 1))
    terminals = np.arange(1, rows + 1) % EPISODE == 0
    terminals[-1] = True
    observations = rng.standard_normal((rows, STATE), dtype=np.float32)
    actions = 2 * rng.random((rows, ACTION), dtype=np.float32) - 1
    np.savez_compressed(path, observations=observations, actions=actions, terminals=terminals.astype(np.float32))


def new_buffer() -> GoalReplayBuffer:
    box, goal = spaces.Box(-np.inf, np.inf, (STATE,)), spaces.Box(-np.inf, np.inf, (len(CROP),))
    space = spaces.Dict(observation=box, achieved_goal=goal, desired_goal=goal)
    return GoalReplayBuffer(BUFFER, space, spaces.Box(-1, 1, (ACTION,)), device="cpu")


def load(path: Path, buffer: GoalReplayBuffer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the file is larger than the buffer
        buffer.load_dataset(path, crop=CROP)


def load_arrays(path: Path) -> None:
    with np.load(path) as arrays:
        _ = {name: arrays[name] for name in arrays}


def peak(call: Callable[[], None]) -> float:
    """:return: The most memory that a call allocated at a time, in MB"""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def loading(size: int, rounds: int) -> list[Row]:
    """
    :param size: Number of transitions; a tenth of it is measured too, since memory should not depend on it
    :param rounds: Number of rounds
    :return: The rows
    """
    rows = []
    for n in (size // 10, size):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.npz"
            write(path, n)
            calls: dict[str, Callable[[], None]] = {
                "load_dataset": lambda path=path: load(path, new_buffer()),  # type: ignore[misc]
                "np.load": lambda path=path: load_arrays(path),  # type: ignore[misc]
            }
            setting = f"{n:,} transitions, buffer of {BUFFER:,}"
            rows += compare("loading", setting, seconds(calls, rounds, warm_up=0), n, "transitions", ours="load_dataset")
            buffer = new_buffer()  # beforehand: the buffer's own memory does not count
            peaks = {
                "load_dataset": peak(lambda path=path, buffer=buffer: load(path, buffer)),  # type: ignore[misc]
                "np.load": peak(calls["np.load"]),
            }
            rows += [summary("loading", setting, f"{name}, memory", [value], "MB") for name, value in peaks.items()]
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE, help="number of transitions")
    for row in loading(parser.parse_args().size, rounds=3):
        print(f"{row.setting:50} {row.subject:26} {row.value:9.3g} ({row.low:.3g} to {row.high:.3g}) {row.unit}", flush=True)

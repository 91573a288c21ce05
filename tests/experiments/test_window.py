"""What counts as a slip of the hand past the window's handle, and the table of slips."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import sb3_clearning.envs  # noqa: F401
from sb3_clearning import CLearning, ResumableCheckpoint
from sb3_clearning.checks import UsageError
from sb3_clearning.experiments import window
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, ROWS, write_description
from sb3_clearning.experiments.tables.rows import read_rows, write_rows

NEAR, FAR = 0.01, 0.1


def episode(*pieces: tuple[int, float, bool]) -> window.Episode:
    """Pieces of so many steps, at a distance from the goal, with the hand in front of the handle or not."""
    distances = np.concatenate([np.full(n, distance) for n, distance, _ in pieces])
    in_front = np.concatenate([np.full(n, front) for n, _, front in pieces])
    return window.Episode(distances, in_front, np.arange(len(distances)) / 100)


@pytest.mark.parametrize(
    ("pieces", "at"),
    [
        ([(30, FAR, True), (25, NEAR, True), (20, FAR, False)], 54),
        ([(30, FAR, True), (25, NEAR, True), (5, FAR, True), (20, FAR, False)], 54),  # it comes out a little later
        ([(25, NEAR, True), (9, FAR, False), (40, NEAR, True), (9, FAR, False)], 73),  # the last one counts
        ([(30, FAR, True), (19, NEAR, True), (20, FAR, False)], None),  # not held, just passed
        ([(30, FAR, True), (25, NEAR, True), (40, FAR, True)], None),  # pushed away, not slipped
        ([(30, FAR, True), (25, NEAR, True), (10, FAR, True), (9, FAR, False)], None),  # lost before the hand came out
        ([(30, FAR, False), (25, NEAR, False), (9, FAR, True)], None),  # held from behind
        ([(10, FAR, True), (40, NEAR, True)], None),  # held to the end
        ([(50, FAR, True)], None),
    ],
)
def test_slips(pieces: list[tuple[int, float, bool]], at: int | None) -> None:
    assert window.slip(episode(*pieces), 0.03) == at


def test_the_table_of_finished_runs(tmp_path: Path) -> None:
    arguments = {"learning_starts": 10, "buffer_size": 100, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}
    for seed, steps in ((0, 20), (1, 40)):  # the second one is not at its end
        run = Run(window.TASK, "clearning", seed, steps, "sb3_clearning:CLearning", arguments, window.TASK, {}, 20, 2, 1.0)
        folder = tmp_path / "runs" / run.name
        write_description(run, folder)
        model = CLearning("MultiInputPolicy", gym.make(window.TASK), seed=seed, **arguments)  # type: ignore[arg-type]
        model.learn(20, callback=ResumableCheckpoint(folder / CHECKPOINTS, every=20))
        write_rows(folder / ROWS, [{"step": 20}], ["step"])
        if seed == 0:
            env, reached = gym.make(window.TASK), []
            for index in range(2):
                obs, info = env.reset(seed=window.EVALUATION_SEED + index)
                ended = False
                while not ended:
                    obs, _, _, ended, info = env.step(model.predict(obs, deterministic=True)[0])
                reached.append(info["is_success"])
    window.main(["--suite", str(tmp_path), "--episodes", "2", "--output", str(tmp_path)])
    (row,) = read_rows(tmp_path / "window.csv")
    assert (row["seed"], row["step"], row["episodes"]) == ("0", "20", "2")
    assert int(row["failed"]) == reached.count(False)
    with pytest.raises(UsageError, match="has no finished run of clearning"):
        window.main(["--suite", str(tmp_path / "elsewhere")])

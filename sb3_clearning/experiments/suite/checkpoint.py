"""What a run's folder holds: its rows, and the checkpoints it goes on from."""

from pathlib import Path

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.tables.rows import read_rows
from sb3_clearning.runs.checkpoint import ResumableCheckpoint

ROWS = "rows.csv"
CHECKPOINTS = "checkpoints"


def resumable(run: Run, folder: Path) -> ResumableCheckpoint:
    """:return: The callback that writes its checkpoints"""
    return ResumableCheckpoint(folder / CHECKPOINTS, every=run.evaluate_every)


def rows_of(folder: Path) -> list[dict[str, str]]:
    """:return: The rows so far. The run may be writing another one at the same time"""
    return read_rows(folder / ROWS)


def final_model(run: Run, folder: Path) -> CLearning:
    """:return: Its model"""
    from sb3_clearning.experiments.suite.config import make_env

    return CLearning.resume(folder / CHECKPOINTS, make_env(run), device="cpu")

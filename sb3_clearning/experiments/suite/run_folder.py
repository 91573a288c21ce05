"""The folder of a run: its description, its rows, its checkpoints, its log and its lock."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.tables.rows import Rows, read_rows
from sb3_clearning.files.array_file import write_whole
from sb3_clearning.runs.lock import run_lock

ROWS = "rows.csv"
CHECKPOINTS = "checkpoints"
LOG = "log.txt"
#: How long to wait for a process that holds the run and is about to end.
LOCK_SECONDS = 15.0


class RunIsTaken(RuntimeError):
    """Another process works on the run."""


def suite_lock(folder: Path, seconds: float = LOCK_SECONDS) -> AbstractContextManager[None]:
    """:return: A lock of a run's folder, beside that of its checkpoints. It raises :class:`RunIsTaken`"""
    return run_lock(folder, "lock", seconds, RunIsTaken(f"Another process works on {folder}."))


def write_description(run: Run, folder: Path) -> None:
    """Describe a run for the process that will execute it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "run.json", json.dumps(dataclasses.asdict(run), indent=1).encode())


def read_description(folder: Path) -> Run | None:
    """:return: The run that a folder is for"""
    path = folder / "run.json"
    return Run(**json.loads(path.read_text())) if path.exists() else None


def rows_of(folder: Path) -> Rows:
    """:return: The rows so far; the run may be writing the next one"""
    return read_rows(folder / ROWS)


def finished_runs(suite: Path, pattern: str) -> Iterator[tuple[Path, Run, Rows]]:
    """
    :param suite: The suite's output folder
    :param pattern: Of the runs' names, ``TASK/METHOD/seed_*``
    :return: The folder of each finished run, the run and its rows
    """
    for folder in sorted(suite.glob(f"runs/{pattern}")):
        run, rows = read_description(folder), rows_of(folder)
        if run is not None and rows and int(rows[-1]["step"]) >= run.steps:
            yield folder, run, rows


def append_log(folder: Path, text: str) -> None:
    """Append a line to a run's log."""
    with contextlib.suppress(OSError), (folder / LOG).open("a") as log:
        log.write(f"{text}\n")


def last_line(folder: Path) -> str:
    """:return: The last line that a run printed: the error's message, if it failed"""
    path = folder / LOG
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it printed nothing"

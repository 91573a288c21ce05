"""The output folder: a folder for each run, and the table that all their rows are merged into."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sb3_clearning.experiments.rows import write_rows
from sb3_clearning.experiments.suite import checkpoint
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.run import FIELDS, read_description


class State(NamedTuple):
    """
    How far a run is.

    :param rows: Its rows so far
    :param done: Its steps so far
    :param other_settings: Whether its folder holds a run with other settings
    """

    rows: list[dict[str, str]]
    done: int
    other_settings: bool


class Output:
    """
    The folder of all runs.

    :param folder: The folder; ``runs/`` in it has the runs, ``suite.csv`` their rows
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.table = folder / "suite.csv"

    def run_folder(self, run: Run) -> Path:
        """
        :param run: A run
        :return: Its folder
        """
        return self.folder / "runs" / run.name

    def state(self, run: Run) -> State:
        """
        :param run: A run
        :return: How far it is
        """
        folder = self.run_folder(run)
        rows = checkpoint.rows_of(folder)
        described = read_description(folder) if rows else None
        return State(
            rows, int(rows[-1]["step"]) if rows else 0, described is not None and described.settings() != run.settings()
        )

    def put_aside(self, runs: Iterable[Run]) -> None:
        """
        :param runs: Runs whose folders make room for new ones; they are kept under another name and leave the table
        """
        for run in runs:
            folder = self.run_folder(run)
            number = 1
            while (aside := self.folder / "aside" / f"{run.name}.{number}").exists():
                number += 1
            aside.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(aside)

    def merge(self) -> list[dict[str, str]]:
        """
        Write the table anew from the rows of all runs.

        :return: All rows
        """
        rows = [row for lock in sorted(self.folder.glob("runs/*/*/seed_*")) for row in checkpoint.rows_of(lock)]
        rows.sort(key=lambda row: (row["task"], row["method"], int(row["seed"]), int(row["step"])))
        write_rows(self.table, rows, FIELDS)
        return rows

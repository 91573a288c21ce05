"""The output folder: a folder for each run, and the table that all their rows are merged into."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sb3_clearning.experiments.rows import read_rows, write_rows
from sb3_clearning.experiments.suite import checkpoint
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.run import FIELDS, read_description


class State(NamedTuple):
    """
    How far a run is.

    :param rows: Its rows so far
    :param done: Its steps so far
    :param other_settings: Whether what is there is of a run with other settings
    """

    rows: list[dict[str, str]]
    done: int
    other_settings: bool


class Output:
    """
    The folder of all runs. A run that is in the table and has no folder, as in a fresh checkout, counts if it is finished:
    its rows stay. If it is not, there is no checkpoint to go on from, and it begins anew.

    :param folder: The folder; ``runs/`` in it has the runs, ``suite.csv`` their rows
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.table = folder / "suite.csv"
        self._in_table: dict[str, list[dict[str, str]]] = {}
        for row in read_rows(self.table):
            self._in_table.setdefault(f"{row['task']}/{row['method']}/seed_{row['seed']}", []).append(row)

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
        if rows:
            described = read_description(folder)
            return State(rows, int(rows[-1]["step"]), described is not None and described.settings() != run.settings())
        rows = self._in_table.get(run.name, [])
        if not rows or int(rows[-1]["step"]) < run.steps:
            return State([], 0, False)
        return State(rows, int(rows[-1]["step"]), not run.has_arguments_of(rows[-1]))

    def put_aside(self, runs: Iterable[Run]) -> None:
        """
        :param runs: Runs that make room for new ones; they are kept under another name and leave the table
        """
        for run in runs:
            folder = self.run_folder(run)
            number = 1
            while (aside := self.folder / "aside" / f"{run.name}.{number}").exists():
                number += 1
            aside.parent.mkdir(parents=True, exist_ok=True)
            if checkpoint.rows_of(folder):
                folder.rename(aside)
            else:
                write_rows(aside / checkpoint.ROWS, self._in_table[run.name], FIELDS)
            self._in_table.pop(run.name, None)

    def merge(self) -> list[dict[str, str]]:
        """
        Write the table anew from the rows of all runs.

        :return: All rows
        """
        found = dict(self._in_table)
        for folder in self.folder.glob("runs/*/*/seed_*"):
            if rows := checkpoint.rows_of(folder):
                found["/".join(folder.parts[-3:])] = rows
        merged = [row for rows in found.values() for row in rows]
        merged.sort(key=lambda row: (row["task"], row["method"], int(row["seed"]), int(row["step"])))
        write_rows(self.table, merged, FIELDS)
        return merged

"""The output folder: a folder for each run, and the table that all their rows are merged into."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from sb3_clearning.checks import UsageError
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.run import FIELDS, LATER_FIELDS
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, ROWS, read_description, rows_of, suite_lock
from sb3_clearning.experiments.tables.rows import Rows, read_rows, write_rows


class RunProgress(NamedTuple):
    """The progress of a run: its steps so far, and whether rows or checkpoints were made with other settings."""

    rows: Rows
    done: int
    other_settings: bool

    def passed(self, run: Run) -> bool:
        """:return: Whether it is beyond the requested steps and was not evaluated there"""
        return self.done > run.steps and all(int(row["step"]) != run.steps for row in self.rows)


class OutputFolder:
    """
    The folder of all runs. A run without a folder whose rows are in the table, as in a fresh checkout, counts if it is
    finished. If not, there is no checkpoint to resume from: it restarts, and its old rows stay until the new ones are as many.

    :param folder: The folder; ``runs/`` in it has the runs, ``suite.csv`` their rows
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.table = folder / "suite.csv"
        self._in_table = self._by_run()

    def rows(self) -> Rows:
        """:return: The rows of the table; no rows if it does not exist"""
        rows = read_rows(self.table)
        missing = [field for field in FIELDS if rows and field not in rows[0] and field not in LATER_FIELDS]
        if missing:
            raise UsageError(
                f"{self.table} is not a table of this version of the suite: it has no column {', '.join(missing)}. Move it "
                "away, or choose another --output."
            )
        return rows

    def _by_run(self) -> dict[str, Rows]:
        """:return: The rows of the table by the names of their runs"""
        found: dict[str, Rows] = {}
        for row in self.rows():
            found.setdefault(f"{row['task']}/{row['method']}/seed_{row['seed']}", []).append(row)
        return found

    def run_folder(self, run: Run) -> Path:
        """:return: Its folder"""
        return self.folder / "runs" / run.name

    def progress(self, run: Run) -> RunProgress:
        """:return: The progress of a run"""
        folder = self.run_folder(run)
        rows = rows_of(folder)
        # A run without rows may have a checkpoint, from which it would resume.
        if rows or (folder / CHECKPOINTS).exists():
            # Rows have their settings: another command may have described the run again without starting it.
            described = None if rows else read_description(folder)
            same = described is None or described.settings() == run.settings()
            other = not (same and all(run.has_settings_of(row) for row in rows))
            return RunProgress(rows, int(rows[-1]["step"]) if rows else 0, other)
        rows = self._in_table.get(run.name, [])
        other = any(not run.has_settings_of(row) for row in rows)
        if not rows or int(rows[-1]["step"]) < run.steps:
            return RunProgress([], 0, other)
        return RunProgress(rows, int(rows[-1]["step"]), other)

    def archive(self, runs: Iterable[Run]) -> None:
        """Move runs to the folder ``aside/`` and remove them from the table."""
        gone: set[str] = set()
        try:
            for run in runs:
                self._archive(run)
                gone.add(run.name)
        finally:
            self.merge(gone)

    def _archive(self, run: Run) -> None:
        folder = self.run_folder(run)
        number = 1
        while (aside := self.folder / "aside" / f"{run.name}.{number}").exists():
            number += 1
        aside.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            with suite_lock(folder, 0):
                folder.rename(aside)
        rows = self._in_table.get(run.name, [])
        if rows and not rows_of(aside):
            write_rows(aside / ROWS, rows, FIELDS)

    def merge(self, without: Collection[str] = ()) -> Rows:
        """:return: The rows of the table, rewritten with those of all runs. Other commands may do so at the same time"""
        with suite_lock(self.folder / "runs"):
            self._in_table = {name: rows for name, rows in self._by_run().items() if name not in without}
            return self._merge()

    def _merge(self) -> Rows:
        found = dict(self._in_table)
        for folder in self.folder.glob("runs/*/*/seed_*"):
            rows, name = rows_of(folder), "/".join(folder.parts[-3:])
            if rows and (name not in found or int(rows[-1]["step"]) >= int(found[name][-1]["step"])):
                found[name] = rows
        merged = [row for rows in found.values() for row in rows]
        merged.sort(key=lambda row: (row["task"], row["method"], int(row["seed"]), int(row["step"])))
        write_rows(self.table, merged, FIELDS)
        return merged

"""The rows of the table as numbers: the results of each run of a matrix."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sb3_clearning.checks import UsageError
from sb3_clearning.experiments.suite.config import Run


class Measure(NamedTuple):
    """
    A column, or what follows from columns.

    :param better: 1 if more is better, -1 if less is
    :param start: The column of the value at the start of the episodes
    :param relative: Whether it is divided by the initial distance
    """

    name: str
    better: int
    column: str
    start: str
    digits: int
    relative: bool = False

    def of(self, row: dict[str, str]) -> float:
        """:return: Its value"""
        value = float(row[self.column])
        return value / float(row["initial"]) if self.relative else value


SUCCESS = Measure("success rate", 1, "success", "initial_success", 2)
ANY_TIME = Measure("success at any time", 1, "success_any_time", "initial_success", 2)
FINAL = Measure("final distance", -1, "final", "initial", 4)
#: Distances have different units on every task: only their ratio to the initial one can be averaged.
REMAINING = Measure("remaining distance", -1, "final", "initial", 3, relative=True)


class Reached(NamedTuple):
    """The first evaluation of a run with a success rate; the minutes are None where they were not measured."""

    steps: float
    minutes: float | None


#: Of a run that did not reach it.
NEVER = Reached(math.inf, math.inf)


class Scores:
    """The rows of the runs that a matrix should have."""

    def __init__(self, rows: Iterable[dict[str, str]], runs: Sequence[Run]):
        self.runs = runs
        self.tasks = list(dict.fromkeys(run.task for run in runs))
        self.methods = list(dict.fromkeys(run.method for run in runs))
        self.steps = {(run.task, run.method): run.steps for run in runs}
        by_key = {(run.task, run.method, run.seed): run for run in runs}
        self._rows: dict[tuple[str, str, int], dict[int, dict[str, str]]] = {key: {} for key in by_key}
        others = set()
        for row in rows:
            key = (row["task"], row["method"], int(row["seed"]))
            if key in self._rows:
                self._rows[key][int(row["step"])] = row
                if not by_key[key].has_settings_of(row):
                    others.add(by_key[key].name)
        if others:
            names = ", ".join(sorted(others)[:3]) + (", …" if len(others) > 3 else "")
            raise UsageError(
                f"{len(others)} runs in the table were made with other settings ({names}) and cannot be averaged with the "
                "rest. Repeat them with --redo (the old ones go to the folder aside/), or pass their configuration (--config)."
            )

    def seeds(self, task: str, method: str) -> list[int]:
        """:return: The seeds that the matrix should have of a task and method"""
        return [run.seed for run in self.runs if (run.task, run.method) == (task, method)]

    def curve(self, task: str, method: str, measure: Measure) -> dict[int, np.ndarray]:
        """
        :return: For each step its values, one for each seed that has come so far, ``(n_seeds,)``. Rows from before the column
            was measured are left out
        """
        found: dict[int, list[float]] = {}
        for seed in self.seeds(task, method):
            for step, row in sorted(self._rows[task, method, seed].items()):
                if step <= self.steps[task, method] and row.get(measure.column):
                    found.setdefault(step, []).append(measure.of(row))
        return {step: np.array(found[step]) for step in sorted(found)}

    def final(self, task: str, method: str, measure: Measure) -> np.ndarray:
        """:return: The values at the end of the runs that are done, ``(n_seeds,)``"""
        return self.curve(task, method, measure).get(self.steps.get((task, method), -1), np.zeros(0))

    def minutes(self, task: str, method: str) -> dict[int, float]:
        """:return: For each step the processor minutes of training until then, the mean over the runs that measured them"""
        found: dict[int, list[float]] = {}
        for seed in self.seeds(task, method):
            for step, row in sorted(self._rows[task, method, seed].items()):
                if row.get("cpu_seconds"):
                    found.setdefault(step, []).append(float(row["cpu_seconds"]) / 60)
        return {step: sum(values) / len(values) for step, values in sorted(found.items())}

    def reached(self, task: str, method: str, level: float) -> list[Reached]:
        """:return: For each run that is done, when an evaluation first had this success rate"""
        found = []
        for seed in self.ends(task, method, SUCCESS):
            rows = (row for step, row in sorted(self._rows[task, method, seed].items()) if step <= self.steps[task, method])
            first = next((row for row in rows if float(row["success"]) >= level), None)
            if first is None:
                found.append(NEVER)
            else:
                seconds = first.get("cpu_seconds")
                found.append(Reached(int(first["step"]), float(seconds) / 60 if seconds else None))
        return found

    def ends(self, task: str, method: str, measure: Measure) -> dict[int, float]:
        """:return: The value at the end of each run that is done, by its seed"""
        found = {seed: self._rows[task, method, seed].get(self.steps[task, method], {}) for seed in self.seeds(task, method)}
        return {seed: measure.of(row) for seed, row in found.items() if row.get(measure.column)}

    def state(self, task: str, method: str) -> str:
        """:return: How far runs are of which none is done"""
        done = max((step for seed in self.seeds(task, method) for step in self._rows[task, method, seed]), default=0)
        steps = self.steps[task, method]
        if done > steps:
            return f"not evaluated at {steps:,}"
        return f"unfinished ({done:,} of {steps:,})" if done else "missing"

    def arguments(self, task: str, method: str) -> dict[str, Any]:
        """:return: The algorithm's arguments on a task; empty if the matrix does not have it"""
        return next((run.arguments for run in self.runs if (run.task, run.method) == (task, method)), {})

    def at_the_start(self, task: str, measure: Measure) -> str:
        """:return: What the evaluation episodes of a task begin with, which an agent that does nothing may keep"""
        rows = (row for key, steps in self._rows.items() if key[0] == task for row in steps.values())
        return next((f"{float(row[measure.start]):.{measure.digits}f}" for row in rows if row[measure.start]), "–")

    def provenance(self) -> list[str]:
        """:return: The commits and versions of the rows, each once"""
        rows = [row for steps in self._rows.values() for row in steps.values()]
        commits = sorted({row["commit"] for row in rows})
        return [f"Commits: {', '.join(commits)}.", *sorted({row["versions"] for row in rows})] if rows else []

    def complete_tasks(self, methods: Sequence[str]) -> list[str]:
        """:return: The tasks on which each method has a finished run"""
        return [task for task in self.tasks if all(len(self.final(task, method, SUCCESS)) for method in methods)]

    def matrix(self, tasks: Sequence[str], method: str, measure: Measure) -> np.ndarray:
        """:return: The values at the runs' end, ``(n_seeds, n_tasks)``, of the first seeds, as many as every task has"""
        values = [self.final(task, method, measure) for task in tasks]
        n_seeds = min(len(value) for value in values)
        return np.stack([value[:n_seeds] for value in values], axis=1)

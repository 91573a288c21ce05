"""The progress of a matrix and its remaining time."""

import statistics
import time
from collections.abc import Iterable, Sequence

from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.output_folder import OutputFolder, RunProgress


def duration(seconds: float) -> str:
    """:return: A duration in hours and minutes"""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


class Forecast:
    """The time that runs take, by that of a task's other runs: of the same method, else of any, else as configured."""

    def __init__(self, rows: Iterable[dict[str, str]]):
        measured: dict[tuple[str, ...], list[float]] = {}
        last: dict[tuple[str, ...], dict[str, str]] = {}
        for row in rows:
            last[row["task"], row["method"], row["seed"]] = row
        for row in last.values():
            for key in ((row["task"], row["method"]), (row["task"],)):
                measured.setdefault(key, []).append(float(row["seconds"]) / int(row["step"]))
        self.per_step = {key: statistics.median(values) for key, values in measured.items()}

    def seconds(self, run: Run, done: int) -> float:
        """:return: The remaining time of a run"""
        per_step = self.per_step.get((run.task, run.method)) or self.per_step.get((run.task,)) or 1 / run.speed
        return per_step * max(run.steps - done, 0)


def time_left(runs: Sequence[Run], states: dict[str, RunProgress], rows: Iterable[dict[str, str]], jobs: int) -> float:
    """:return: Seconds until all are done; the longest single run is a lower limit"""
    forecast = Forecast(rows)
    # A run with other settings is repeated from the start.
    each = [forecast.seconds(run, 0 if states[run.name].other_settings else states[run.name].done) for run in runs]
    return max(sum(each) / jobs, max(each, default=0.0))


class Progress:
    """Keeps the table up to date during the runs and prints the progress at every new row."""

    def __init__(self, runs: Sequence[Run], output: OutputFolder, jobs: int):
        self.runs, self.output, self.jobs = runs, output, jobs
        self.last: dict[str, int] = {}
        self.next_look = 0.0

    def __call__(self, active: set[str], failed: set[str], jobs: int | None = None) -> None:
        """Print the state if it has changed; ``jobs`` is the number of runs at the same time from now on."""
        self.jobs = jobs or self.jobs
        if time.monotonic() < self.next_look and active:
            return
        self.next_look = time.monotonic() + 2
        states = {run.name: self.output.progress(run) for run in self.runs}
        done = {name: state.done for name, state in states.items()}
        if done == self.last:
            return
        news = [name for name in done if done[name] != self.last.get(name, 0)] if self.last else []
        self.last = done
        rows = self.output.merge()
        finished = sum(done[run.name] >= run.steps for run in self.runs)
        share = sum(min(done[run.name], run.steps) for run in self.runs) / sum(run.steps for run in self.runs)
        left = duration(time_left([run for run in self.runs if run.name not in failed], states, rows, self.jobs))
        for name in [name for name in news if states[name].rows]:
            row = states[name].rows[-1]
            any_time = f" (at any time {float(row['success_any_time']):.2f})" if row.get("success_any_time") else ""
            success = f"success {float(row['success']):.2f}{any_time}"
            print(f"{name}: step {row['step']}, {success}, final distance {float(row['final']):.4f}")
        text = f"{finished} of {len(self.runs)} runs, {share:.1%} of the steps, {len(active)} at work, {left} left"
        print(text + (f", {len(failed)} failed" if failed else ""), flush=True)


def status(runs: Sequence[Run], output: OutputFolder, jobs: int) -> str:
    """:return: The progress of each seed, by task and method"""
    states = {run.name: output.progress(run) for run in runs}
    cells: dict[tuple[str, str], list[str]] = {}
    finished = 0
    for run in sorted(runs, key=lambda run: run.seed):
        state = states[run.name]
        if state.other_settings:
            text = f"{run.seed}: other settings"
        elif state.passed(run):
            text = f"{run.seed}: no evaluation at {run.steps}"
        elif state.done >= run.steps:
            text = f"{run.seed}: done"
            finished += 1
        else:
            text = f"{run.seed}: {state.done / run.steps:.0%}" if state.done else f"{run.seed}: missing"
        cells.setdefault((run.task, run.method), []).append(text)
    width = max(len(f"{task}  {method}") for task, method in cells)
    lines = [f"{task + '  ' + method:{width}}  {', '.join(texts)}" for (task, method), texts in cells.items()]
    rows = [row for state in states.values() for row in state.rows]
    left = duration(time_left(runs, states, rows, jobs))
    lines.append(f"{finished} of {len(runs)} runs are done; about {left} left with {jobs} at a time")
    return "\n".join(lines)

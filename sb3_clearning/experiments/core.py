"""
The core's learning table: CLearning with its defaults on two tasks, five seeds each.

``python -m sb3_clearning.experiments core`` writes results/core.csv (a row per evaluation, as it comes) and results/core.md.
Tasks of other simulators go to tables of their own: ``core --tasks PandaReach-v3 --output results/panda.csv``.
"""

import importlib
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch as th
from stable_baselines3.common.callbacks import BaseCallback

from sb3_clearning import CLearning
from sb3_clearning.common.distances import EpisodeDistances
from sb3_clearning.common.evaluation import EVALUATION_SEED, N_ENVS_OF_TABLES, evaluate_goals
from sb3_clearning.experiments.tables.provenance import commit, versions
from sb3_clearning.experiments.tables.rows import Rows, add_columns, append_row, markdown, read_rows, spread, write_report
from sb3_clearning.experiments.tables.sweep import command_line


class Task(NamedTuple):
    """A task of the table, and the success rate that a run should reach."""

    env_id: str
    env_kwargs: dict[str, Any]
    steps: int
    threshold: float
    module: str = "gymnasium_robotics"  # registers the id


TASKS = {
    "FetchReach-v4": Task("FetchReach-v4", {}, 10_000, 0.95),
    "PointMaze_UMaze-v3": Task("PointMaze_UMaze-v3", {"continuing_task": True, "reset_target": False}, 30_000, 0.9),
    "PandaReach-v3": Task("PandaReach-v3", {}, 5_000, 0.95, "panda_gym"),
    "PandaPush-v3": Task("PandaPush-v3", {}, 50_000, 0.9, "panda_gym"),
    "PandaSlide-v3": Task("PandaSlide-v3", {}, 50_000, 0.9, "panda_gym"),
    "PandaPickAndPlace-v3": Task("PandaPickAndPlace-v3", {}, 50_000, 0.9, "panda_gym"),
}
CORE_TASKS = ("FetchReach-v4", "PointMaze_UMaze-v3")
EVALUATIONS = 5
FIELDS = [
    *("task", "seed", "step", "success", "success_any_time"),
    *EpisodeDistances._fields,
    *("seconds", "arguments", "evaluation_seed", "versions", "commit"),
]


class EvaluateAndRecord(BaseCallback):
    """Evaluates a few times per run, and appends a row with the constant columns to the table each time."""

    def __init__(self, task: Task, path: Path, constants: dict[str, Any]):
        super().__init__()
        self.task, self.path, self.constants = task, path, constants
        self.start = time.time()

    def _on_step(self) -> bool:
        if self.num_timesteps % (self.task.steps // EVALUATIONS) == 0:
            seed = self.constants["evaluation_seed"]
            make = partial(gym.make, self.task.env_id, **self.task.env_kwargs)
            measured = evaluate_goals(self.model, make, seed=seed, n_envs=N_ENVS_OF_TABLES)
            numbers = {key: round(value, 5) for key, value in measured.items() if key in FIELDS}
            row = {**self.constants, "step": self.num_timesteps, **numbers}
            append_row(self.path, {**row, "seconds": round(time.time() - self.start, 1)}, FIELDS)
        return True


def run_one(name: str, seed: int, path: Path, arguments: dict[str, Any], evaluation_seed: int = EVALUATION_SEED) -> None:
    """Do one run, with one thread."""
    task = TASKS[name]
    gym.register_envs(importlib.import_module(task.module))
    th.set_num_threads(1)
    settings = {"task": name, "seed": seed, "arguments": json.dumps(arguments), "evaluation_seed": evaluation_seed}
    constants = {**settings, "versions": versions(), "commit": commit()}
    env = gym.make(task.env_id, **task.env_kwargs)
    model = CLearning("MultiInputPolicy", env, seed=seed, **arguments)
    model.learn(task.steps, callback=EvaluateAndRecord(task, path, constants))


def evaluation_seed_of(row: dict[str, str]) -> int:
    """:return: The first evaluation episode's seed; rows from before it was recorded have the default"""
    return int(row.get("evaluation_seed") or EVALUATION_SEED)


def with_defaults(rows: Rows) -> Rows:
    """:return: The rows of CLearning with its defaults, on the usual evaluation episodes"""
    return [row for row in rows if row["arguments"] == "{}" and evaluation_seed_of(row) == EVALUATION_SEED]


def finished(rows: Rows, name: str, seed: int, arguments: dict[str, Any], evaluation_seed: int = EVALUATION_SEED) -> bool:
    """:return: Whether the table has the run's last row"""
    wanted = (name, str(seed), str(TASKS[name].steps), json.dumps(arguments), evaluation_seed)
    found = ((row["task"], row["seed"], row["step"], row["arguments"], evaluation_seed_of(row)) for row in rows)
    return wanted in found


def table(rows: Rows, last_only: bool = False) -> list[str]:
    """:return: The Markdown table of the runs with defaults, with ``last_only`` of their end alone"""
    rows = with_defaults(rows)
    any_time = any(row.get("success_any_time") for row in rows)
    header = ["task", "steps", "seeds", "success", "worst seed", "seeds at the threshold", "final distance"]
    header += ["initial distance", *(["success at any time"] if any_time else [])]
    lines = []
    for name, task in TASKS.items():
        every = task.steps if last_only else task.steps // EVALUATIONS
        for step in range(every, task.steps + 1, every):
            # A run that was restarted has its early rows twice: the newest counts.
            newest = {row["seed"]: row for row in rows if (row["task"], row["step"]) == (name, str(step))}
            if not newest:
                continue
            success, final, initial = ([float(row[key]) for row in newest.values()] for key in ("success", "final", "initial"))
            reached = f"{sum(value >= task.threshold for value in success)} of {len(success)} (≥ {task.threshold})"
            distances = [spread(final, 3), f"{statistics.mean(initial):.3f}"]
            lines.append([name, f"{step:,}", len(success), spread(success, 2), f"{min(success):.2f}", reached, *distances])
            if any_time:  # of the seeds that have it: older rows do not
                found = [float(row["success_any_time"]) for row in newest.values() if row.get("success_any_time")]
                lines[-1].append(spread(found, 2) if found else "–")
    return markdown(header, lines)


def write_table(rows: Rows, path: Path) -> None:
    """Write the Markdown report."""
    text = (
        "Made by `python -m sb3_clearning.experiments core`. Success over 50 evaluation episodes with seeds apart from "
        "training's; mean ± standard deviation over training seeds, and the worst seed. Distances in the task's own unit (m)."
    )
    write_report(path, "CLearning with its defaults", text, ["", *table(rows)], with_defaults(rows))


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("core", __doc__)
    parser.add_argument("--tasks", nargs="+", default=list(CORE_TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5, help="number of training seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="the first training seed; the next ones follow")
    parser.add_argument("--evaluation-seed", type=int, default=EVALUATION_SEED, help="the first evaluation episode's seed")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--arguments", type=json.loads, default={}, help="CLearning's arguments beyond the defaults, as JSON")
    parser.add_argument("--output", type=Path, default=Path("results/core.csv"))
    options = parser.parse_args(argv)
    rows = read_rows(options.output)
    runs = [(name, seed) for name in options.tasks for seed in range(options.first_seed, options.first_seed + options.seeds)]
    missing = [run for run in runs if not finished(rows, *run, options.arguments, options.evaluation_seed)]
    print(f"{len(runs) - len(missing)} of {len(runs)} runs are in {options.output}; {len(missing)} to do")
    if missing:
        add_columns(options.output, FIELDS)
    work = partial(run_one, path=options.output, arguments=options.arguments, evaluation_seed=options.evaluation_seed)
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for run, _ in zip(missing, pool.map(work, *zip(*missing, strict=True)), strict=True):
            print(f"finished: {run[0]}, seed {run[1]}", flush=True)
    rows = read_rows(options.output)
    if not options.arguments and options.evaluation_seed == EVALUATION_SEED and with_defaults(rows):
        write_table(rows, options.output.with_suffix(".md"))
        print(options.output.with_suffix(".md").read_text())

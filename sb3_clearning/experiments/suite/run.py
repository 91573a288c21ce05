"""One run: training with checkpoints, and evaluations that each write a row."""

import json
import math
import os
import threading
import time
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_clearning.checks import UsageError
from sb3_clearning.common.distances import EpisodeDistances
from sb3_clearning.common.evaluation import N_ENVS_OF_TABLES, evaluate_goals
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.experiments.suite import sb3_checkpoint
from sb3_clearning.experiments.suite.config import SEEDS_PER_RUN, Run, find_algorithm, make_env
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, LOCK_SECONDS, ROWS, rows_of, suite_lock, write_description
from sb3_clearning.experiments.tables.provenance import commit, versions
from sb3_clearning.experiments.tables.rows import write_rows
from sb3_clearning.runs.checkpoint import ResumableCheckpoint
from sb3_clearning.runs.random_states import preserved_random_states

#: The columns of the table.
FIELDS = [
    *("task", "method", "seed", "step", "success", "success_any_time", "initial_success"),
    *EpisodeDistances._fields,
    *("seconds", "steps_per_second", "cpu_seconds", "settings", "versions", "commit"),
]
#: Columns that older tables lack.
LATER_FIELDS = {"success_any_time", "cpu_seconds"}


class WholeRun(BaseCallback):
    """Stretches schedules over the steps of the whole run, of which ``learn`` does one segment."""

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def _on_training_start(self) -> None:
        self.model._total_timesteps = self.steps  # noqa: SLF001 (SB3 has no public name)

    def _on_step(self) -> bool:
        return True


class Evaluations(BaseCallback):
    """Writes a row for each evaluation that is due. An evaluation does not change the training."""

    def __init__(self, run: Run, folder: Path):
        super().__init__()
        self.run, self.folder = run, folder
        self._rows: list[dict[str, Any]] = list(rows_of(folder))
        self._start_segment(0)
        # Now, because the checkout may change during the run.
        self._origin = {"versions": versions(), "commit": commit()}

    @property
    def n_rows(self) -> int:
        """:return: How many evaluations have a row"""
        return len(self._rows)

    def due(self, step: int) -> list[int]:
        """:return: The evaluations that have no row yet"""
        done = int(self._rows[-1]["step"]) if self._rows else 0
        return [evaluation for evaluation in self.run.evaluations() if done < evaluation <= step]

    def begin(self) -> None:
        """Call this when training starts or resumes."""
        # A checkpoint may be one evaluation ahead of its row, not more.
        lost = self.due(self.model.num_timesteps)[:-1]
        if lost:
            raise ValueError(
                f"{self.folder / ROWS} has no rows of the steps {lost}, which the checkpoint has passed: move the run's "
                "folder away to repeat the run."
            )
        self._start_segment(self.model.num_timesteps)

    def _start_segment(self, step: int) -> None:
        self._since, self._cpu_since, self._from_step = time.perf_counter(), time.process_time(), step

    def _on_training_start(self) -> None:
        self.begin()

    def _on_rollout_start(self) -> None:
        self.evaluate()

    def _on_training_end(self) -> None:
        self.evaluate()

    def _on_step(self) -> bool:
        return True

    def evaluate(self) -> None:
        """Evaluate and write the rows that are due."""
        for step in self.due(self.model.num_timesteps):
            training, cpu = time.perf_counter() - self._since, time.process_time() - self._cpu_since
            steps = self.model.num_timesteps - self._from_step
            with preserved_random_states(self.model.action_space):
                make, episodes, seed = partial(make_env, self.run), self.run.episodes, self.run.evaluation_seed
                measured = evaluate_goals(self.model, make, episodes, seed, N_ENVS_OF_TABLES)
            before = float(self._rows[-1]["seconds"]) if self._rows else 0.0
            self._rows.append(
                {
                    "task": self.run.task,
                    "method": self.run.method,
                    "seed": self.run.seed,
                    "step": step,
                    **{name: round(value, 5) for name, value in measured.items() if not math.isnan(value)},
                    "seconds": round(before + time.perf_counter() - self._since, 1),
                    # Unknown if the process that trained was killed between the checkpoint and the row.
                    "steps_per_second": round(steps / training, 1) if steps else "",
                    "cpu_seconds": self._cpu_seconds(step, steps, cpu),
                    "settings": json.dumps(self.run.settings(), sort_keys=True),
                    **self._origin,
                }
            )
            write_rows(self.folder / ROWS, self._rows, FIELDS)
            success = f"success {measured['success']:.2f} (at any time {measured['success_any_time']:.2f})"
            print(f"{self.run.name}: step {step}, {success}, final distance {measured['final']:.4f}", flush=True)
            self._start_segment(self.model.num_timesteps)

    def _cpu_seconds(self, step: int, n_steps: int, seconds: float) -> float | str:
        """:return: The processor time of the run's training so far; "" if a process that did part of it was killed"""
        before = self._rows[-1] if self._rows else {"step": 0, "cpu_seconds": 0.0}
        if n_steps < step - int(before["step"]) or before.get("cpu_seconds", "") == "":
            return ""
        return round(float(before["cpu_seconds"]) + seconds, 1)


def execute(run: Run, folder: Path, lock_seconds: float = LOCK_SECONDS) -> None:
    """
    Do a run, or what is missing of it. An interrupted run has the same rows as an uninterrupted one.

    :param lock_seconds: How long to wait for another process that has the run
    """
    th.set_num_threads(1)
    with suite_lock(folder, lock_seconds):
        rows = rows_of(folder)
        if any(not run.has_settings_of(row) for row in rows):
            raise UsageError(f"{folder} has rows of other settings: repeat the run with --redo, or choose another --output.")
        write_description(run, folder)  # rows never exist without the settings that made them
        if rows and int(rows[-1]["step"]) >= run.steps:
            return
        algorithm = find_algorithm(run.algorithm, run.method)
        learn = _learn if issubclass(algorithm, GoalAlgorithm) else _learn_in_segments
        learn(run, folder, algorithm)


def _learn(run: Run, folder: Path, algorithm: type[GoalAlgorithm]) -> None:
    env, resumable = make_env(run), ResumableCheckpoint(folder / CHECKPOINTS, every=run.evaluate_every)
    if resumable.exists():
        model = algorithm.resume(resumable.folder, env)
    else:
        model = algorithm("MultiInputPolicy", env, seed=run.seed * SEEDS_PER_RUN, **deepcopy(run.arguments))
    # The checkpoint first: a run with all its rows also has its last model.
    model.learn(run.steps, callback=[resumable, Evaluations(run, folder)])
    env.close()


def _learn_in_segments(run: Run, folder: Path, algorithm: type[OffPolicyAlgorithm]) -> None:
    """
    Algorithms of SB3 cannot resume in the middle of a run. So every segment between two evaluations starts in the same way,
    in a running process and in a new one: with the checkpoint from disk, a reset environment, and generators seeded by the
    run's seed and the segment's number.
    """
    checkpoints = folder / CHECKPOINTS
    evaluations = Evaluations(run, folder)
    for step in evaluations.due(run.steps):
        # Counted by rows: a run that is extended may have an evaluation where it ended before.
        env, seed = make_env(run), run.seed * SEEDS_PER_RUN + evaluations.n_rows
        model = sb3_checkpoint.load(checkpoints, algorithm, env)
        if model is None:
            model = algorithm("MultiInputPolicy", env, seed=seed, **deepcopy(run.arguments))
        evaluations.init_callback(model)
        evaluations.begin()
        if model.num_timesteps < step:
            model.set_random_seed(seed)
            model.learn(step - model.num_timesteps, callback=WholeRun(run.steps), reset_num_timesteps=False)
            sb3_checkpoint.save(checkpoints, model)
        evaluations.evaluate()
        env.close()


def end_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone (it may be already), so that no run continues unseen."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

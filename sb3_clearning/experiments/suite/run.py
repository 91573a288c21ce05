"""One run: segments of training, each with an evaluation, a row and a checkpoint at its end."""

import contextlib
import dataclasses
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_clearning.distances import EpisodeDistances
from sb3_clearning.evaluation import evaluate_goals
from sb3_clearning.experiments.provenance import commit, versions
from sb3_clearning.experiments.suite import checkpoint
from sb3_clearning.experiments.suite.config import SEEDS_PER_RUN, Run, find_algorithm

#: The columns of the table.
FIELDS = [
    *("task", "method", "seed", "step", "success"),
    *EpisodeDistances._fields,
    *("seconds", "steps_per_second", "arguments", "versions", "commit"),
]
#: How long to wait for a process that has the run and is about to end.
LOCK_SECONDS = 15.0


class WholeRun(BaseCallback):
    """
    Lets schedules run over the whole run, of which ``learn`` does a segment. A callback that ended ``learn`` earlier would
    lose the step at which it does.

    :param steps: The steps of the run
    """

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def _on_training_start(self) -> None:
        self.model._total_timesteps = self.steps

    def _on_step(self) -> bool:
        return True


class RunIsTaken(RuntimeError):
    """Another process works on the run."""


@contextlib.contextmanager
def taken(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """
    Hold a run's folder. The lock ends with the process, however that ends.

    :param folder: The run's folder
    :param seconds: How long to wait for another process
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RunIsTaken(f"Another process works on {folder}.") from error
                time.sleep(0.2)
        yield


def make_env(run: Run) -> gym.Env:
    """
    :param run: A run
    :return: Its environment
    """
    import sb3_clearning.envs  # noqa: F401 (registers the paper's tasks)

    return gym.make(run.env, **run.env_kwargs)


def write_description(run: Run, folder: Path) -> None:
    """
    :param run: A run
    :param folder: Its folder, which gets its description for the process that will do it
    """
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f".run.{os.getpid()}"
    half.write_text(json.dumps(dataclasses.asdict(run), indent=1))
    half.replace(folder / "run.json")


def read_description(folder: Path) -> Run | None:
    """
    :param folder: A run's folder
    :return: Its description, or None
    """
    path = folder / "run.json"
    return Run(**json.loads(path.read_text())) if path.exists() else None


def execute(run: Run, folder: Path, lock_seconds: float = LOCK_SECONDS) -> None:
    """
    Do a run, or what is missing of it.

    Every segment, between two evaluations, begins in the same way, whether the process goes on or is a new one: with the
    checkpoint from the disk, a reset environment and generators seeded by the run's seed and the segment's number. So a run
    that was interrupted has the same rows as one that was not.

    :param run: The run
    :param folder: Its folder
    :param lock_seconds: How long to wait for another process that has the run
    """
    th.set_num_threads(1)
    with taken(folder, lock_seconds):
        write_description(run, folder)  # rows never lie without the settings that made them
        for step in run.evaluations():
            rows: list[dict[str, Any]] = list(checkpoint.rows_of(folder))
            if not rows or int(rows[-1]["step"]) < step:
                _segment(run, folder, step, rows)


def _segment(run: Run, folder: Path, step: int, rows: list[dict[str, Any]]) -> None:
    start = time.perf_counter()
    algorithm = find_algorithm(run.algorithm, run.method)
    env = make_env(run)
    seed = run.seed * SEEDS_PER_RUN + len(rows)
    model: OffPolicyAlgorithm | None = checkpoint.load(folder, algorithm, env)
    if model is None:
        model = algorithm("MultiInputPolicy", env, seed=seed, **run.arguments)
        assert model is not None
    model.set_random_seed(seed)
    done = model.num_timesteps
    training = time.perf_counter()
    model.learn(step - done, callback=WholeRun(run.steps), reset_num_timesteps=False)
    speed = (model.num_timesteps - done) / (time.perf_counter() - training)
    measured = evaluate_goals(model, lambda: make_env(run), run.episodes)
    rows.append(
        {
            "task": run.task,
            "method": run.method,
            "seed": run.seed,
            "step": step,
            **{name: round(value, 5) for name, value in measured.items()},
            "seconds": round(float(rows[-1]["seconds"] if rows else 0) + time.perf_counter() - start, 1),
            "steps_per_second": round(speed, 1),
            "arguments": json.dumps(run.arguments, sort_keys=True),
            "versions": versions(),
            "commit": commit(),
        }
    )
    checkpoint.save(folder, model, rows)
    env.close()
    print(f"{run.name}: step {step}, success {measured['success']:.2f}, final distance {measured['final']:.4f}", flush=True)


def end_with_parent() -> None:
    """End this process when the one that started it is gone, killed or not, so that no run goes on unseen."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

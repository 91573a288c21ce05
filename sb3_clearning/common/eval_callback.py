"""Evaluation during training: success and distances, the best model, an early stop."""

import csv
import io
import pathlib
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, EventCallback

from sb3_clearning.checks import check_number
from sb3_clearning.common.evaluation import (
    EVALUATION_SEED,
    RESULT_KEYS,
    EnvOrMaker,
    EpisodeRecord,
    are_trained_in,
    make_environments,
    run_episodes,
)
from sb3_clearning.files.array_file import write_whole

#: The columns of evaluations.csv.
COLUMNS = ("timesteps", *RESULT_KEYS, "mean_reward", "mean_ep_length")


class GoalEvalCallback(EventCallback):
    """
    Evaluate as :func:`~sb3_clearning.evaluate_goals` does, with the same goals each time::

        model.learn(50_000, callback=GoalEvalCallback(gym.make("FetchReach-v4"), eval_freq=1_000, log_path="logs"))

    Success and distances go to the logger (``eval/success_rate``, ``eval/final_distance``, …), so to TensorBoard, too. The
    best model has the largest success rate; among equal ones, the smallest final distance.

    :param env: An environment that is not used for training, a function that makes one, or a VecEnv
    :param eval_freq: Evaluate after this many calls of the callback; with n training environments a call is n steps
    :param n_envs: Number of environments, if there is an id or a function to make them
    :param log_path: A folder for evaluations.csv (means) and evaluations.npz (episodes, with the names of SB3's EvalCallback).
        A run that continues keeps the rows of evaluations.csv
    :param best_model_save_path: A folder for best_model.zip
    :param stop_at_success: End the training at this success rate
    :param callback_on_new_best: Called when there is a new best model
    :param callback_after_eval: Called after every evaluation
    :param verbose: 1 prints a line for each evaluation
    """

    def __init__(
        self,
        env: EnvOrMaker,
        eval_freq: int = 10_000,
        n_eval_episodes: int = 20,
        n_envs: int = 1,
        seed: int = EVALUATION_SEED,
        log_path: str | pathlib.Path | None = None,
        best_model_save_path: str | pathlib.Path | None = None,
        stop_at_success: float | None = None,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        verbose: int = 1,
    ):
        check_number("eval_freq", eval_freq, 1, whole=True)
        check_number("n_eval_episodes", n_eval_episodes, 1, whole=True)
        check_number("seed", seed, 0, whole=True)
        if stop_at_success is not None:
            check_number("stop_at_success", stop_at_success, 0, 1)
        super().__init__(callback_after_eval, verbose=verbose)
        self.envs = make_environments(env, n_envs, n_eval_episodes)
        self.eval_freq, self.n_eval_episodes, self.seed = eval_freq, n_eval_episodes, seed
        self.log_path = None if log_path is None else pathlib.Path(log_path)
        self.best_model_save_path = None if best_model_save_path is None else pathlib.Path(best_model_save_path)
        self.stop_at_success = stop_at_success
        self.callback_on_new_best = callback_on_new_best
        if callback_on_new_best is not None:
            callback_on_new_best.parent = self
        #: One dict for each evaluation, with :data:`COLUMNS`.
        self.evaluations: list[dict[str, float]] = []
        #: The best evaluation so far.
        self.best: dict[str, float] | None = None
        #: What callbacks for SB3's EvalCallback read, such as StopTrainingOnRewardThreshold.
        self.best_mean_reward = self.last_mean_reward = -np.inf
        self._episodes: dict[str, list[list[float]]] = {}

    def _init_callback(self) -> None:
        super()._init_callback()
        if are_trained_in(self.model, self.envs):
            raise ValueError("`env` is the training environment: GoalEvalCallback needs another one.")
        for folder in (self.log_path, self.best_model_save_path):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)
        if not self.evaluations and self.log_path is not None and self.model.num_timesteps > 0:
            self._read_rows(self.log_path / "evaluations.csv")

    def _read_rows(self, path: pathlib.Path) -> None:
        """Continue the table of a run that was loaded or resumed."""
        if not path.exists():
            return
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise ValueError(f"{path} is not a table of evaluations: move it, or use another `log_path`.")
            rows = [
                {**{name: float(value) for name, value in row.items()}, "timesteps": int(row["timesteps"])} for row in reader
            ]
        for row in rows:
            if row["timesteps"] <= self.model.num_timesteps:
                self._remember(row)

    def _on_step(self) -> bool:
        if self.n_calls % self.eval_freq:
            return True
        record = run_episodes(self.model, self.envs, self.n_eval_episodes, self.seed)
        row = {
            "timesteps": self.num_timesteps,
            **record.result(),
            "mean_reward": float(np.mean(record.rewards)),
            "mean_ep_length": float(np.mean(record.lengths)),
        }
        if self.stop_at_success is not None and np.isnan(row["success"]):
            raise ValueError("`stop_at_success` needs an environment with `is_success` or `success` in its info.")
        is_best = self._remember(row)
        self._log(row, is_best)
        self._write(record)
        keep_training = self.stop_at_success is None or row["success"] < self.stop_at_success
        if is_best:
            if self.best_model_save_path is not None:
                self.model.save(self.best_model_save_path / "best_model")
            if self.callback_on_new_best is not None:
                keep_training = self.callback_on_new_best.on_step() and keep_training
        if self.callback is not None:
            keep_training = self._on_event() and keep_training
        return keep_training

    def _remember(self, row: dict[str, float]) -> bool:
        """:return: Whether it is the best evaluation so far"""
        self.evaluations.append(row)
        self.last_mean_reward = row["mean_reward"]
        self.best_mean_reward = max(self.best_mean_reward, row["mean_reward"])
        if self.best is not None and _quality(row) <= _quality(self.best):
            return False
        self.best = row
        return True

    def _log(self, row: dict[str, float], is_best: bool) -> None:
        names = {
            "success": "success_rate",
            **{name: f"{name}_distance" for name in ("initial", "final", "minimum", "average")},
        }
        for name in COLUMNS[1:]:
            if not np.isnan(row[name]):
                self.logger.record(f"eval/{names.get(name, name)}", row[name])
        if self.verbose >= 1:
            success = "" if np.isnan(row["success"]) else f"Success rate: {100 * row['success']:.2f}%, "
            best = " (best so far)" if is_best else ""
            distances = f"Final distance: {row['final']:.4f}, minimum: {row['minimum']:.4f}, average: {row['average']:.4f}"
            print(f"Eval num_timesteps={self.num_timesteps}. {success}{distances}{best}")
        # At once, so that the results are printed with their own number of steps.
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)

    def _write(self, record: EpisodeRecord) -> None:
        if self.log_path is None:
            return
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, COLUMNS)
        writer.writeheader()
        writer.writerows(self.evaluations)
        write_whole(self.log_path / "evaluations.csv", table.getvalue().encode())
        measured: dict[str, list[Any]] = {
            "timesteps": [self.num_timesteps],
            "results": [record.rewards],
            "ep_lengths": [record.lengths],
            "distances": [record.final_distances],
        }
        if not np.isnan(record.successes).any():
            measured.update(successes=[np.array(record.successes, bool)], successes_any_time=[np.array(record.any_time, bool)])
        for name, values in measured.items():
            self._episodes.setdefault(name, []).extend(values)
        arrays = io.BytesIO()
        np.savez(arrays, **{name: np.array(values) for name, values in self._episodes.items()})  # type: ignore[arg-type]
        write_whole(self.log_path / "evaluations.npz", arrays.getvalue())


def _quality(row: dict[str, float]) -> tuple[float, float]:
    """:return: What the best model has the largest of"""
    return (-1.0 if np.isnan(row["success"]) else row["success"]), -row["final"]

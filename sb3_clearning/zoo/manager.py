"""rl-zoo3's ExperimentManager for our algorithms. Other algorithms keep rl-zoo3's own."""

import copy
from collections.abc import Iterable
from typing import Any

import optuna
import yaml
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.utils import get_callback_list
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.vec_env import VecEnv

from sb3_clearning.checks import UsageError, check_number
from sb3_clearning.runs.checkpoint import ResumableCheckpoint
from sb3_clearning.zoo.algorithms import algorithms
from sb3_clearning.zoo.configurations import find_configuration
from sb3_clearning.zoo.monitoring import InsideMonitor, goal_evaluation
from sb3_clearning.zoo.preflight import WRONG_VALUE, check_hyperparams, check_learning_rate, preflight, reason
from sb3_clearning.zoo.search import SEARCH_ATTRIBUTE, arguments_of, check_parts, default_parts
from sb3_clearning.zoo.storage import load_study, open_storage


def find_checkpoint(callbacks: Iterable[BaseCallback]) -> ResumableCheckpoint | None:
    """:return: The callback whose folder has a checkpoint to resume from"""
    found = (callback for callback in callbacks if isinstance(callback, ResumableCheckpoint) and callback.exists())
    return next(found, None)


class GoalExperimentManager(ExperimentManager):
    """ExperimentManager with our configurations, early and readable errors, goal columns in the logs, and resumable runs."""

    def read_hyperparameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """:return: The hyperparameters from our configurations, the file or the study, and those to save"""
        self.config = find_configuration(self.algo, self.config)
        if self.storage and self.study_name and self.trial_id == 0:  # which rl-zoo3 takes for "no trial"
            print("Loading from Optuna study...")
            trial = self.load_trial(self.storage, self.study_name, self.trial_id)
            self.custom_hyperparams = {**trial, **(self.custom_hyperparams or {})}
        try:
            hyperparams, saved = super().read_hyperparameters()
        except UsageError:
            raise
        except yaml.YAMLError as error:
            raise UsageError(f"{self.config} is not valid YAML: {' '.join(str(error).split())}") from error
        except (AttributeError, TypeError) as error:
            raise UsageError(
                f"{self.config} must map env ids (or `default`) to hyperparameters, as in {self.algo}.yml of sb3_clearning."
            ) from error
        except (ValueError, LookupError, ImportError, OSError, SyntaxError) as error:
            raise UsageError(f"The configuration {self.config} cannot be used. {reason(error)}") from error
        if "n_timesteps" not in hyperparams and self.n_timesteps <= 0:
            raise UsageError(f"{self.config} has no `n_timesteps` for {self.env_name.gym_id}: add it, or use `-n`.")
        if "policy" not in hyperparams:
            raise UsageError(f"{self.config} has no `policy` for {self.env_name.gym_id}: add `policy: MultiInputPolicy`.")
        hyperparams.setdefault("n_timesteps", self.n_timesteps)
        return hyperparams, saved

    def load_trial(self, storage: str, study_name: str, trial_id: int | None = None, convert: bool = True) -> dict[str, Any]:
        """:return: A trial's hyperparameters. A mistyped storage is an error; Optuna would create it"""
        load_study(storage, study_name)
        try:
            return super().load_trial(storage, study_name, trial_id, convert)
        except (IndexError, ValueError) as error:
            number = "complete trial" if trial_id is None else f"trial {trial_id}"
            raise UsageError(f"The study {study_name!r} in {storage} has no {number}.") from error

    def _preprocess_hyperparams(self, hyperparams: dict[str, Any]) -> tuple[Any, ...]:
        parts = hyperparams.pop(SEARCH_ATTRIBUTE, None)
        check_learning_rate(hyperparams.get("learning_rate"))
        try:
            hyperparams, self.env_wrapper, callbacks, self.vec_env_wrapper = super()._preprocess_hyperparams(hyperparams)
            if self._eval_env_kwargs_args is None:
                self.eval_env_kwargs = self.env_kwargs  # rl-zoo3 does this for arguments of the command line only
            self.monitor_kwargs = dict(self.monitor_kwargs or {})
            check_number("n_envs", self.n_envs, 1, whole=True)
            check_number("n_timesteps", self.n_timesteps, 1, whole=True)
        except (*WRONG_VALUE, SyntaxError, NameError, ImportError) as error:
            raise UsageError(f"{self.algo} cannot use these hyperparameters. {reason(error)}") from error
        check_hyperparams(self.algo, hyperparams)
        try:
            self.search_parts = default_parts(self.algo) if parts is None else check_parts(self.algo, parts)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if self.optimize_hyperparameters:
            self._check_search(hyperparams)
        checkpoint = find_checkpoint(callbacks)
        if self.trained_agent and checkpoint is not None and not self.optimize_hyperparameters:
            raise UsageError(f"{checkpoint.folder} already holds a run: omit `-i` to resume it, or choose another folder.")
        if self.vec_env_wrapper is None:  # a VecEnvWrapper may add infos that a single env does not have
            self.env_wrapper = InsideMonitor(self.env_wrapper)
        keys = preflight(self, hyperparams, arguments_of(self.search_parts) if self.optimize_hyperparameters else [])
        if self.vec_env_wrapper is None:
            self.monitor_kwargs["info_keywords"] = tuple(self.monitor_kwargs.get("info_keywords", keys))
        return hyperparams, self.env_wrapper, callbacks, self.vec_env_wrapper

    def _check_search(self, hyperparams: dict[str, Any]) -> None:
        given = [argument for argument in arguments_of(self.search_parts) if argument in (self.custom_hyperparams or {})]
        if given:
            print(f"-params has no effect on {', '.join(given)}: the trials draw their own. `search` names the parts.")
        policy_kwargs = hyperparams.get("policy_kwargs")
        lost = set(policy_kwargs) - {"net_arch"} if isinstance(policy_kwargs, dict) else set()
        if "net_arch" in self.search_parts and lost:
            raise UsageError(
                f"A search for `net_arch` would overwrite `policy_kwargs` ({', '.join(sorted(lost))}): search other parts."
            )

    def create_log_folder(self) -> None:
        """Create the run folder, but not for a search: it saves no model, and `enjoy` would pick its folder."""
        if not self.optimize_hyperparameters:
            super().create_log_folder()

    def create_envs(self, n_envs: int, eval_env: bool = False, no_log: bool = False) -> VecEnv:
        """:return: The environments; a search writes no monitor files"""
        return super().create_envs(n_envs, eval_env=eval_env, no_log=no_log or self.optimize_hyperparameters)

    def create_callbacks(self) -> None:
        """Create rl-zoo3's callbacks; evaluations measure distances, too."""
        super().create_callbacks()
        self.callbacks = [
            goal_evaluation(callback) if type(callback) is EvalCallback else callback for callback in self.callbacks
        ]
        if not self.optimize_hyperparameters and find_checkpoint(self.callbacks):
            self.continue_training = True  # rl-zoo3 then calls `_load_pretrained_agent`

    def _load_pretrained_agent(self, hyperparams: dict[str, Any], env: VecEnv) -> Any:
        checkpoint = find_checkpoint(self.callbacks)
        if checkpoint is None:
            return super()._load_pretrained_agent(hyperparams, env)
        print(f"Resuming from the checkpoints in {checkpoint.folder}")
        # `hyperparams` has what a checkpoint does not hold, such as schedules.
        arguments = {"tensorboard_log": self.tensorboard_log, "verbose": self.verbose, **hyperparams}
        algorithm: Any = algorithms()[self.algo]
        try:
            return algorithm.resume(checkpoint.folder, env, device=self.device, **arguments)
        except (ValueError, RuntimeError) as error:
            raise UsageError(f"The run in {checkpoint.folder} cannot be resumed. {error}") from error

    def objective(self, trial: optuna.Trial) -> float:
        """:return: The mean evaluation reward of a trial, whose checkpoints get their own subfolder"""
        trial.set_user_attr(SEARCH_ATTRIBUTE, self.search_parts)
        own = copy.copy(self)  # trials of one study may run in several threads
        own.specified_callbacks = [
            callback.subfolder(f"trial_{trial.number}") if isinstance(callback, ResumableCheckpoint) else callback
            for callback in get_callback_list({"callback": self.specified_callbacks})
        ]
        return super(GoalExperimentManager, own).objective(trial)

    def hyperparameters_optimization(self) -> None:
        """Run the search. Workers that start together may create the storage at the same moment."""
        if self.storage is not None:
            open_storage(self.storage)
        super().hyperparameters_optimization()

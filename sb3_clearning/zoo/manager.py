"""What rl-zoo3's ExperimentManager does differently for our algorithms: other algorithms run its own code, untouched."""

import difflib
import functools
import inspect
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import optuna
import yaml
from sqlalchemy.exc import SQLAlchemyError
from stable_baselines3.common.callbacks import EvalCallback

from sb3_clearning.goal_spaces import check_action_space, check_goal_space
from sb3_clearning.zoo.checkpoints import (
    callbacks_of_the_trial,
    checkpoint_to_go_on_from,
    resume_run,
    trial_folders,
)
from sb3_clearning.zoo.goal_logs import GoalColumns, GoalEnvMaker, GoalEvalCallback
from sb3_clearning.zoo.input_error import InputError
from sb3_clearning.zoo.registration import algorithms
from sb3_clearning.zoo.search import SEARCH_ATTRIBUTE, arguments_of, check_parts, default_parts

#: The columns of monitor.csv beyond SB3's own; `is_success` only where the env says so.
SUCCESS, DISTANCE = "is_success", "distance"

#: How often a storage is tried before it counts as out of reach.
STORAGE_ATTEMPTS = 8


def configuration_folder(name: str) -> Path:
    """
    :param name: "hyperparams" or "zoo_configs"
    :return: the folder, within the installed package, or beside the package in a checkout
    """
    package = Path(__file__).resolve().parent.parent
    return package / name if (package / name).is_dir() else package.parent / name


def find_configuration(algo: str, config: str) -> str:
    """
    :param algo: the algorithm's name in rl-zoo3
    :param config: a path, a Python module, the name of one of our files, or rl-zoo3's own file, which does not exist
    :return: the configuration to read
    """
    path = Path(config)
    if path.suffix not in (".yml", ".yaml", ".py") or path.is_file():
        return config
    ours = {file.name: file for folder in ("hyperparams", "zoo_configs") for file in configuration_folder(folder).glob("*.*")}
    if path.name not in ours:
        raise InputError(f"There is no configuration {config} for {algo}. Files of sb3_clearning: {', '.join(sorted(ours))}")
    return str(ours[path.name])


def check_hyperparams(algo: str, hyperparams: dict[str, Any]) -> None:
    """
    :param algo: the algorithm's name in rl-zoo3
    :param hyperparams: what rl-zoo3 is about to pass to the algorithm
    """
    known = [name for name in inspect.signature(algorithms()[algo].__init__).parameters if not name.startswith(("_", "self"))]
    # rl-zoo3 makes the action noise of this one.
    known.append("noise_type")
    for name in hyperparams:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(sorted(known))}"
            raise InputError(f"{algo} has no hyperparameter `{name}`: {hint}")


def look_at_env(algo: str, env_id: str, make: Callable[..., gym.Env], env_kwargs: dict[str, Any]) -> list[str]:
    """
    Make the env once and take a step, before any run folder is made for it.

    :param algo: the algorithm's name in rl-zoo3
    :param env_id: the env's id
    :param make: makes the env, with all wrappers
    :param env_kwargs: the env's arguments
    :return: what every info of the env has out of ``is_success`` and ``distance``
    """
    env = make(**env_kwargs)
    try:
        check_goal_space(env.observation_space)
        check_action_space(env.action_space)
        env.reset(seed=0)
        info = env.step(env.action_space.sample())[-1]
    except ValueError as error:
        raise InputError(f"{algo} can not learn on {env_id}. {error}") from error
    finally:
        env.close()
    return [key for key in (SUCCESS, DISTANCE) if key in info]


def _extended(original: Callable[..., Any], extension: Callable[..., Any]) -> Callable[..., Any]:
    """
    :param original: a method of ExperimentManager
    :param extension: what is called in its place for our algorithms, with the original method as its first argument
    :return: the method to put in its place
    """

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.algo not in algorithms():
            return original(self, *args, **kwargs)
        return extension(functools.partial(original, self), self, *args, **kwargs)

    return method


def _read_hyperparameters(original: Callable[..., Any], self: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our default hyperparameters; an error of the file in one line; `--trial-id 0`, which rl-zoo3 takes for none."""
    self.config = find_configuration(self.algo, self.config)
    if self.storage and self.study_name and self.trial_id == 0:
        print("Loading from Optuna study...")
        trial = self.load_trial(self.storage, self.study_name, self.trial_id)
        self.custom_hyperparams = {**trial, **(self.custom_hyperparams or {})}
    try:
        hyperparams, saved = original()
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{self.config} is not valid YAML: {reason}") from error
    except AttributeError as error:
        raise InputError(
            f"{self.config} must map env ids (or `default`) to hyperparameters, as in {self.algo}.yml of sb3_clearning."
        ) from error
    if "n_timesteps" not in hyperparams and self.n_timesteps <= 0:
        raise InputError(f"{self.config} has no `n_timesteps` for {self.env_name.gym_id}: add it, or use `-n`.")
    hyperparams.setdefault("n_timesteps", self.n_timesteps)
    return hyperparams, saved


def _preprocess_hyperparams(original: Callable[..., Any], self: Any, hyperparams: dict[str, Any]) -> tuple[Any, ...]:
    """Find what can not work before a run folder is made, and what the Monitor can log."""
    parts = hyperparams.pop(SEARCH_ATTRIBUTE, None)
    hyperparams, env_wrapper, callbacks, vec_env_wrapper = original(hyperparams)
    check_hyperparams(self.algo, hyperparams)
    try:
        self.search_parts = default_parts(self.algo) if parts is None else check_parts(self.algo, parts)
    except ValueError as error:
        raise InputError(str(error)) from error
    given = [argument for argument in arguments_of(self.search_parts) if argument in (self.custom_hyperparams or {})]
    if self.optimize_hyperparameters and given:
        print(f"-params has no effect on {', '.join(given)}: the trials draw their own. `search` names the parts.")
    lost = set(hyperparams.get("policy_kwargs") or {}) - {"net_arch"}
    if self.optimize_hyperparameters and "net_arch" in self.search_parts and lost:
        raise InputError(
            f"A search for `net_arch` would replace `policy_kwargs` ({', '.join(sorted(lost))}): name other parts."
        )

    if vec_env_wrapper is None:  # which could make goals that a single env does not have
        env_id = self.env_name.gym_id
        make = GoalEnvMaker(gym.spec(env_id).make, env_wrapper)
        keys = look_at_env(self.algo, env_id, make, self.env_kwargs)
        self.monitor_kwargs = {
            **self.monitor_kwargs,
            "info_keywords": GoalColumns(self.monitor_kwargs.get("info_keywords", keys)),
        }
    return hyperparams, env_wrapper, callbacks, vec_env_wrapper


def _create_log_folder(original: Callable[..., None], self: Any) -> None:
    """No run folder for a search, which saves no model: `enjoy` would take it for the latest run."""
    if not self.optimize_hyperparameters:
        original()


def _create_envs(original: Callable[..., Any], self: Any, n_envs: int, eval_env: bool = False, no_log: bool = False) -> Any:
    return original(n_envs, eval_env=eval_env, no_log=no_log or self.optimize_hyperparameters)


def _create_callbacks(original: Callable[..., None], self: Any) -> None:
    original()
    self.callbacks = [
        GoalEvalCallback.in_place_of(callback) if type(callback) is EvalCallback else callback for callback in self.callbacks
    ]
    if not self.optimize_hyperparameters and checkpoint_to_go_on_from(self.callbacks):
        self.continue_training = True  # rl-zoo3 asks for the agent to go on with


def _load_pretrained_agent(original: Callable[..., Any], self: Any, hyperparams: dict[str, Any], env: Any) -> Any:
    checkpoint = checkpoint_to_go_on_from(self.callbacks)
    if checkpoint is None:
        return original(hyperparams, env)
    if self.trained_agent:
        raise InputError(f"{checkpoint.folder} already holds a run: leave `-i` out to go on with it, or name another folder.")
    print(f"Going on from the checkpoints in {checkpoint.folder}")
    return resume_run(algorithms()[self.algo], checkpoint, self, hyperparams, env)


def _objective(original: Callable[..., float], self: Any, trial: Any) -> float:
    trial.set_user_attr(SEARCH_ATTRIBUTE, self.search_parts)
    with trial_folders(trial.number):
        return original(trial)


def open_storage(storage: str) -> None:
    """
    Make the tables of a new Optuna storage. Of two workers that do so at the same moment one gets an error, and only has to
    look again.

    :param storage: the address of a database, or a journal's path, for which there is nothing to do
    """
    if "://" not in storage:
        return
    for attempt in range(STORAGE_ATTEMPTS):
        try:
            optuna.storages.RDBStorage(storage).remove_session()
            return
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            if attempt == STORAGE_ATTEMPTS - 1:
                reason = str(error).splitlines()[0]
                raise InputError(f"The Optuna storage {storage} can not be opened: {reason}") from error
            time.sleep(random.uniform(0.2, 1.0))
        except ImportError as error:
            raise InputError(
                f"The Optuna storage {storage} needs its database's driver: {error.__cause__ or error}"
            ) from error


def _hyperparameters_optimization(original: Callable[..., None], self: Any) -> None:
    if self.storage is not None:
        open_storage(self.storage)
    original()


def _make_goal_vec_env(original: Callable[..., Any], env_id: Any, **kwargs: Any) -> Any:
    """
    The Monitor around all wrappers, for our algorithms: a wrapper that makes the goals (GoalFromObservation) makes the
    rewards, too, and those are what evaluations and studies have to see.
    """
    if isinstance((kwargs.get("monitor_kwargs") or {}).get("info_keywords"), GoalColumns):
        env_id = GoalEnvMaker(env_id, kwargs.pop("wrapper_class", None))
    return original(env_id, **kwargs)


def extend_manager(exp_manager: ModuleType) -> None:
    """
    Change ExperimentManager for our algorithms. A second call changes nothing.

    :param exp_manager: the module `rl_zoo3.exp_manager`
    """
    manager = exp_manager.ExperimentManager
    if getattr(manager, "_extended_by_sb3_clearning", False):
        return
    extensions: dict[str, Callable[..., Any]] = {
        "read_hyperparameters": _read_hyperparameters,
        "_preprocess_hyperparams": _preprocess_hyperparams,
        "create_log_folder": _create_log_folder,
        "create_envs": _create_envs,
        "create_callbacks": _create_callbacks,
        "_load_pretrained_agent": _load_pretrained_agent,
        "objective": _objective,
        "hyperparameters_optimization": _hyperparameters_optimization,
    }
    # All are looked up before any is changed: a version of rl-zoo3 that lacks one stays as it is.
    changed = {name: _extended(getattr(manager, name), extension) for name, extension in extensions.items()}
    make_vec_env = functools.partial(_make_goal_vec_env, exp_manager.make_vec_env)
    get_callback_list = functools.partial(callbacks_of_the_trial, exp_manager.get_callback_list)
    for name, method in changed.items():
        setattr(manager, name, method)
    exp_manager.make_vec_env = make_vec_env  # type: ignore[attr-defined]
    exp_manager.get_callback_list = get_callback_list  # type: ignore[attr-defined]
    manager._extended_by_sb3_clearning = True

"""What rl-zoo3's ExperimentManager does differently for our algorithms: other algorithms run its own code, untouched."""

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from stable_baselines3.common.callbacks import EvalCallback

from sb3_clearning.checks import check_number
from sb3_clearning.zoo.algorithms import algorithms
from sb3_clearning.zoo.checkpoints import (
    callbacks_of_the_trial,
    checkpoint_to_go_on_from,
    resume_run,
    trial_folders,
)
from sb3_clearning.zoo.goal_logs import GoalColumns, GoalEnvMaker, GoalEvalCallback
from sb3_clearning.zoo.input_error import InputError
from sb3_clearning.zoo.search import SEARCH_ATTRIBUTE, arguments_of, check_parts, default_parts
from sb3_clearning.zoo.storage import load_study, open_storage
from sb3_clearning.zoo.try_out import WRONG_VALUE, check_hyperparams, check_learning_rate, reason, try_out

#: The folders of our configurations.
CONFIGURATION_FOLDERS = ("hyperparams", "zoo_configs")


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
    :param config: a path, a Python module, the name of one of our files, alone or after its folder's, or rl-zoo3's own file,
        which does not exist
    :return: the configuration to read
    """
    path = Path(config)
    if path.suffix not in (".yml", ".yaml", ".py") or path.is_file():
        return config
    import rl_zoo3

    package = Path(rl_zoo3.__file__).parent
    # A path to anywhere else is not one of ours, even if its last part is the same.
    folders = {
        Path(): CONFIGURATION_FOLDERS,
        **{Path(folder): (folder,) for folder in CONFIGURATION_FOLDERS},
        **{place / "hyperparams": ("hyperparams",) for place in (package, package.parent)},
    }.get(path.parent, ())
    for folder in folders:
        if (configuration_folder(folder) / path.name).is_file():
            return str(configuration_folder(folder) / path.name)
    ours = sorted(file.name for folder in CONFIGURATION_FOLDERS for file in configuration_folder(folder).glob("*.*"))
    raise InputError(f"There is no configuration {config} for {algo}. Files of sb3_clearning: {', '.join(ours)}")


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
        raise InputError(f"{self.config} is not valid YAML: {' '.join(str(error).split())}") from error
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"{self.config} must map env ids (or `default`) to hyperparameters, as in {self.algo}.yml of sb3_clearning."
        ) from error
    except InputError:
        raise
    except (ValueError, LookupError, ImportError, OSError, SyntaxError) as error:
        raise InputError(f"The configuration {self.config} can not be used. {reason(error)}") from error
    if "n_timesteps" not in hyperparams and self.n_timesteps <= 0:
        raise InputError(f"{self.config} has no `n_timesteps` for {self.env_name.gym_id}: add it, or use `-n`.")
    if "policy" not in hyperparams:
        raise InputError(f"{self.config} has no `policy` for {self.env_name.gym_id}: add `policy: MultiInputPolicy`.")
    hyperparams.setdefault("n_timesteps", self.n_timesteps)
    return hyperparams, saved


def _load_trial(
    original: Callable[..., dict[str, Any]],
    self: Any,
    storage: str,
    study_name: str,
    trial_id: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A storage, study or trial that does not exist in one line; a mistyped storage is not made."""
    load_study(storage, study_name)
    try:
        return original(storage, study_name, trial_id, **options)
    except (IndexError, ValueError) as error:
        number = "complete trial" if trial_id is None else f"trial {trial_id}"
        raise InputError(f"The study {study_name!r} in {storage} has no {number}.") from error


def _preprocess_hyperparams(original: Callable[..., Any], self: Any, hyperparams: dict[str, Any]) -> tuple[Any, ...]:
    """
    Evaluation envs get the arguments of a configuration. Find what can not work before a run folder is made, and what the
    Monitor can log.
    """
    parts = hyperparams.pop(SEARCH_ATTRIBUTE, None)
    check_learning_rate(hyperparams.get("learning_rate"))
    try:
        hyperparams, self.env_wrapper, callbacks, self.vec_env_wrapper = original(hyperparams)
        if self._eval_env_kwargs_args is None:
            self.eval_env_kwargs = self.env_kwargs  # rl-zoo3 does it for those of the command line only
        self.monitor_kwargs = dict(self.monitor_kwargs or {})
        check_number("n_envs", self.n_envs, 1, whole=True)
        check_number("n_timesteps", self.n_timesteps, 1, whole=True)
    except InputError:
        raise
    except (*WRONG_VALUE, SyntaxError, NameError, ImportError) as error:
        raise InputError(f"{self.algo} can not use these hyperparameters. {reason(error)}") from error
    check_hyperparams(self.algo, hyperparams)
    try:
        self.search_parts = default_parts(self.algo) if parts is None else check_parts(self.algo, parts)
    except ValueError as error:
        raise InputError(str(error)) from error
    given = [argument for argument in arguments_of(self.search_parts) if argument in (self.custom_hyperparams or {})]
    if self.optimize_hyperparameters and given:
        print(f"-params has no effect on {', '.join(given)}: the trials draw their own. `search` names the parts.")
    policy_kwargs = hyperparams.get("policy_kwargs")
    lost = set(policy_kwargs) - {"net_arch"} if isinstance(policy_kwargs, dict) else set()
    if self.optimize_hyperparameters and "net_arch" in self.search_parts and lost:
        raise InputError(
            f"A search for `net_arch` would replace `policy_kwargs` ({', '.join(sorted(lost))}): name other parts."
        )

    checkpoint = checkpoint_to_go_on_from(callbacks)
    if self.trained_agent and checkpoint is not None and not self.optimize_hyperparameters:
        raise InputError(f"{checkpoint.folder} already holds a run: leave `-i` out to go on with it, or name another folder.")

    keys = try_out(self, hyperparams, arguments_of(self.search_parts) if self.optimize_hyperparameters else [])
    if self.vec_env_wrapper is None:  # which could make infos that a single env does not have
        self.monitor_kwargs = {
            **self.monitor_kwargs,
            "info_keywords": GoalColumns(self.monitor_kwargs.get("info_keywords", keys)),
        }
    return hyperparams, self.env_wrapper, callbacks, self.vec_env_wrapper


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
    print(f"Going on from the checkpoints in {checkpoint.folder}")
    return resume_run(algorithms()[self.algo], checkpoint, self, hyperparams, env)


def _objective(original: Callable[..., float], self: Any, trial: Any) -> float:
    trial.set_user_attr(SEARCH_ATTRIBUTE, self.search_parts)
    with trial_folders(trial.number):
        return original(trial)


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
        "load_trial": _load_trial,
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

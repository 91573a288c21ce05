"""The Optuna search space of C-learning and of its baselines."""

from collections.abc import Callable, Iterable
from typing import Any

import optuna

#: The user attribute of a trial that names the parts of the space to search; by default the whole space is searched.
SEARCH_ATTRIBUTE = "search"

NET_ARCHS = {"small": [64, 64], "medium": [256, 256], "large": [256, 256, 256], "big": [512, 512]}


def _w_clip(trial: optuna.Trial) -> None:
    # All three are drawn in every trial: a space that changes between trials can only be searched at random.
    trial.suggest_categorical("w_clip_kind", ["absolute", "relative"])
    PARTS["w_clip_absolute"](trial)
    PARTS["w_clip_relative"](trial)


def _noise(trial: optuna.Trial) -> None:
    trial.suggest_categorical("action_noise", ["gaussian", "pink"])
    trial.suggest_float("noise_std", 0.0, 0.5)
    trial.suggest_categorical("warmup_noise", ["uniform", "pink"])


def _train_freq(trial: optuna.Trial) -> None:
    trial.suggest_int("train_freq", 1, 10)
    trial.suggest_int("subsample_steps", 1, 4)  # environment steps per gradient step


#: The parts of the search space by their names in the `search` entry of a configuration.
PARTS: dict[str, Callable[[optuna.Trial], Any]] = {
    # The paper's range, 0.3 to 0.995, on a logarithmic scale of the horizon 1 / (1 - gamma).
    "gamma": lambda trial: trial.suggest_float("one_minus_gamma", 0.005, 0.7, log=True),
    "w_clip": _w_clip,
    # The paper's limits are 2 and 50.
    "w_clip_absolute": lambda trial: trial.suggest_float("w_clip_absolute", 1.0, 200.0, log=True),
    # In units of 1 / (1 - gamma), the authors' default.
    "w_clip_relative": lambda trial: trial.suggest_float("w_clip_relative", 0.1, 10.0, log=True),
    "lambda_": lambda trial: trial.suggest_float("lambda_", 0.0, 1.0),
    # The default is 10.
    "n_steps": lambda trial: trial.suggest_int("n_steps", 1, 50, log=True),
    "learning_rate": lambda trial: trial.suggest_float("learning_rate", 5e-5, 2e-3, log=True),
    "batch_size": lambda trial: trial.suggest_int("batch_size_pow", 6, 11),
    "tau": lambda trial: trial.suggest_float("tau", 0.001, 0.08, log=True),
    "policy_delay": lambda trial: trial.suggest_int("policy_delay", 1, 4),
    "net_arch": lambda trial: trial.suggest_categorical("net_arch", list(NET_ARCHS)),
    "noise": _noise,
    "train_freq": _train_freq,
}

#: The arguments that a part draws, if they do not have its name.
_ARGUMENTS = {
    "w_clip_absolute": ("w_clip",),
    "w_clip_relative": ("w_clip",),
    "net_arch": ("policy_kwargs",),
    "noise": ("action_noise", "noise_std", "warmup_noise"),
    "train_freq": ("train_freq", "gradient_steps"),
}
_CLASSIFIER_PARTS = frozenset({"w_clip", "w_clip_absolute", "w_clip_relative", "lambda_"})


def arguments_of(parts: Iterable[str]) -> list[str]:
    """:return: The algorithm's arguments that the parts draw"""
    return [argument for part in parts for argument in _ARGUMENTS.get(part, (part,))]


def default_parts(algo: str) -> list[str]:
    """:return: The parts that are searched by default: all that the algorithm has"""
    single = {"w_clip_absolute", "w_clip_relative"}
    return [part for part in PARTS if part not in single and (algo == "clearning" or part not in _CLASSIFIER_PARTS)]


def check_parts(algo: str, parts: Any) -> list[str]:
    """:return: The `search` entry of a configuration, if it is a valid list of parts"""
    allowed = [part for part in PARTS if algo == "clearning" or part not in _CLASSIFIER_PARTS]
    if not isinstance(parts, list) or not parts or not all(part in allowed for part in parts):
        raise ValueError(f"`search` must be a list of parts of {algo}'s search space, out of {allowed}, not {parts!r}.")
    if "w_clip_relative" in parts or "w_clip" in parts:
        if "gamma" not in parts:
            raise ValueError("A `search` for `w_clip` relative to 1/(1-gamma) needs `gamma` in it; or use `w_clip_absolute`.")
        if {"w_clip_absolute", "w_clip_relative"} <= set(parts):
            raise ValueError("A `search` has one of `w_clip_absolute`, `w_clip_relative`, or `w_clip` for the choice of both.")
    return parts


def sample_params(
    trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any], algo: str = "clearning"
) -> dict[str, Any]:
    """:return: Drawn arguments of the algorithm. The signature is rl-zoo3's; only the trial and the algorithm are used"""
    parts: Iterable[str] = trial.user_attrs.get(SEARCH_ATTRIBUTE) or default_parts(algo)
    for part in parts:
        PARTS[part](trial)
    hyperparams = convert_params(trial.params)
    for name in ("gamma", "w_clip", "batch_size", "gradient_steps"):
        if name in hyperparams:
            trial.set_user_attr(name, hyperparams[name])
    return hyperparams


def convert_params(sampled_params: dict[str, Any]) -> dict[str, Any]:
    """:return: The arguments of the algorithm for the parameters of a trial. `--trial-id` uses it, too"""
    hyperparams = dict(sampled_params)
    if "one_minus_gamma" in hyperparams:
        hyperparams["gamma"] = 1 - hyperparams.pop("one_minus_gamma")

    absolute, relative = hyperparams.pop("w_clip_absolute", None), hyperparams.pop("w_clip_relative", None)
    kind = hyperparams.pop("w_clip_kind", "absolute" if relative is None else "relative")
    if kind == "relative" and relative is not None:
        hyperparams["w_clip"] = relative / (1 - hyperparams["gamma"])
    elif absolute is not None:
        hyperparams["w_clip"] = absolute

    if "batch_size_pow" in hyperparams:
        hyperparams["batch_size"] = 2 ** hyperparams.pop("batch_size_pow")
    if "train_freq" in hyperparams:
        hyperparams["gradient_steps"] = max(hyperparams["train_freq"] // hyperparams.pop("subsample_steps", 1), 1)
    if "net_arch" in hyperparams:
        hyperparams["policy_kwargs"] = {"net_arch": list(NET_ARCHS[hyperparams.pop("net_arch")])}
    return hyperparams

"""The Optuna search space of C-learning and of its baselines."""

from collections.abc import Callable, Iterable
from typing import Any

import optuna

#: The user attribute of a trial that names the parts of the space to search; without it the whole space is searched.
SEARCH_ATTRIBUTE = "search"

NET_ARCHS = {
    "small": [64, 64],
    "medium": [256, 256],
    "large": [256, 256, 256],
    "big": [512, 512],
}


def _gamma(trial: optuna.Trial) -> None:
    # From 0.995 to 0.3, the paper's range: what matters is the horizon 1 / (1 - gamma), on a logarithmic scale.
    trial.suggest_float("one_minus_gamma", 0.005, 0.7, log=True)


def _w_clip(trial: optuna.Trial) -> None:
    # All three are drawn in every trial: a space that changes from trial to trial can only be searched at random.
    trial.suggest_categorical("w_clip_kind", ["absolute", "relative"])
    _w_clip_absolute(trial)
    _w_clip_relative(trial)


def _w_clip_absolute(trial: optuna.Trial) -> None:
    # The paper's limits are 2 and 50.
    trial.suggest_float("w_clip_absolute", 1.0, 200.0, log=True)


def _w_clip_relative(trial: optuna.Trial) -> None:
    # In units of 1 / (1 - gamma), the authors' default.
    trial.suggest_float("w_clip_relative", 0.1, 10.0, log=True)


def _lambda(trial: optuna.Trial) -> None:
    trial.suggest_float("lambda_", 0.0, 1.0)


def _n_steps(trial: optuna.Trial) -> None:
    # Beyond the horizon 1 / (1 - gamma) more steps change little.
    trial.suggest_int("n_steps", 1, 50, log=True)


def _learning_rate(trial: optuna.Trial) -> None:
    trial.suggest_float("learning_rate", 5e-5, 2e-3, log=True)


def _batch_size(trial: optuna.Trial) -> None:
    trial.suggest_int("batch_size_pow", 6, 11)


def _tau(trial: optuna.Trial) -> None:
    trial.suggest_float("tau", 0.001, 0.08, log=True)


def _policy_delay(trial: optuna.Trial) -> None:
    trial.suggest_int("policy_delay", 1, 4)


def _net_arch(trial: optuna.Trial) -> None:
    trial.suggest_categorical("net_arch", list(NET_ARCHS))


def _noise(trial: optuna.Trial) -> None:
    trial.suggest_categorical("action_noise", ["gaussian", "pink"])
    trial.suggest_float("noise_std", 0.0, 0.5)
    trial.suggest_categorical("warmup_noise", ["uniform", "pink"])


def _train_freq(trial: optuna.Trial) -> None:
    trial.suggest_int("train_freq", 1, 10)
    # One gradient step for every so many environment steps.
    trial.suggest_int("subsample_steps", 1, 4)


#: The parts of the search space by the names that a `search` entry of a configuration uses.
PARTS: dict[str, Callable[[optuna.Trial], None]] = {
    "gamma": _gamma,
    "w_clip": _w_clip,
    "w_clip_absolute": _w_clip_absolute,
    "w_clip_relative": _w_clip_relative,
    "lambda_": _lambda,
    "n_steps": _n_steps,
    "learning_rate": _learning_rate,
    "batch_size": _batch_size,
    "tau": _tau,
    "policy_delay": _policy_delay,
    "net_arch": _net_arch,
    "noise": _noise,
    "train_freq": _train_freq,
}

#: The arguments that a part draws, where they are not one of its own name.
_ARGUMENTS = {
    "w_clip_absolute": ("w_clip",),
    "w_clip_relative": ("w_clip",),
    "net_arch": ("policy_kwargs",),
    "noise": ("action_noise", "noise_std", "warmup_noise"),
    "train_freq": ("train_freq", "gradient_steps"),
}
_CLASSIFIER_PARTS = frozenset({"w_clip", "w_clip_absolute", "w_clip_relative", "lambda_"})


def arguments_of(parts: Iterable[str]) -> list[str]:
    """
    :param parts: parts of the search space
    :return: the algorithm's arguments that they draw
    """
    return [argument for part in parts for argument in _ARGUMENTS.get(part, (part,))]


def default_parts(algo: str) -> list[str]:
    """
    :param algo: the algorithm's name in rl-zoo3
    :return: the parts that are searched if a configuration names none: all, as far as the algorithm has them
    """
    single = {"w_clip_absolute", "w_clip_relative"}
    return [part for part in PARTS if part not in single and (algo == "clearning" or part not in _CLASSIFIER_PARTS)]


def check_parts(algo: str, parts: Any) -> list[str]:
    """
    :param algo: the algorithm's name in rl-zoo3
    :param parts: the `search` entry of a configuration
    :return: the same, if it is a list of parts that the algorithm has
    """
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
    """
    Draw hyperparameters, with the signature of rl-zoo3's samplers.

    :param trial: the trial that remembers what was drawn
    :param n_actions: not used: the noise takes its size from the action space
    :param n_envs: not used
    :param additional_args: not used
    :param algo: the algorithm's name in rl-zoo3
    :return: arguments of the algorithm
    """
    parts: Iterable[str] = trial.user_attrs.get(SEARCH_ATTRIBUTE) or default_parts(algo)
    for part in parts:
        PARTS[part](trial)
    hyperparams = convert_params(trial.params)
    for name in ("gamma", "w_clip", "batch_size", "gradient_steps"):
        if name in hyperparams:
            trial.set_user_attr(name, hyperparams[name])
    return hyperparams


def convert_params(sampled_params: dict[str, Any]) -> dict[str, Any]:
    """
    Make arguments of the algorithm from what a trial has drawn. `--trial-id` uses it too, so that the same model comes out.

    :param sampled_params: the parameters of an Optuna trial
    :return: arguments of the algorithm
    """
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

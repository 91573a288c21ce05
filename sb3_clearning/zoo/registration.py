"""Adds the algorithms and the tasks to rl-zoo3. It has no plugin system, but its registries are shared dictionaries."""

import contextlib
import functools
import importlib
import io
from types import ModuleType
from typing import Any

from sb3_clearning.zoo.algorithms import algorithms


def _register_algorithms(utils: ModuleType) -> None:
    for name, algorithm in algorithms().items():
        utils.ALGOS.setdefault(name, algorithm)


def _register_search(hyperparams_opt: ModuleType) -> None:
    from sb3_clearning.zoo.search import convert_params, sample_params

    for name in algorithms():
        hyperparams_opt.HYPERPARAMS_SAMPLER.setdefault(name, functools.partial(sample_params, algo=name))
        hyperparams_opt.HYPERPARAMS_CONVERTER.setdefault(name, convert_params)


def _register_envs(import_envs: ModuleType) -> None:
    """The ids of our tasks, and those of gymnasium-robotics (Fetch, mazes), which rl-zoo3 does not import."""
    importlib.import_module("sb3_clearning.envs")
    # On import it warns about its own old rewards, which is noise for users who train something else.
    with contextlib.suppress(ImportError), contextlib.redirect_stderr(io.StringIO()):
        import_envs.gym.register_envs(importlib.import_module("gymnasium_robotics"))


def _register_manager(exp_manager: ModuleType) -> None:
    """Let ``ExperimentManager(…)`` build ours for our algorithms. Every command has its own reference to the class."""
    base = exp_manager.ExperimentManager
    if "__new__" in vars(base):
        return

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        algo = kwargs.get("algo", args[1] if len(args) > 1 else None)
        if cls is base and algo in algorithms():
            from sb3_clearning.zoo.manager import GoalExperimentManager  # imports exp_manager itself

            cls = GoalExperimentManager
        return object.__new__(cls)

    base.__new__ = staticmethod(new)


_REGISTER = {
    "rl_zoo3.utils": _register_algorithms,
    "rl_zoo3.hyperparams_opt": _register_search,
    "rl_zoo3.import_envs": _register_envs,
    "rl_zoo3.exp_manager": _register_manager,
}


def register_in(module: ModuleType) -> None:
    """Add ours to a module of rl-zoo3, if it holds a registry. A second call changes nothing."""
    if module.__name__ in _REGISTER:
        _REGISTER[module.__name__](module)


def register() -> None:
    """Import rl-zoo3 and add ours to it, for programs that the import hook does not reach."""
    for name in _REGISTER:
        register_in(importlib.import_module(name))

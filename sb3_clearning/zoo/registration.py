"""Adds the algorithms and the tasks to rl-zoo3, which has no plugin system: its registries are dictionaries that it shares."""

import contextlib
import functools
import importlib
import io
from types import ModuleType

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
    """The ids of our tasks, and of gymnasium-robotics' (Fetch, mazes), which rl-zoo3 does not import."""
    importlib.import_module("sb3_clearning.envs")
    # It warns of old rewards of its own on every import, which is no news for those who train something else.
    with contextlib.suppress(ImportError), contextlib.redirect_stderr(io.StringIO()):
        import_envs.gym.register_envs(importlib.import_module("gymnasium_robotics"))


def _register_manager(exp_manager: ModuleType) -> None:
    from sb3_clearning.zoo.manager import extend_manager

    extend_manager(exp_manager)


_REGISTER = {
    "rl_zoo3.utils": _register_algorithms,
    "rl_zoo3.hyperparams_opt": _register_search,
    "rl_zoo3.import_envs": _register_envs,
    "rl_zoo3.exp_manager": _register_manager,
}


def register_in(module: ModuleType) -> None:
    """
    Add ours to one module of rl-zoo3. A second call changes nothing.

    :param module: an imported module of rl-zoo3; others than the four that hold its registries are left alone
    """
    if module.__name__ in _REGISTER:
        _REGISTER[module.__name__](module)


def register() -> None:
    """Import rl-zoo3 and add ours to it: what the startup hook does, for programs that it does not reach."""
    for name in _REGISTER:
        register_in(importlib.import_module(name))

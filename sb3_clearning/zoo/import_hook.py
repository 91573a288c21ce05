"""
The startup hook: makes rl-zoo3's own commands know the algorithms and tasks of `sb3_clearning`.

The build copies this file to the root of site-packages as `_sb3_clearning_zoo.py`, because importing it from its package would
import torch. Every interpreter of the environment runs `install`, so the file imports only what the interpreter has loaded
anyway and does next to nothing until a module of rl-zoo3 is imported. `SB3_CLEARNING_ZOO=0` switches it off.
"""

import os
import sys

TYPE_CHECKING = False  # that of `typing` costs milliseconds
if TYPE_CHECKING:
    from typing import Any

#: The modules of rl-zoo3 after whose import there is something to register.
WATCHED = frozenset(f"rl_zoo3.{name}" for name in ("utils", "hyperparams_opt", "import_envs", "exp_manager"))


class ZooFinder:
    """An import hook that lets the other finders find a watched module, and registers ours once it is executed."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """
        :param name: the full name of the module that is imported
        :param path: where its package looks for modules
        :param target: the module to reload, if it is one
        :return: what the other finders found; None for modules that are not watched
        """
        if name not in WATCHED:
            return None
        for finder in sys.meta_path:
            if finder is ZooFinder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                try:
                    _register_after_execution(spec.loader)
                except Exception as error:  # a loader of another kind
                    _warn(name, error)
                return spec
        return None


def _register_after_execution(loader: "Any") -> None:
    """
    :param loader: the loader of a watched module; its own attribute hides the method of its class
    """
    execute = loader.exec_module

    def exec_module(module: "Any") -> None:
        execute(module)
        try:
            from sb3_clearning.zoo.registration import register_in

            register_in(module)
        except Exception as error:
            _warn(module.__name__, error)

    loader.exec_module = exec_module


def _warn(name: str, error: Exception) -> None:
    """
    :param name: the module of rl-zoo3
    :param error: why ours is not in it
    """
    import warnings

    reason = f"{type(error).__name__}: {error}"
    warnings.warn(f"sb3_clearning could not add its algorithms to {name} ({reason})", stacklevel=2)


def install() -> None:
    """Put the finder in front of the others, unless it is there or switched off."""
    if os.environ.get("SB3_CLEARNING_ZOO") != "0" and ZooFinder not in sys.meta_path:
        sys.meta_path.insert(0, ZooFinder)

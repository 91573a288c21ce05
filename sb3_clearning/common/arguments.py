"""The arguments of a model's constructor, as they are now."""

import inspect
from typing import Any

from sb3_clearning.common.noise import noise_argument

_COLLECTING = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def argument_names(algorithm: type) -> list[str]:
    """:return: The names of the constructor's arguments, without policy and env"""
    names: list[str] = []
    for owner in algorithm.__mro__:
        if "__init__" in vars(owner):
            parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
            names += [parameter.name for parameter in parameters if parameter.kind not in _COLLECTING]
            if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
                break  # else the parent's arguments are its own, too
    return [name for name in dict.fromkeys(names) if name not in ("self", "policy", "env", "_init_setup_model")]


def constructor_arguments(model: Any) -> dict[str, Any]:
    """:return: The arguments of its constructor as they are now, without policy, env and device"""
    found = {}
    for name in argument_names(type(model)):
        kept = f"_{name}" if name == "stats_window_size" else name
        if name != "device" and hasattr(model, kept):
            value = getattr(model, kept)
            found[name] = noise_argument(value) if name == "action_noise" else value
    return found

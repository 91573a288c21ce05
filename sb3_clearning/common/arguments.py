"""The arguments of a model's constructor, as they are now."""

import inspect
from typing import Any

from sb3_clearning.common.noise import noise_argument

_COLLECTING = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def constructor_arguments(model: Any) -> dict[str, Any]:
    """:return: The arguments of its constructor as they are now, without policy and env"""
    names: list[str] = []
    for owner in type(model).__mro__:
        if "__init__" in vars(owner):
            parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
            names += [parameter.name for parameter in parameters if parameter.kind not in _COLLECTING]
            if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
                break  # else the parent's arguments are its own, too
    found = {}
    for name in dict.fromkeys(names):
        kept = f"_{name}" if name == "stats_window_size" else name
        if name not in ("self", "policy", "env", "_init_setup_model", "device") and hasattr(model, kept):
            value = getattr(model, kept)
            found[name] = noise_argument(value) if name == "action_noise" else value
    return found

"""Arguments and spaces as JSON, and back. A file can only name known classes, so that reading it runs no code."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common import noise as sb3_noise
from stable_baselines3.common import torch_layers
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule
from torch import nn

from sb3_clearning.files.array_file import UnreadableFileError

_LAYERS = ("ReLU", "Tanh", "ELU", "GELU", "SiLU", "Mish", "LeakyReLU", "Sigmoid", "Softplus", "Softsign", "Identity", "SELU")
_EXTRACTORS = ("CombinedExtractor", "FlattenExtractor", "NatureCNN")
_OPTIMIZERS = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam")

#: The classes that a file may name. Any other has to be passed again when the file is loaded.
CLASSES: dict[str, type] = {
    **{f"torch.nn.{name}": getattr(nn, name) for name in _LAYERS},
    **{f"torch.optim.{name}": getattr(th.optim, name) for name in _OPTIMIZERS},
    **{f"stable_baselines3.{name}": getattr(torch_layers, name) for name in _EXTRACTORS},
}
_NAMES = {found: name for name, found in CLASSES.items()}

#: The objects that a file may hold: for each class the arguments of its constructor, and their attributes.
_OBJECTS: dict[str, tuple[type, dict[str, str]]] = {
    "NormalActionNoise": (sb3_noise.NormalActionNoise, {"mean": "_mu", "sigma": "_sigma", "dtype": "_dtype"}),
    "OrnsteinUhlenbeckActionNoise": (
        sb3_noise.OrnsteinUhlenbeckActionNoise,
        {name: f"_{name}" for name in ("sigma", "theta", "dt", "dtype")} | {"mean": "_mu", "initial_noise": "initial_noise"},
    ),
    "VectorizedActionNoise": (sb3_noise.VectorizedActionNoise, {"base_noise": "base_noise", "n_envs": "n_envs"}),
    "FloatSchedule": (FloatSchedule, {"value_schedule": "value_schedule"}),
    "ConstantSchedule": (ConstantSchedule, {"val": "val"}),
    "LinearSchedule": (LinearSchedule, {"start": "start", "end": "end", "end_fraction": "end_fraction"}),
}


def register_class(name: str, found: type) -> None:
    """Let files name a class. Its name in files stays when the class moves."""
    CLASSES[name], _NAMES[found] = found, name


def register_object(found: type, attributes: dict[str, str]) -> None:
    """Let files hold objects of a class, given the arguments of its constructor and their attributes."""
    _OBJECTS[found.__name__] = (found, attributes)


def is_count(value: Any, below: int) -> bool:
    """:return: Whether a value of a file is an integer, at least 0 and below a limit"""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def are_numbers(values: Any) -> bool:
    """:return: Whether values of a file are finite numbers"""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e300 for value in values)


class NotPlainError(ValueError):
    """A value that JSON cannot hold, such as a function or an object of a user's class."""


def encode(value: Any) -> Any:
    """:return: An argument as JSON, for :func:`decode`"""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, TrainFreq):
        return {"tuple": [value.frequency, value.unit.value]}
    if isinstance(value, (list, tuple)):
        items = [encode(item) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, slice):
        return {"slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    if isinstance(value, np.ndarray):
        return {"array": encode(value.tolist()), "dtype": value.dtype.name}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {"dtype": np.dtype(value).name}
    return _encode_named(value)


def encode_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """:return: The arguments that JSON can hold, and what the others look like, for an error that asks for them"""
    held, not_held = {}, {}
    for name, value in arguments.items():
        try:
            held[name] = encode(value)
        except NotPlainError:
            not_held[name] = repr(value)[:200]
    return held, not_held


def _encode_named(value: Any) -> Any:
    if isinstance(value, type) and value in _NAMES:
        return {"class": _NAMES[value]}
    known = _OBJECTS.get(type(value).__name__)
    if known is None or type(value) is not known[0]:
        raise NotPlainError(f"{value!r} is not plain data")
    return {
        "object": type(value).__name__,
        "arguments": {name: encode(getattr(value, kept)) for name, kept in known[1].items()},
    }


def decode(value: Any) -> Any:
    """:return: The argument of :func:`encode`"""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": str(text)} if text in ("inf", "-inf", "nan") and len(value) == 1:
            return float(text)
        case {"tuple": list(items)} if len(value) == 1:
            return tuple(decode(item) for item in items)
        case {"slice": [int() | None as start, int() | None as stop, int() | None as step]} if len(value) == 1:
            return slice(start, stop, step)
        case {"dict": dict(items)} if len(value) == 1:
            return {key: decode(item) for key, item in items.items()}
        case {"array": items, "dtype": str(dtype)} if len(value) == 2:
            return np.array(decode(items), dtype=_dtype(dtype))
        case {"dtype": str(dtype)} if len(value) == 1:
            return _dtype(dtype).type
        case {"class": str(name)} if name in CLASSES and len(value) == 1:
            return CLASSES[name]
        case {"object": str(name), "arguments": dict(arguments)} if name in _OBJECTS and len(value) == 2:
            found, kept = _OBJECTS[name]
            if set(arguments) == set(kept):
                return found(**{key: decode(item) for key, item in arguments.items()})
    raise UnreadableFileError(f"{str(value)[:100]} is not a known argument.")


def _dtype(name: str) -> np.dtype:
    dtype = np.dtype(name)
    if dtype.kind not in "biuf":
        raise UnreadableFileError(f"Invalid type of an array: {name}.")
    return dtype


def encode_space(space: spaces.Space) -> dict[str, Any]:
    """:return: A Dict, Box, Discrete, MultiDiscrete or MultiBinary space as JSON, for :func:`decode_space`"""
    if isinstance(space, spaces.Dict):
        return {"Dict": {key: encode_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Box):
        bounds = {
            name: encode(bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound.reshape(-1).tolist())
            for name, bound in (("low", space.low), ("high", space.high))
        }
        return {"Box": {**bounds, "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}}
    if isinstance(space, spaces.Discrete):
        return {"Discrete": [int(space.n), int(space.start)]}
    if isinstance(space, spaces.MultiDiscrete):
        return {"MultiDiscrete": encode(space.nvec)}
    if isinstance(space, spaces.MultiBinary):
        # Gymnasium distinguishes a size from a shape with one size.
        return {"MultiBinary": int(space.n) if isinstance(space.n, (int, np.integer)) else list(space.shape)}
    raise NotPlainError(f"The space {space} cannot be saved: use Dict, Box, Discrete, MultiDiscrete and MultiBinary.")


def decode_space(value: Any) -> spaces.Space:
    """:return: The space of :func:`encode_space`"""
    match value:
        case {"Dict": dict(parts)}:
            return spaces.Dict([(key, decode_space(part)) for key, part in parts.items()])
        case {"Box": {"low": low, "high": high, "shape": list(shape), "dtype": str(dtype)}}:
            bounds = [_bound(bound, shape, _dtype(dtype)) for bound in (low, high)]
            return spaces.Box(bounds[0], bounds[1], dtype=_dtype(dtype).type)
        case {"Discrete": [int(n), int(start)]}:
            return spaces.Discrete(n, start=start)
        case {"MultiDiscrete": sizes}:
            return spaces.MultiDiscrete(decode(sizes))
        case {"MultiBinary": int(n) | list(n)}:
            return spaces.MultiBinary(n)
    raise UnreadableFileError(f"{str(value)[:100]} is not a known space.")


def _bound(value: Any, shape: list[int], dtype: np.dtype) -> np.ndarray:
    found = np.asarray(decode(value), dtype=dtype)
    if not all(isinstance(size, int) and 0 <= size < 2**20 for size in shape) or math.prod(shape) > 2**28:
        raise UnreadableFileError(f"A space of the shape {str(shape)[:100]} is too large.")
    return np.full(shape, found) if found.ndim == 0 else found.reshape(shape)

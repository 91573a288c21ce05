"""Checks of arguments and observations. Errors name the argument, its valid values and the value."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback


def is_number(value: Any, whole: bool = False) -> bool:
    """:return: Whether a value is a real number, if ``whole`` an integer. A bool is neither"""
    return isinstance(value, Integral if whole else Real) and not isinstance(value, bool)


def check_sizes(name: str, value: Any) -> None:
    """Raise an error unless a value is a list or tuple of the sizes of layers."""
    if not isinstance(value, (list, tuple)) or not all(is_number(size, whole=True) and size >= 1 for size in value):
        raise ValueError(f"`{name}` must be the sizes of the hidden layers such as (256, 256), not {value!r}.")


def check_steps(name: str, value: Any, at_least: int = 0) -> int:
    """:return: A number of steps as an int, if it is one. Whole floats are: people write ``learn(1e6)``"""
    steps = int(value) if isinstance(value, float) and value.is_integer() else value
    check_number(name, steps, at_least, whole=True)
    return int(steps)


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), whole: bool = False, open_ends: str = "", hint: str = ""
) -> None:
    """
    Raise an error unless a value is a number within a range.

    :param open_ends: Which ends are excluded: "low", "high", "both" or ""
    """
    right = is_number(value, whole)
    right = right and (low < value if open_ends in ("low", "both") else low <= value)
    right = right and (value < high if open_ends in ("high", "both") else value <= high)
    if not right:
        lower = f"{'above' if open_ends in ('low', 'both') else 'at least'} {low:g}"
        upper = f" and {'below' if open_ends in ('high', 'both') else 'at most'} {high:g}"
        limits = lower + (upper if high != float("inf") or open_ends in ("high", "both") else "")
        article = "a whole number of " if whole and not is_number(value, whole) else ""
        raise ValueError(f"`{name}` must be {article}{limits}{hint}, not {value!r}.")


def check_callback(callback: Any) -> None:
    """Raise an error unless ``learn`` can use the callback."""
    each = callback if isinstance(callback, list) else [callback]
    for one in each:
        if one is not None and not callable(one) and not isinstance(one, BaseCallback):
            raise ValueError(f"`callback` must be a BaseCallback, a function, or a list of callbacks, not {one!r}.")


def check_finite(observation: Mapping[str, Any], message: str) -> None:
    """Raise an error for an observation with NaN or inf. Its message has ``{key}`` where the key is named."""
    for key, value in observation.items():
        if not np.isfinite(value).all():
            raise ValueError(message.format(key=key))


def check_observations(obs: Mapping[str, np.ndarray]) -> None:
    """Raise an error for an environment's NaN or inf, before they reach the buffer or the networks."""
    check_finite(
        obs,
        "The environment returned NaN or inf in the observation's key `{key}`. Training stopped before it reached the replay "
        "buffer or the networks. Fix the environment, or end its episodes earlier.",
    )


def check_logits(**logits: Any) -> None:
    """Raise an error unless all arguments are tensors of floats."""
    for name, value in logits.items():
        if not isinstance(value, th.Tensor) or not value.is_floating_point():
            kind = f"a tensor of {value.dtype}" if isinstance(value, th.Tensor) else type(value).__name__
            raise ValueError(f"`{name}` must be a tensor of floats, not {kind}.")


def check_same_batch(**tensors: th.Tensor) -> None:
    """Raise an error unless the tensors' batches, their last axes, have the same size."""
    check_logits(**tensors)
    sizes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len({shape[-1:] for shape in sizes.values()}) > 1:
        raise ValueError(f"The tensors have batches of different sizes: {sizes}.")


class UsageError(SystemExit, ValueError):
    """A mistake on the command line or in a configuration. The interpreter prints the one line and exits with code 1."""

"""Checks of arguments whose errors name the argument, what it may be, and what it was."""

from numbers import Integral, Real
from typing import Any

import torch as th


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), whole: bool = False, open_ends: str = "", hint: str = ""
) -> None:
    """
    Raise an error unless a value is a number within a range.

    :param name: The argument's name
    :param value: Its value
    :param low: The smallest allowed
    :param high: The largest allowed
    :param whole: Whether it must be an integer
    :param open_ends: Which ends do not belong to the range: "low", "high", "both" or none
    :param hint: What else to say
    """
    kind = Integral if whole else Real
    right = isinstance(value, kind) and not isinstance(value, bool)
    right = right and (low < value if open_ends in ("low", "both") else low <= value)
    right = right and (value < high if open_ends in ("high", "both") else value <= high)
    if not right:
        lower = f"{'above' if open_ends in ('low', 'both') else 'at least'} {low:g}"
        upper = f" and {'below' if open_ends in ('high', 'both') else 'at most'} {high:g}"
        limits = lower + (upper if high != float("inf") or open_ends in ("high", "both") else "")
        article = "a whole number of " if whole and not isinstance(value, kind) else ""
        raise ValueError(f"`{name}` must be {article}{limits}{hint}, not {value!r}.")


def check_logits(**logits: Any) -> None:
    """
    Raise an error unless all are tensors of floats.

    :param logits: The tensors by the names of the arguments
    """
    for name, value in logits.items():
        if not isinstance(value, th.Tensor) or not value.is_floating_point():
            kind = f"a tensor of {value.dtype}" if isinstance(value, th.Tensor) else type(value).__name__
            raise ValueError(f"`{name}` must be a tensor of floats, not {kind}.")


def check_same_batch(**tensors: th.Tensor) -> None:
    """
    Raise an error unless the tensors' batches, their last axes, have the same size.

    :param tensors: The tensors by the names of the arguments
    """
    check_logits(**tensors)
    sizes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len({shape[-1:] for shape in sizes.values()}) > 1:
        raise ValueError(f"The tensors have batches of different sizes: {sizes}.")

"""The random generators that training draws from: Python's, NumPy's, PyTorch's and the action space's."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_clearning.files.array_file import UnreadableFileError


def snapshot_random_states(action_space: spaces.Space | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """:return: The JSON part of the states, and their arrays. The uniform warm-up draws from the action space"""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    generator = None if action_space is None else action_space.np_random.bit_generator
    content: dict[str, Any] = {
        "python": [version, gauss],
        "numpy": [name, int(position), int(has_gauss), float(cached)],
        "action_space": _as_text(dict(generator.state)) if isinstance(generator, np.random.PCG64) else None,
    }
    arrays: dict[str, np.ndarray] = {
        "random.python": np.array(words, dtype=np.uint64),
        "random.numpy": np.array(keys, dtype=np.uint32),
        "random.torch": th.get_rng_state().numpy(),
    }
    if th.cuda.is_available():
        arrays.update({f"random.cuda.{i}": state.cpu().numpy() for i, state in enumerate(th.cuda.get_rng_state_all())})
    return content, arrays


def restore_random_states(action_space: spaces.Space | None, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Set the generators to what :func:`snapshot_random_states` returned."""
    try:
        version, gauss = content["python"]
        random.setstate((version, tuple(arrays["random.python"].tolist()), gauss))
        name, position, has_gauss, cached = content["numpy"]
        np.random.set_state((name, arrays["random.numpy"], position, has_gauss, cached))
        if action_space is not None and content["action_space"] is not None:
            action_space.np_random.bit_generator.state = _as_numbers(content["action_space"])
        th.set_rng_state(th.from_numpy(arrays["random.torch"].copy()))
        if th.cuda.is_available() and "random.cuda.0" in arrays:
            names = [f"random.cuda.{i}" for i in range(th.cuda.device_count())]
            th.cuda.set_rng_state_all([th.from_numpy(arrays[name].copy()) for name in names if name in arrays])
    except Exception as error:  # whatever the four libraries raise for an invalid state
        raise UnreadableFileError(f"Invalid random states in the checkpoint ({type(error).__name__}: {error}).") from error


@contextmanager
def preserved_random_states(action_space: spaces.Space | None = None) -> Iterator[None]:
    """Leave the generators as they were, so that training draws the same numbers as without the code inside."""
    content, arrays = snapshot_random_states(action_space)
    try:
        yield
    finally:
        restore_random_states(action_space, content, arrays)


def _as_text(state: dict[str, Any]) -> dict[str, Any]:
    """:return: The state with its 128-bit integers as text, which every JSON reader understands"""
    return {key: _as_text(item) if isinstance(item, dict) else str(item) for key, item in state.items()}


def _as_numbers(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _as_numbers(item) if isinstance(item, dict) else (item if key == "bit_generator" else int(item))
        for key, item in state.items()
    }

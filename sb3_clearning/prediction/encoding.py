"""Encoder: values of a space as rows of floats, the input of a network."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from sb3_clearning.goal_spaces import as_channels_first
from sb3_clearning.replay.experience import Values


class Encoder:
    """
    Values of a space as rows of floats: a Box is flattened (images divided by 255), a Discrete is one-hot, a Dict is the
    concatenation of its keys.

    :param space: The space
    :param name: What the values are, for error messages
    """

    def __init__(self, space: spaces.Space, name: str):
        self.space, self.name = space, name
        self.size: int
        self.parts: dict[str, Encoder] = {}
        if isinstance(space, spaces.Dict):
            self.parts = {key: Encoder(part, f"{name}'s key `{key}`") for key, part in space.spaces.items()}
            self.size = sum(part.size for part in self.parts.values())
        elif isinstance(space, spaces.Discrete):
            self.size = int(space.n)
        elif isinstance(space, spaces.Box):
            self.size = int(np.prod(space.shape))
        else:
            raise ValueError(f"The {name} must come from a Box, a Discrete or a Dict of these, not from {space}.")

    @property
    def discrete(self) -> bool:
        """:return: Whether a value is one of finitely many"""
        return isinstance(self.space, spaces.Discrete)

    def is_single(self, values: Values) -> bool:
        """:return: Whether this is a single value of the space, not one per row"""
        if self.parts:
            key, part = next(iter(self.parts.items()))
            return isinstance(values, Mapping) and key in values and part.is_single(values[key])
        return not isinstance(values, Mapping) and np.ndim(values) == len(self.space.shape or ())

    def encode(self, values: Values) -> np.ndarray:
        """
        :param values: ``(n, …)``, or a single value
        :return: ``(n, size)``, float32; ``(1, size)`` for a single value
        """
        if self.parts:
            return self._encode_dict(values)
        array, shape = np.asarray(values), self.space.shape or ()
        array = as_channels_first(array[None] if array.ndim == len(shape) else array, self.space)
        if array.shape[1:] != shape:
            found = np.asarray(values).shape
            raise ValueError(f"The {self.name} need the shape (n, {', '.join(map(str, shape))}), not {found}.")
        if isinstance(self.space, spaces.Discrete):
            return self._one_hot(array)
        rows = array.reshape(len(array), self.size).astype(np.float32)
        if not np.isfinite(rows).all():
            raise ValueError(f"The {self.name} have NaN or inf.")
        return rows / 255 if self.space.dtype == np.uint8 else rows

    def _encode_dict(self, values: Values) -> np.ndarray:
        if not isinstance(values, Mapping):
            raise ValueError(f"The {self.name} are a dict with the keys {list(self.parts)}, not an array.")
        missing = [key for key in self.parts if key not in values]
        if missing:
            raise ValueError(f"The {self.name} lack the keys {missing}; they have {sorted(values)}.")
        return np.concatenate([part.encode(values[key]) for key, part in self.parts.items()], axis=1)

    def _one_hot(self, array: np.ndarray) -> np.ndarray:
        assert isinstance(self.space, spaces.Discrete)
        index = array - int(self.space.start)
        if not np.issubdtype(array.dtype, np.integer) or (index < 0).any() or (index >= self.size).any():
            raise ValueError(f"The {self.name} must be whole numbers of {self.space}; got {array[:5]} …")
        return np.eye(self.size, dtype=np.float32)[index]

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """
        Averages of encoded values in the space's shape and unit. An average of one-hot rows is a table of probabilities.

        :param rows: ``(n, size)``
        :return: ``(n, …)``
        """
        if self.discrete or self.parts:
            return rows
        rows = rows * 255 if self.space.dtype == np.uint8 else rows
        return rows.reshape(len(rows), *(self.space.shape or ()))

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """
        :param rows: ``(n, size)``
        :return: The values that :meth:`encode` takes
        """
        if isinstance(self.space, spaces.Discrete):
            return rows.argmax(axis=1) + int(self.space.start)
        return self.mean(rows)

    def continuous_columns(self) -> np.ndarray:
        """:return: ``(size,)``, which columns are not one-hot"""
        if self.parts:
            return np.concatenate([part.continuous_columns() for part in self.parts.values()])
        return np.full(self.size, not self.discrete)

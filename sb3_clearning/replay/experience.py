"""Experience: transitions in order of time, in memory or in a file. Transitions: what a ring takes and gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from sb3_clearning.files import array_file
from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.files.json_values import decode_space, encode_space

#: Observations, actions or goals: an array with one value per row, or a dict of such arrays.
Values = np.ndarray | Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Experience:
    """
    Transitions in order of time.

    :param observations: ``(n, …)``, or a dict of such
    :param actions: ``(n, …)``, in the range of the action space
    :param next_observations: Like ``observations``; at an episode's end the final ones
    :param terminations: ``(n,)``, whether the environment terminated after the transition
    :param ends: ``(n,)``, whether the next row belongs to another episode
    """

    observations: Values
    actions: np.ndarray
    next_observations: Values
    terminations: np.ndarray
    ends: np.ndarray
    observation_space: spaces.Space
    action_space: spaces.Space

    def __post_init__(self) -> None:
        if len(self) == 0:
            raise ValueError("The dataset is empty: collect or load some transitions first.")

    def __len__(self) -> int:
        return len(self.actions)

    def last(self) -> np.ndarray:
        """:return: For each transition the index of the last one of its episode"""
        closed = self.ends.copy()
        closed[-1] = True
        last = np.flatnonzero(closed)
        return last[np.searchsorted(last, np.arange(len(closed)))]

    def save(self, path: str | Path) -> None:
        """Write everything to a file of arrays and JSON, atomically. It runs no code when it is loaded."""
        if Path(path).suffix == ".npz":
            raise ValueError(f"{path}: this is not written as an .npz file. Use another suffix, such as .safetensors.")
        self._check()
        content = {"observation_space": encode_space(self.observation_space), "action_space": encode_space(self.action_space)}
        arrays: dict[str, np.ndarray] = {}
        for name in ("observations", "actions", "next_observations", "terminations", "ends"):
            values = getattr(self, name)
            arrays.update(
                {f"{name}/{key}": part for key, part in values.items()} if isinstance(values, Mapping) else {name: values}
            )
        array_file.write_arrays(Path(path), "dataset", content, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Experience":
        """:return: The transitions that :meth:`save` wrote"""
        content, arrays = array_file.read_arrays(Path(path), "dataset")

        def values(name: str) -> Values:
            return array_file.under_prefix(arrays, f"{name}/") or arrays[name]

        try:
            found = cls(
                values("observations"),
                arrays["actions"],
                values("next_observations"),
                arrays["terminations"],
                arrays["ends"],
                decode_space(content["observation_space"]),
                decode_space(content["action_space"]),
            )
            found._check()
        except Exception as error:  # whatever a forged content leads to
            raise UnreadableFileError(f"{path} is not a dataset ({type(error).__name__}: {error}).") from error
        return found

    def _check(self) -> None:
        """Raise an error unless all arrays fit the spaces."""
        parts = [("observations", self.observations, self.observation_space), ("actions", self.actions, self.action_space)]
        parts.append(("next_observations", self.next_observations, self.observation_space))
        for name, values, space in parts:
            if isinstance(values, Mapping) != isinstance(space, spaces.Dict):
                raise ValueError(f"`{name}` and its space {space} do not fit.")
            of_keys = space.spaces if isinstance(space, spaces.Dict) else {name: space}
            arrays = values if isinstance(values, Mapping) else {name: values}
            if set(of_keys) != set(arrays):
                raise ValueError(f"`{name}` has the keys {sorted(arrays)}, but its space {sorted(of_keys)}.")
            for key, part in of_keys.items():
                if np.shape(arrays[key]) != (len(self), *(part.shape or ())):
                    raise ValueError(f"`{key}` has the shape {np.shape(arrays[key])}, but is of {len(self)} values of {part}.")
        for name in ("terminations", "ends"):
            flags = getattr(self, name)
            if flags.shape != (len(self),) or flags.dtype != bool:
                raise ValueError(f"`{name}` needs {len(self)} booleans, not {flags.dtype} of the shape {flags.shape}.")


class Transitions(NamedTuple):
    """Transitions as the ring stores them, in order of time: ``(n, …)`` each, actions ``(n, action_dim)`` within [-1, 1]."""

    observations: dict[str, np.ndarray]
    next_observations: dict[str, np.ndarray]
    actions: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray

    def take(self, index: np.ndarray | slice) -> "Transitions":
        """:return: The given transitions"""
        return Transitions(
            {key: value[index] for key, value in self.observations.items()},
            {key: value[index] for key, value in self.next_observations.items()},
            *(array[index] for array in self[2:]),
        )


def space_of(values: Values) -> spaces.Space:
    """:return: The space that values seem to come from; integers ``(n,)`` are the values of a Discrete space"""
    if isinstance(values, Mapping):
        return spaces.Dict({key: space_of(value) for key, value in values.items()})
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.integer) and values.ndim == 1:
        if values.size and values.min() < 0:
            raise ValueError(f"Integers are read as values 0, 1, … of a Discrete space, but {values.min()} is among them.")
        return spaces.Discrete(int(values.max()) + 1 if values.size else 1)
    if values.dtype == np.uint8:
        return spaces.Box(0, 255, values.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, values.shape[1:], np.float32)


def take(values: Values, index: np.ndarray | slice | None) -> Values:
    """:return: Some rows of values; with the index None all values are one row"""
    if isinstance(values, Mapping):
        return {key: np.asarray(value)[index] for key, value in values.items()}
    return np.asarray(values)[index]


def n_rows(values: Values) -> int:
    """:return: n of values ``(n, …)``, or of a dict of such"""
    if isinstance(values, Mapping):
        lengths = {key: len(value) for key, value in values.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"The keys of the observations need the same length, but have {lengths}.")
        return next(iter(lengths.values()))
    return len(values)

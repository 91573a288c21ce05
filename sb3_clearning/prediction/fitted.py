"""FittedPredictor: what estimators that learn from a dataset share, above all their file."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch as th
from torch import nn

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, under_prefix, write_arrays
from sb3_clearning.files.json_values import decode, decode_space, encode_arguments, encode_space
from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.next_actions import check_policy, checked_table
from sb3_clearning.prediction.queries import N_VISITED, FuturePredictor, warn_of_answer

SelfPredictor = TypeVar("SelfPredictor", bound="FittedPredictor")

KIND = "estimator"

#: How many of the data's states a predictor keeps, to tell which queries are far from the data; of large ones fewer.
N_KNOWN = 2000
KNOWN_FLOATS = 1_000_000


class NotHeld:
    """
    Stands for a Python object that a file does not hold. Whoever calls it is told to pass the object to ``load``.

    :param name: The argument's name
    :param shown: What the object looked like
    :param where: The file's name
    """

    def __init__(self, name: str, shown: str, where: str):
        self.name, self.shown, self.where = name, shown, where

    def __repr__(self) -> str:
        return self.shown

    def __call__(self, *arguments: Any) -> NoReturn:
        """Raise the error."""
        raise ValueError(
            f"{self.where} holds only plain data, and `{self.name}` was a Python object: {self.shown}. Pass it again: "
            f"load(path, {self.name}=…)."
        )


class FittedPredictor(FuturePredictor):
    """A predictor with a network that is fitted to a dataset."""

    seed: int | None
    _network: nn.Module | None = None
    _policy: Any = None
    _deterministic: bool = False
    #: Draws of the marginal, encoded, ``(m, goal_size)``
    _visited: np.ndarray
    #: Some of the data's states, encoded, ``(k, state_size)``
    _known: np.ndarray
    #: ``(state_size,)``; in this unit no state of the data is farther than 1 from the nearest known one
    _known_scale: np.ndarray
    _n_candidates = N_VISITED

    @abstractmethod
    def _constructor_arguments(self) -> dict[str, Any]:
        """:return: The arguments that make an equal predictor, before it is fitted"""

    @abstractmethod
    def _empty_network(self) -> nn.Module:
        """:return: A network of this architecture, whose weights do not matter"""

    def _statistics(self) -> dict[str, int]:
        """:return: The names of the arrays that were computed from the data, and their sizes"""
        return {}

    def _check_ready(self) -> None:
        if self._network is None:
            raise ValueError(f"The {type(self).__name__} is not fitted: call `fit(dataset)` first.")

    def _visited_goals(self) -> np.ndarray:
        return self._visited

    def _remember_states(self, states: np.ndarray, scale: np.ndarray) -> None:
        """
        Keep some of the data's states, and the largest distance of a state of the data to the nearest of them.

        :param states: Encoded, ``(n, state_size)``
        :param scale: Their standard deviations, ``(state_size,)``
        """
        n = max(min(N_KNOWN, KNOWN_FLOATS // states.shape[1]), 1)
        rows = states[np.random.default_rng(self.seed).permutation(len(states))[: 5 * n]]
        self._known, self._known_scale = rows[:n], scale
        farthest = self._distances(rows, leave_out=True).max()
        self._known_scale = (scale * (max(farthest, 1e-3) if np.isfinite(farthest) else 1e-3)).astype(np.float32)

    def _distances(self, states: np.ndarray, leave_out: bool = False) -> np.ndarray:
        """:return: The distances ``(n,)`` to the nearest known state; ``leave_out``: known state i is not the nearest of i"""
        known, rows = (th.as_tensor(part / self._known_scale, dtype=th.float64) for part in (self._known, states))
        nearest = []
        for start in range(0, len(rows), 1000):
            distances = th.cdist(rows[start : start + 1000], known, compute_mode="donot_use_mm_for_euclid_dist")
            if leave_out:
                distances.diagonal(start).fill_(th.inf)
            nearest.append(distances.min(dim=1).values)
        return th.cat(nearest).numpy() if nearest else np.zeros(0)

    def _warn_if_far(self, states: np.ndarray) -> None:
        """Warn if some encoded states ``(n, state_size)`` are farther from the data than its own states."""
        distances = self._distances(states)
        far = distances > 1.001
        if far.any():
            warn_of_answer(
                f"{far.sum()} of {len(far)} states are far from the data: number {distances.argmax()} is "
                f"{distances.max():.3g} times as far as the data's loneliest state is from its neighbors. The answer is an "
                "extrapolation. Ask about states like those of the data, or add data."
            )

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """
        Write the fitted predictor to a file of arrays and JSON, which runs no code when it is loaded. Functions and models as
        arguments are not in it.

        :param path: The file, usually ``….safetensors``; it is written atomically
        """
        self._check_ready()
        assert self._network is not None
        arguments, not_held = encode_arguments(self._constructor_arguments())
        arrays = {f"network/{name}": tensor.cpu().numpy() for name, tensor in self._network.state_dict().items()}
        arrays.update({name: getattr(self, f"_{name}") for name in ("visited", "known", "known_scale", *self._statistics())})
        _check_numbers(arrays)
        if isinstance(self._policy, (np.ndarray, list)):
            arrays["policy"] = checked_table(np.asarray(self._policy))
        elif self._policy is not None:
            not_held["policy"] = repr(self._policy)[:200]
        content = {
            "class": type(self).__name__,
            "arguments": arguments,
            "not_held": not_held,
            "deterministic": bool(self._deterministic),
            "spaces": [encode_space(encoder.space) for encoder in (self._states, self._actions, self._goals)],
        }
        write_arrays(Path(path), KIND, content, arrays)

    @classmethod
    def load(cls: type[SelfPredictor], path: str | Path, **objects: Any) -> SelfPredictor:
        """
        :param path: What :meth:`save` wrote
        :param objects: What is not in the file: the ``policy``, ``crop`` or ``learning_rate`` if it was a function or a model
            (questions that do not need it are answered without it), and the ``device`` to use
        :return: The predictor, which answers as the saved one did, bit for bit on the same kind of machine
        """
        content, arrays = read_arrays(Path(path), KIND)
        if content.get("class") != cls.__name__:
            raise UnreadableFileError(
                f"{path} holds a {str(content.get('class'))[:50]}, not a {cls.__name__}: load it with the class that wrote it."
            )
        missing = content.get("not_held")
        taken = sorted({*(map(str, missing) if isinstance(missing, dict) else ()), "device"})
        others = sorted(set(objects) - set(taken))
        if others:
            raise TypeError(f"{path} needs no {others}: only {taken} can be passed.")
        try:
            not_held = {str(name): NotHeld(name, str(shown), str(path)) for name, shown in content["not_held"].items()}
            arguments = {name: decode(value) for name, value in content["arguments"].items()}
            arguments.update(not_held | objects)
            policy = arguments.pop("policy", arrays.get("policy"))
            found = cls(**arguments)
            found._restore(content, arrays)
            if "policy" not in objects:
                found._set_policy(policy)
        except UnreadableFileError:
            raise
        except Exception as error:  # whatever a forged content leads to
            raise UnreadableFileError(f"{path} is not a saved {cls.__name__} ({type(error).__name__}: {error}).") from error
        if "policy" in objects:
            found._set_policy(policy)  # a wrong one is the caller's error, not the file's
        return found

    def _set_policy(self, policy: Any) -> None:
        check_policy(policy, self._states, self._actions)
        self._policy = policy

    def _restore(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over what was fitted, after a check against the declared architecture."""
        np.random.default_rng(self.seed)  # raises an error for an invalid seed
        names = ("observations", "actions", "goals")
        self._states, self._actions, self._goals = (
            Encoder(decode_space(space), name) for space, name in zip(content["spaces"], names, strict=True)
        )
        if not isinstance(content["deterministic"], bool):
            raise ValueError("`deterministic` must be True or False")
        self._deterministic = content["deterministic"]
        _check_numbers({name: array for name, array in arrays.items() if name != "policy"})
        if self._states.size + self._actions.size + self._goals.size > sum(array.size for array in arrays.values()):
            raise ValueError("the weights do not match the declared spaces")
        self._network = self._restored_network(under_prefix(arrays, "network/"))
        shapes: dict[str, tuple[int, ...]] = {
            "visited": (len(arrays["visited"]), self._goals.size),
            "known": (len(arrays["known"]), self._states.size),
            "known_scale": (self._states.size,),
        }
        shapes.update({name: (size,) for name, size in self._statistics().items()})
        for name, shape in shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype != np.float32:
                raise ValueError(f"`{name}` must be float32 of the shape {shape}")
            setattr(self, f"_{name}", arrays[name].copy())
        if len(self._visited) == 0 or len(self._known) == 0:
            raise ValueError("there are no visited goals or states")

    def _restored_network(self, arrays: dict[str, np.ndarray]) -> nn.Module:
        with th.device("meta"):  # a declared architecture takes no memory before it is compared with the weights
            network = self._empty_network()
        weights = {name: th.from_numpy(array.copy()) for name, array in arrays.items()}
        ours, theirs = (
            {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
            for tensors in (network.state_dict(), weights)
        )
        if ours != theirs:
            different = sorted(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
            raise ValueError(f"the weights do not match the declared architecture; {str(different)[:200]} differ")
        network.load_state_dict(weights, assign=True)
        return network


def _check_numbers(arrays: dict[str, np.ndarray]) -> None:
    """Raise an error for numbers that give no answers: those of a training that has diverged, or of a forged file."""
    for name, array in arrays.items():
        if not np.isfinite(array).all() or (name.endswith(("scale", "std")) and not (array > 0).all()):
            raise ValueError(f"`{name}` has numbers that are not finite, or divisors that are 0: training has diverged.")

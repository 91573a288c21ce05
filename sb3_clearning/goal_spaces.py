"""Goals and their spaces: checks, crops of an observation, distances."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
#: The achieved goal as a part of the observation: indices, a slice, a function of an array ``(…, n)``, or None for all of it.
Crop = Sequence[int] | np.ndarray | slice | Callable[[np.ndarray], np.ndarray] | None
#: As Crop, or for Dict observations: the crop of one key, or a function of the dict.
StateCrop = Crop | Mapping[str, Crop] | Callable[[Any], np.ndarray]


def check_goal_space(space: spaces.Space) -> None:
    """Raise an error unless the observation space is that of a goal environment."""
    if not isinstance(space, spaces.Dict):
        raise ValueError(
            f"C-learning needs a goal environment, whose observations are a Dict with the keys {GOAL_KEYS}, but this one has "
            f"{space}. Wrap an ordinary environment: `env = sb3_clearning.envs.GoalFromObservation(env, crop=...)`."
        )
    missing = [key for key in GOAL_KEYS if key not in space.spaces]
    if missing:
        raise ValueError(
            f"C-learning needs a goal environment: the Dict observation lacks {missing}. It has {list(space.spaces)}. "
            'Add them, or say which key the goal is in: `sb3_clearning.envs.GoalFromObservation(env, crop={"key": ...})`.'
        )
    achieved, desired = space["achieved_goal"], space["desired_goal"]
    same_kind = np.issubdtype(achieved.dtype, np.floating) == np.issubdtype(desired.dtype, np.floating)
    same_values = isinstance(achieved, spaces.Box) or achieved == desired  # the bounds of a Box may differ
    if achieved.shape != desired.shape or type(achieved) is not type(desired) or not same_kind or not same_values:
        raise ValueError(
            f"The goal spaces do not match: achieved_goal is {achieved} and desired_goal is {desired}. A goal is a state that "
            "can be achieved, so both need the same shape and kind of values."
        )


def check_action_space(space: spaces.Space) -> None:
    """Raise an error unless the action space is a bounded Box of floats."""
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"CLearning, like TD3, needs continuous actions: a Box action space of floats, not {space}. For discrete actions "
            "wrap the environment so that it takes such a Box."
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"CLearning needs a bounded action space, but this one is {space}. Give it finite bounds, for example with "
            "`gymnasium.wrappers.RescaleAction`."
        )


def crop_indices(crop: Any, n: int) -> np.ndarray:
    """:return: A crop (indices, a mask or a slice) of an observation of ``n`` entries as indices"""
    if isinstance(crop, slice):
        if any(bound is not None and not -n <= bound <= n for bound in (crop.start, crop.stop)):
            raise ValueError(f"crop={crop} is out of range for an observation of {n} entries")
        indices = np.arange(n)[crop]
    else:
        indices = np.asarray(crop)
        if indices.dtype == bool and indices.shape == (n,):
            indices = np.flatnonzero(indices)
        elif indices.ndim != 1 or (indices.size > 0 and not np.issubdtype(indices.dtype, np.integer)):
            raise TypeError(f"crop must be a sequence of indices, a slice, a function of an array, or None, got {crop!r}")
    if indices.size == 0:
        raise ValueError(f"crop={crop!r} is empty: it selects nothing of an observation of {n} entries")
    if not ((indices >= -n) & (indices < n)).all():
        raise ValueError(f"crop={crop!r} is out of range for an observation of {n} entries")
    if len(np.unique(indices % n)) < len(indices):
        raise ValueError(f"crop={crop!r} selects an entry of the observation twice")
    return indices


def crop_observation(observation: np.ndarray, crop: Crop) -> np.ndarray:
    """:return: The part of observations ``(n, …)`` that ``crop`` selects"""
    if crop is None:
        return observation
    if callable(crop):
        return crop_by_function(observation, crop, len(observation))
    return observation[..., crop_indices(crop, observation.shape[-1])]


def key_and_crop(crop: Mapping[str, Crop], keys: Iterable[str]) -> tuple[str, Crop]:
    """:return: The key that a crop of a dict of observations names, and the crop of its array"""
    if len(crop) != 1 or not set(crop) <= set(keys):
        raise ValueError(f"`crop` must name one of the observations' keys {sorted(keys)}, not {list(crop)}.")
    return next(iter(crop.items()))


def crop_by_function(observations: Any, crop: Callable[[Any], np.ndarray], n: int) -> np.ndarray:
    """:return: The goals of ``n`` observations, by a function of their array or dict"""
    goals = np.asarray(crop(observations))
    if goals.shape[:1] != (n,):
        raise ValueError(
            f"`crop` returned the shape {goals.shape} for {n} observations, but ({n}, …) is needed. It has to keep the "
            "leading axis, as in obs[..., :2] instead of obs[:2]."
        )
    return goals


def is_image(shape: tuple[int, ...], dtype: Any) -> bool:
    """:return: Whether arrays are images, by SB3's convention: three axes of uint8"""
    return len(shape) == 3 and dtype == np.uint8


def as_channels_first(values: np.ndarray, space: spaces.Space) -> np.ndarray:
    """:return: Values ``(n, …)`` of a space. Images with channels last, as environments give them, get the space's layout"""
    shape = space.shape or ()
    if is_image(shape, space.dtype) and values.shape[1:] == (*shape[1:], shape[0]) != shape:
        return np.moveaxis(values, -1, 1)
    return values


def goal_distance(achieved_goal: np.ndarray, desired_goal: np.ndarray, space: spaces.Box | None = None) -> np.ndarray:
    """
    Euclidean distance between goals; for images the root mean square difference of the pixels, scaled to [0, 1].

    :param space: The space of the goals. None: goals are ``(n, *goal_shape)``, of the type of ``achieved_goal``
    :return: ``(…)`` for goals ``(…, *goal_shape)``
    """
    achieved = np.asarray(achieved_goal)
    shape, dtype = (achieved.shape[1:], achieved.dtype) if space is None else (space.shape, space.dtype)
    # To floats before the difference: unsigned integers would wrap around.
    squares = np.square(achieved.astype(np.float64) - np.asarray(desired_goal, dtype=np.float64))
    axes = tuple(range(-len(shape), 0))
    if is_image(shape, dtype):
        return np.sqrt(squares.mean(axis=axes)) / 255
    return np.sqrt(squares.sum(axis=axes))

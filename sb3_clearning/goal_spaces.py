"""Checks of a goal environment's spaces. Errors say what to do."""

from typing import Any

import numpy as np
from gymnasium import spaces

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")


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
            "Add them, or wrap an environment with a Box observation in `sb3_clearning.envs.GoalFromObservation`."
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
    """
    :param crop: Indices, a mask or a slice
    :param n: The number of entries of an observation
    :return: The crop as indices
    """
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

"""What the goal wrappers share: types, spaces, seeds, and checks of arguments."""

import copy
import inspect
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_clearning.goal_spaces import GOAL_KEYS, goal_distance, is_image

GoalObs = dict[str, np.ndarray]
GoalFunction = Callable[[np.random.Generator], np.ndarray]


def check_threshold(threshold: Any) -> None:
    """Raise an error unless the threshold is a distance."""
    if not isinstance(threshold, Real) or not float(threshold) >= 0:
        raise ValueError(f"distance_threshold must not be negative, got {threshold!r}")


def check_goal_env(space: spaces.Space, wrapper: str) -> dict[str, Any]:
    """The spaces of a goal env with Box goals, by their keys."""
    if not isinstance(space, spaces.Dict) or not all(key in space.spaces for key in GOAL_KEYS):
        raise ValueError(f"{wrapper} needs a goal env with {', '.join(GOAL_KEYS)}; GoalFromObservation makes one. Got {space}")
    for key in GOAL_KEYS[1:]:
        if not isinstance(space[key], spaces.Box):
            raise ValueError(f"{wrapper} needs Box goals, but {key} is {space[key]}")
    return dict(space.spaces)


def as_learnable(array: np.ndarray) -> np.ndarray:
    """A copy in the type that networks read: images as they are, all else in float32."""
    array = np.asarray(array)
    return np.array(array, dtype=np.uint8 if is_image(array.shape, array.dtype) else np.float32)


def as_learnable_space(space: spaces.Box) -> spaces.Box:
    """The space of `as_learnable` arrays."""
    if is_image(space.shape, space.dtype):
        return copy.deepcopy(space)
    with np.errstate(over="ignore"):  # a bound beyond float32 becomes infinite
        return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)


def widest_space(example: np.ndarray) -> spaces.Box:
    """The unbounded space of the example's shape and type: a function's bounds do not follow from those of its argument."""
    if example.dtype == np.uint8:
        return spaces.Box(0, 255, example.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, example.shape, np.float32)


def example(space: spaces.Box, value: float) -> np.ndarray:
    """An array of the space with `value` everywhere, clipped to the bounds."""
    return np.clip(np.full(space.shape, value), space.low, space.high).astype(space.dtype)


def seed_sequence(seed: int | None, owner: str) -> np.random.SeedSequence:
    """The seed sequence of the wrapper `owner`: wrappers that are reset with the same seed must not draw the same numbers."""
    return np.random.SeedSequence(None if seed is None else [seed, *owner.encode()])


def to_seed(sequence: np.random.SeedSequence) -> int:
    """A seed for an env or a space."""
    return int(sequence.generate_state(1)[0]) >> 1  # 31 bits, since some simulators take a signed 32-bit seed


def sparse_reward(success: np.ndarray) -> np.ndarray:
    """0 where successful, else -1."""
    return np.asarray(success, dtype=np.float32) - np.float32(1)


def check_goals(goals: Any, shape: tuple[int, ...], dtype: Any, name: str) -> np.ndarray:
    """Goals in the goal space's type. An error names their source."""
    goals = np.asarray(goals)
    if goals.shape != shape:
        raise ValueError(f"{name} has the shape {goals.shape}, expected {shape}")
    if not (np.issubdtype(goals.dtype, np.number) or goals.dtype == bool):
        raise TypeError(f"{name} must hold numbers, got the type {goals.dtype}")
    if not np.isfinite(goals).all():
        raise ValueError(f"{name} has entries that are not finite")
    if dtype == np.uint8 and not ((goals >= 0) & (goals <= 255) & (goals == np.floor(goals))).all():
        raise ValueError(f"{name} must be an image with whole numbers from 0 to 255")
    return goals.astype(dtype)


def check_within_bounds(goals: np.ndarray, space: spaces.Box, source: str) -> np.ndarray:
    """Goals ``(…, *goal_shape)`` as they are. An error shows the first one outside of the space, and names their source."""
    low, high = space.low, space.high
    each = goals.reshape(-1, *low.shape)
    # A cosine may round to above 1.
    inside = np.isclose(each, np.clip(each, low, high), rtol=1e-5, atol=1e-5).reshape(len(each), -1).all(axis=1)
    if not inside.all():
        raise ValueError(f"The goal {each[~inside][0]} {source} lies outside of the observations' bounds {low} to {high}")
    return goals


def check_commanded_goal(goal: Any, space: spaces.Box) -> np.ndarray:
    """The goal that a user commands with ``reset(options={"goal": goal})``, in the space's type."""
    checked = check_goals(goal, space.shape, space.dtype, 'The goal in options["goal"]')
    return check_within_bounds(checked, space, 'in options["goal"]')


def check_goal_function(function: GoalFunction, name: str) -> GoalFunction:
    """Raise an error unless the function takes a NumPy Generator. It is not called: that might cost a simulation."""
    try:
        inspect.signature(function).bind(np.random.default_rng())
    except TypeError as error:
        raise TypeError(f"{name} must be a function of a NumPy Generator: {error}") from error
    except ValueError:  # a C function has no signature
        pass
    return function


def check_goal_array(goals: Any, space: spaces.Box, name: str) -> np.ndarray:
    """Goals to draw from, ``(n_goals, *goal_shape)``, in the space's type."""
    goals = np.asarray(goals)
    if len(goals) == 0:
        raise ValueError(f"{name} is an empty array: it needs one goal or more")
    if goals.shape == space.shape:
        raise ValueError(f"The {name} array has the shape {goals.shape} of one goal: give a list of goals, for one [goal]")
    checked = check_goals(goals, (len(goals), *space.shape), space.dtype, f"The {name} array")
    return check_within_bounds(checked, space, f"of {name}")


def without_goal(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """The options of a reset for the env below, which does not know ``goal``."""
    return {key: value for key, value in (options or {}).items() if key != "goal"} or None


class ReachedWithinThreshold:
    """What a wrapper's goals are scored by: the distance in the goal's space, and a threshold."""

    distance_threshold: float
    _goal_space: spaces.Box

    def distance(self, achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
        """:return: Distances ``(…)`` between goals ``(…, *goal_shape)``, as in ``info["distance"]``"""
        return goal_distance(achieved_goal, desired_goal, self._goal_space)

    def is_success(self, achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
        """:return: Whether goals are reached, within ``distance_threshold``, ``(…)``"""
        return self.distance(achieved_goal, desired_goal) <= self.distance_threshold

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """:return: The sparse reward for HER: 0 where the goal is reached, else -1, ``(…)``"""
        return sparse_reward(self.is_success(achieved_goal, desired_goal))

"""Turns experience into transitions with goals that fit a buffer, or says what does not fit."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from sb3_clearning.goal_spaces import StateCrop, as_channels_first, crop_by_function, crop_observation, key_and_crop
from sb3_clearning.replay.experience import Experience, Transitions, Values, n_rows


def with_achieved_goals(observations: Values, crop: StateCrop) -> dict[str, np.ndarray]:
    """:return: Observations as a dict with ``observation`` and ``achieved_goal``, which is cropped if the data has none"""
    is_dict = isinstance(observations, Mapping)
    if not isinstance(observations, Mapping):
        observations = {"observation": np.asarray(observations)}
    result = {key: np.asarray(value) for key, value in observations.items()}
    if crop is not None and "achieved_goal" in result:
        raise ValueError(
            "The data has the key `achieved_goal`, so `crop` would have no effect: leave it out, or remove that key and "
            "`desired_goal` from the observations to cut other goals."
        )
    if isinstance(crop, Mapping):
        # As GoalFromObservation does it: the key that the goal is in becomes `observation`.
        key, crop = key_and_crop(crop, result)
        result["observation"], is_dict = result.pop(key), False
    if "observation" not in result:
        raise ValueError(
            f'The dataset\'s observations have no key "observation", only {sorted(result)}. Say which key the goal is in: '
            '`crop={"key": ...}`. For a goal from several keys rename one "observation" and pass a function of the dict.'
        )
    if "achieved_goal" not in result:
        assert not isinstance(crop, Mapping)
        if is_dict and callable(crop):  # of the dict, as for GoalFromObservation
            result["achieved_goal"] = crop_by_function(dict(result), crop, n_rows(result))
        else:
            result["achieved_goal"] = crop_observation(result["observation"], crop)
    return result


def goal_transitions(
    experience: Experience, space: spaces.Dict, action_space: spaces.Box, crop: StateCrop, first: int = 0
) -> Transitions:
    """
    Check that data fits a goal environment, and complete its goals. Where the data has no ``desired_goal``, an episode's is
    the last goal that it reached.

    :param first: The number of the first transition, for errors
    :return: The transitions, as a replay buffer stores them
    """
    n = len(experience)
    scaled = _scaled(experience.actions, action_space, n, first)
    states = with_achieved_goals(experience.observations, crop)
    next_states = with_achieved_goals(experience.next_observations, crop)
    if "desired_goal" not in states:
        states["desired_goal"] = next_states["desired_goal"] = next_states["achieved_goal"][experience.last()]
    next_states.setdefault("desired_goal", states["desired_goal"])
    _check_observations("The observations", states, space, n, first)
    _check_observations("The next observations", next_states, space, n, first)
    truncations = experience.ends & ~experience.terminations
    return Transitions(states, next_states, scaled, experience.terminations, truncations)


def _check_observations(name: str, observations: dict[str, np.ndarray], space: spaces.Dict, n: int, first: int) -> None:
    for key, part in space.spaces.items():
        if key not in observations:
            raise ValueError(f"{name} of the dataset lack the environment's key `{key}`; they have {sorted(observations)}.")
        expected, found = (n, *part.shape), as_channels_first(observations[key], part)  # type: ignore[misc]
        observations[key] = found
        if found.shape != expected:
            hint = " Pass `crop` to say which part of the observation is the goal." if key == "achieved_goal" else ""
            raise ValueError(
                f"{name} of the dataset do not fit the environment: the key `{key}` has the shape {found.shape}, "
                f"but {expected} is needed.{hint}"
            )
        if found.dtype.kind not in "biuf" or (found.dtype.kind == "f" and not np.issubdtype(part.dtype, np.floating)):
            raise ValueError(f"{name} of the dataset have {found.dtype} in the key `{key}`, but {part.dtype} is needed.")
        check_finite(f"{name} of the dataset have", found, first, f"the key `{key}`, transition")
        _check_fits(f"{name} of the dataset have", found, part, first, key)


def _check_fits(has: str, values: np.ndarray, space: spaces.Space, first: int, key: str) -> None:
    """Raise an error for numbers that the buffer's type cannot hold: they would wrap around or become inf."""
    limits = np.finfo(np.float32) if np.issubdtype(space.dtype, np.floating) else None
    if limits is None and np.issubdtype(space.dtype, np.integer):
        limits = np.iinfo(space.dtype)  # type: ignore[assignment]
    if limits is None or not len(values) or values.dtype == space.dtype != np.float64:
        return
    bad = (values < limits.min) | (values > limits.max)
    if bad.any():
        row = int(np.argwhere(bad)[0, 0])
        raise ValueError(
            f"{has} {values[bad][0]} in the key `{key}`, transition {first + row}, which {limits.dtype} cannot hold."
        )


def check_finite(has: str, values: np.ndarray, first: int, place: str) -> None:
    """Raise an error that begins with ``has`` and names the place, a row of ``values`` counted from ``first``."""
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise ValueError(f"{has} NaN or inf in {place} {first + row}: leave out the episodes that have them.")


def is_outside(actions: np.ndarray, space: spaces.Box) -> np.ndarray:
    """:return: Which numbers of actions ``(n, …)`` are outside of the space, by more than rounding"""
    return (actions < space.low - 1e-4) | (actions > space.high + 1e-4)


def check_range(actions_of: str, actions: np.ndarray, space: spaces.Box, first: int, place: str) -> None:
    """Raise an error that names the first action outside of the space."""
    outside = is_outside(actions, space)
    if outside.any():
        row = int(np.argwhere(outside)[0, 0])
        raise ValueError(
            f"{actions_of} lie outside of the environment's action space {space}: they range from {actions.min():.3g} to "
            f"{actions.max():.3g}, first in {place} {first + row}. Clip or rescale them, in the same way as when they were "
            "applied."
        )


def _scaled(actions: np.ndarray, space: spaces.Box, n: int, first: int) -> np.ndarray:
    """:return: The actions, from the range of the action space to [-1, 1]"""
    actions = np.asarray(actions, dtype=np.float32)
    if actions.shape != (n, *space.shape):
        raise ValueError(f"The dataset's actions have the shape {actions.shape}, but {(n, *space.shape)} is needed.")
    check_finite("The dataset's actions have", actions, first, "transition")
    check_range("The dataset's actions", actions, space, first, "transition")
    return (2.0 * (actions - space.low) / (space.high - space.low) - 1.0).reshape(n, -1)

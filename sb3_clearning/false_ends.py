"""
False final observations. Some vectorized simulators reset an environment before its final observation is read, and hand over
the first observation of the next episode. Learned as a next state, it would be a future that never happens.
"""

from collections.abc import Mapping

import numpy as np

#: What to do about them, for a warning.
ADVICE = (
    "The final observation of an episode is missing, or is the first one of the next episode: the environment was reset "
    "before it was read. Such observations are not used, and the episodes end one step earlier. To keep the last step: in "
    "IsaacLab, set `compute_final_obs = True` in the environment's configuration. ManiSkill's wrapper hands over a view that "
    'the reset overwrites, mjlab none: copy the final observation into `infos[i]["terminal_observation"]` before the reset.'
)


def equal_rows(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> np.ndarray:
    """:return: Whether observations ``(n, …)`` are equal in all keys, in the type of the right ones, ``(n,)``"""
    pairs = [(left[key].reshape(len(value), -1), value.reshape(len(value), -1)) for key, value in right.items()]
    return np.logical_and.reduce([(one.astype(other.dtype) == other).all(axis=1) for one, other in pairs])


def ends_are_false(before: Mapping[str, np.ndarray], first: Mapping[str, np.ndarray]) -> np.ndarray:
    """
    Of final observations that equal the first one of the next episode in every key, the false ones.

    Equality alone proves nothing: an agent on a grid may well end where the next episode starts. A goal is fixed within an
    episode, so an observation with the next episode's goal, where that is another one, is false. If both episodes have the
    same goal, it is false if it has numbers with a fractional part, which no two measurements share. The exception is a state
    that the last step did not change: an agent may rest at a fixed start. Whole numbers with one goal are never suspected.

    :param before: The last observations of the episodes before the final ones, ``(n, …)`` per key
    :param first: The first observations of the next episodes
    :return: ``(n,)``
    """
    other_goal = ~equal_rows({"desired_goal": before["desired_goal"]}, {"desired_goal": first["desired_goal"]})
    return other_goal | states_are_false(*({k: v for k, v in obs.items() if k != "desired_goal"} for obs in (before, first)))


def states_are_false(before: Mapping[str, np.ndarray], first: Mapping[str, np.ndarray]) -> np.ndarray:
    """:return: Like :func:`ends_are_false`, for observations without goals"""
    fractional = np.zeros(len(next(iter(first.values()))), dtype=bool)
    for value in first.values():
        if np.issubdtype(value.dtype, np.floating):
            fractional |= (value != np.round(value)).reshape(len(value), -1).any(axis=1)
    return fractional & ~equal_rows(before, first)

"""Future rows of an episode, at offsets of the truncated geometric law."""

import numpy as np

from sb3_clearning.buffers import truncated_geometric

_FOREVER = np.iinfo(np.int32).max


def future_rows(
    rows: np.ndarray, last: np.ndarray, terminations: np.ndarray, gamma: float, absorbing: bool, uniform: np.ndarray
) -> np.ndarray:
    r"""
    For each transition one of the same episode, itself or later, at an offset with
    :math:`P(\Delta) \propto \gamma^{\Delta - 1}`; its next state is the future goal.

    :param rows: Transitions, of any shape
    :param last: ``(n,)``, for every transition the last one of its episode
    :param terminations: ``(n,)``
    :param gamma: The discount factor
    :param absorbing: Whether a terminated episode stays in its final state for ever (else: offsets end with the episode)
    :param uniform: Draws from [0, 1), of the shape of ``rows``
    :return: Rows, of the same shape
    """
    horizon = last[rows] - rows + 1
    offset = truncated_geometric(horizon, gamma, uniform)
    if absorbing:
        unlimited = truncated_geometric(np.full_like(horizon, _FOREVER), gamma, uniform)
        offset = np.where(terminations[last[rows]], np.minimum(unlimited, horizon), offset)
    return rows + offset - 1

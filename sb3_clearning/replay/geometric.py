"""Future rows of an episode, at offsets of the truncated geometric law."""

import math

import numpy as np


def truncated_geometric(horizon: np.ndarray, gamma: float, uniform: np.ndarray) -> np.ndarray:
    r"""
    Draw offsets :math:`\Delta \in \{1, \dots, H\}` with :math:`P(\Delta) \propto \gamma^{\Delta - 1}`, by inversion.

    :param horizon: The largest offsets H, of any shape
    :param gamma: The discount factor, within [0, 1]; 1 gives the uniform law
    :param uniform: Uniform draws from [0, 1), of the same shape
    :return: The offsets, integers of the same shape
    """
    if gamma == 0:
        return np.ones_like(horizon)
    if gamma == 1:
        offset = np.floor(uniform * horizon)
    else:
        # P(Delta <= d) = (1 - gamma^d) / (1 - gamma^H); expm1 and log1p keep the digits for gamma close to 1.
        log_gamma = math.log(gamma)
        offset = np.expm1(horizon * log_gamma)
        offset *= uniform
        offset = np.floor(np.log1p(offset, out=offset) / log_gamma)
    # Rounding may reach H when u is the last number before 1.
    return np.minimum(offset.astype(horizon.dtype) + 1, horizon)


_FOREVER = np.iinfo(np.int32).max


def future_offsets(horizon: np.ndarray, gamma: float, uniform: np.ndarray, terminated: np.ndarray | None = None) -> np.ndarray:
    """
    Draw offsets of future states within an episode.

    :param horizon: The steps that are left, of any shape
    :param uniform: Uniform draws from [0, 1), of the same shape
    :param terminated: Where the environment terminated at the horizon. The agent is assumed to remain in the terminal state:
        all larger offsets count as the horizon. None: offsets are truncated there
    :return: The offsets, integers of the same shape
    """
    offset = truncated_geometric(horizon, gamma, uniform)
    if terminated is None:
        return offset
    unlimited = truncated_geometric(np.full_like(horizon, _FOREVER), gamma, uniform)
    return np.where(terminated, np.minimum(unlimited, horizon), offset)


def future_rows(
    rows: np.ndarray, last: np.ndarray, terminations: np.ndarray, gamma: float, absorbing: bool, uniform: np.ndarray
) -> np.ndarray:
    r"""
    For each transition draw one of the same episode, itself or later, at an offset with
    :math:`P(\Delta) \propto \gamma^{\Delta - 1}`. Its next state is the future goal.

    :param rows: Transitions, of any shape
    :param last: ``(n,)``, for every transition the last one of its episode
    :param absorbing: Whether the agent is assumed to remain in a terminal state (else: offsets end with the episode)
    :param uniform: Draws from [0, 1), of the shape of ``rows``
    :return: Rows, of the same shape
    """
    end = last[rows]
    return rows + future_offsets(end - rows + 1, gamma, uniform, terminations[end] if absorbing else None) - 1

"""Transitions: what a ring takes and gives."""

from typing import NamedTuple

import numpy as np


class Transitions(NamedTuple):
    """
    Transitions as the ring stores them, in order of time.

    :param observations: Per key ``(n, …)``
    :param next_observations: Per key ``(n, …)``; at an episode's end the final ones
    :param actions: ``(n, action_dim)``, within [-1, 1]
    """

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

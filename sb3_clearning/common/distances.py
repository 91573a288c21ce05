"""The distances to the goal over an episode, for the logs."""

from collections import deque
from typing import NamedTuple

import numpy as np

from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.files.json_values import are_numbers

#: An episode that is longer is logged in pieces of so many steps: one that never ends would never be logged.
LOGGED_STEPS = 1000


class EpisodeDistances(NamedTuple):
    """
    L2 distances between the achieved and the commanded goal in one episode: before the first action, after the last one, the
    smallest (the initial one included), the mean over the states after each action, and final minus initial.
    """

    initial: float
    final: float
    minimum: float
    average: float
    change: float


class DistanceTracker:
    """Tracks the distance to the goal in parallel environments, and keeps the results of the last ``window`` episodes."""

    def __init__(self, n_envs: int, window: int = 100):
        self.episodes: deque[EpisodeDistances] = deque(maxlen=int(window))
        #: Whether pieces of long episodes are logged, see :data:`LOGGED_STEPS`.
        self.logs_pieces = False
        self._initial = np.zeros(n_envs)
        self._minimum = np.zeros(n_envs)
        self._sum = np.zeros(n_envs)
        self._steps = np.zeros(n_envs, dtype=np.int64)

    def restart(self) -> None:
        """Forget the episodes in progress: the environments were reset."""
        self._steps[:] = 0

    def starting(self) -> bool:
        """:return: Whether the next step is the first of an episode in some environment, so that it needs ``before``"""
        return bool((self._steps == 0).any())

    def pieces(self, dones: np.ndarray) -> np.ndarray:
        """:return: Where the next step completes a piece of an episode that does not end with it, ``(n_envs,)``"""
        return (self._steps + 1 >= LOGGED_STEPS) & ~np.asarray(dones, dtype=bool)

    def step(self, before: np.ndarray, after: np.ndarray, dones: np.ndarray) -> None:
        """Distances before (read at an episode's first step) and after a step, and whether it ended, ``(n_envs,)`` each."""
        first = self._steps == 0
        if first.any():
            self._initial[first] = self._minimum[first] = before[first]
            self._sum[first] = 0.0
        np.minimum(self._minimum, after, out=self._minimum)
        self._sum += after
        self._steps += 1
        ended = np.flatnonzero(dones)
        if len(ended):
            shown = ended[-(self.episodes.maxlen or 0) :]  # older ones would be forgotten at once
            initial, final, minimum = self._initial[shown], after[shown], self._minimum[shown]
            columns = (initial, final, minimum, self._sum[shown] / self._steps[shown], final - initial)
            self.episodes.extend(map(EpisodeDistances._make, zip(*(column.tolist() for column in columns), strict=True)))
            self._steps[ended] = 0

    def snapshot(self) -> tuple[list[list[float]], dict[str, np.ndarray]]:
        """:return: The finished episodes, and the arrays of those in progress"""
        running = np.stack([self._initial, self._minimum, self._sum])
        arrays = {"distances/running": running, "distances/steps": self._steps.copy()}
        return [list(episode) for episode in self.episodes], arrays

    def restore(self, episodes: list[list[float]], arrays: dict[str, np.ndarray]) -> None:
        """Set what :meth:`snapshot` returned."""
        running, steps = arrays["distances/running"], arrays["distances/steps"]
        if not all(are_numbers(episode) and len(episode) == len(EpisodeDistances._fields) for episode in episodes):
            raise UnreadableFileError("Invalid distances of episodes in the checkpoint.")
        if running.shape != (3, *self._steps.shape) or steps.shape != self._steps.shape or steps.dtype != np.int64:
            raise UnreadableFileError("The checkpoint's distances are of another number of environments.")
        self.episodes.extend(EpisodeDistances(*map(float, episode)) for episode in episodes)
        self._initial, self._minimum, self._sum = (row.copy() for row in running)
        self._steps = steps.copy()

    def means(self) -> dict[str, float]:
        """:return: The mean of each distance over the kept episodes; empty without episodes"""
        if not self.episodes:
            return {}
        return dict(zip(EpisodeDistances._fields, np.mean(self.episodes, axis=0).tolist(), strict=True))

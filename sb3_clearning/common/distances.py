"""The distances to the goal over an episode, for the logs."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sb3_clearning.files.array_file import UnreadableFileError


class EpisodeDistances(NamedTuple):
    """
    L2 distances between the achieved and the commanded goal in one episode.

    :param initial: Before the first action
    :param final: After the last action
    :param minimum: The smallest, the initial one included
    :param average: The mean over the states after each action
    :param change: Final minus initial: below zero is progress
    """

    initial: float
    final: float
    minimum: float
    average: float
    change: float


class DistanceTracker:
    """
    Follows the distance to the goal in parallel environments and keeps what the last episodes came to.

    :param n_envs: Number of environments
    :param window: Number of episodes to keep
    """

    #: How many numbers an episode comes to.
    n_measures = len(EpisodeDistances._fields)

    def __init__(self, n_envs: int, window: int = 100):
        self.episodes: deque[EpisodeDistances] = deque(maxlen=window)
        self._initial = np.zeros(n_envs)
        self._minimum = np.zeros(n_envs)
        self._sum = np.zeros(n_envs)
        self._steps = np.zeros(n_envs, dtype=np.int64)

    def restart(self) -> None:
        """Forget the episodes that go on: the environments were reset."""
        self._steps[:] = 0

    def starting(self) -> bool:
        """:return: Whether the next step is the first of an episode in some environment, so that its ``before`` is read"""
        return bool((self._steps == 0).any())

    def step(self, before: np.ndarray, after: np.ndarray, dones: np.ndarray) -> None:
        """
        :param before: The distances before the step, ``(n_envs,)``; read at an episode's first step
        :param after: The distances after the step, ``(n_envs,)``
        :param dones: Whether the episode ended with this step, ``(n_envs,)``
        """
        first = self._steps == 0
        self._initial = np.where(first, before, self._initial)
        self._minimum = np.minimum(np.where(first, before, self._minimum), after)
        self._sum = np.where(first, 0.0, self._sum) + after
        self._steps += 1
        for env in np.flatnonzero(dones):
            initial, final = float(self._initial[env]), float(after[env])
            average = float(self._sum[env] / self._steps[env])
            self.episodes.append(EpisodeDistances(initial, final, float(self._minimum[env]), average, final - initial))
            self._steps[env] = 0

    def snapshot(self) -> dict[str, np.ndarray]:
        """:return: The arrays of the episodes that go on"""
        running = np.stack([self._initial, self._minimum, self._sum])
        return {"distances/running": running, "distances/steps": self._steps.copy()}

    def restore(self, episodes: Iterable[Iterable[float]], arrays: dict[str, np.ndarray]) -> None:
        """
        :param episodes: Finished ones
        :param arrays: What :meth:`snapshot` returned, among others
        """
        running, steps = arrays["distances/running"], arrays["distances/steps"]
        self.episodes.extend(EpisodeDistances(*map(float, episode)) for episode in episodes)
        if running.shape != (3, *self._steps.shape) or steps.shape != self._steps.shape or steps.dtype != np.int64:
            raise UnreadableFileError("The checkpoint's logs are of another number of environments.")
        self._initial, self._minimum, self._sum = (row.copy() for row in running)
        self._steps = steps.copy()

    def means(self) -> dict[str, float]:
        """:return: The mean of each distance over the kept episodes; empty if there is none"""
        if not self.episodes:
            return {}
        return dict(zip(EpisodeDistances._fields, np.mean(self.episodes, axis=0).tolist(), strict=True))

"""Models of the marginal p(g), to turn a ratio into a density."""

from collections.abc import Callable

import numpy as np
import torch as th


class TableMarginal:
    """
    Goals of finitely many kinds: the frequencies of a sample, with one half added to each count so that no kind has zero.

    :param goals: The sample, ``(n, …)``
    :param n: Number of kinds
    :param kind_of: A function from goals to the indices of their kinds; None: the goals are the indices
    :param volume: The volume of each kind in the goal space, ``(n,)``; None: 1
    """

    def __init__(
        self,
        goals: np.ndarray,
        n: int,
        kind_of: Callable[[np.ndarray], np.ndarray] | None = None,
        volume: np.ndarray | None = None,
    ):
        self.kind_of = kind_of if kind_of is not None else (lambda values: np.asarray(values, dtype=np.int64))
        counts = np.bincount(self.kind_of(goals), minlength=n).astype(np.float64) + 0.5
        volume = np.ones(n) if volume is None else np.asarray(volume, dtype=np.float64)
        self.log_density = np.log(counts / counts.sum() / volume)

    def __call__(self, goals: np.ndarray) -> np.ndarray:
        """:return: Log densities of goals ``(n, …)`` (log probabilities if the volumes are 1), ``(n,)``"""
        return self.log_density[self.kind_of(goals)]


class KernelMarginal:
    r"""
    A sum of Gaussians around sampled goals. Their widths follow the normal reference rule, per coordinate
    :math:`\sigma_i (4 / ((d + 2) n))^{1 / (d + 4)}`.

    :param goals: The sample, ``(n, goal_dim)``
    :param bandwidth: A factor on the widths: below 1 for sharper features than those of a normal distribution
    :param chunk: Goals per evaluation
    """

    def __init__(self, goals: np.ndarray, bandwidth: float = 1.0, chunk: int = 1024):
        goals = np.asarray(goals, dtype=np.float64).reshape(len(goals), -1)
        n, dim = goals.shape
        spread = goals.std(axis=0)
        width = bandwidth * np.where(spread > 1e-9, spread, 1e-9) * (4 / ((dim + 2) * n)) ** (1 / (dim + 4))
        self._chunk, self._width = chunk, width
        self._centers = th.as_tensor(goals / width)
        self._log_norm = -np.log(n) - 0.5 * dim * np.log(2 * np.pi) - np.log(width).sum()

    def __call__(self, goals: np.ndarray) -> np.ndarray:
        """:return: Log densities of goals ``(n, goal_dim)``, ``(n,)``"""
        points = th.as_tensor(np.asarray(goals, dtype=np.float64).reshape(len(goals), -1) / self._width)
        parts = [
            th.logsumexp(-0.5 * th.cdist(part, self._centers).square(), dim=1)
            for part in points.split(self._chunk)
            if len(part)
        ]
        return th.cat(parts).numpy() + self._log_norm if parts else np.zeros(0)

"""
The continuous gridworld for the prediction experiments: policies, data, predictions and their errors, many seeds at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch as th
from scipy.special import logsumexp

from sb3_clearning.envs.gridworld import MOVES, SIZE, all_cells, cell_of, next_cell
from sb3_clearning.prediction.next_actions import ActionPool
from sb3_clearning.prediction.training import BatchedClassifiers, TrainingData, TrainingSettings, train_classifiers

N_CELLS = SIZE * SIZE
#: The paper: 100 trajectories of 100 steps.
N_TRAJECTORIES, LENGTH = 100, 100


class GridSeed(NamedTuple):
    """One seed's experiment, with ``n`` transitions. The future of the policy ``evaluated`` ``(25, 4)`` is predicted."""

    evaluated: np.ndarray
    observations: np.ndarray
    actions: np.ndarray
    next_observations: np.ndarray
    ends: np.ndarray

    def marginal(self, uniform_goals: float = 0.0) -> np.ndarray:
        """
        :param uniform_goals: The share of random goals that are uniform over the world
        :return: ``(25,)``, the distribution of random goals: how often each cell was entered (each count raised by one half so
            that none is zero), mixed with a uniform one
        """
        counts = np.bincount(cell_number(self.next_observations), minlength=N_CELLS) + 0.5
        return (1 - uniform_goals) * counts / counts.sum() + uniform_goals / N_CELLS


def cell_number(observations: np.ndarray) -> np.ndarray:
    """:return: The numbers ``(…)`` of the cells of observations ``(…, 2)``"""
    cells = cell_of(observations)
    return cells[..., 0] * SIZE + cells[..., 1]


def make_seed(seed: int, off_policy: bool, n_trajectories: int = N_TRAJECTORIES, length: int = LENGTH) -> GridSeed:
    """
    Policies from Dirichlet(1) and collected data. Off-policy, the future of a second policy is predicted from the same data.
    """
    rng = np.random.default_rng(seed)
    collecting, other = rng.dirichlet(np.ones(len(MOVES)), size=(2, N_CELLS))
    cells = np.empty((length + 1, n_trajectories, 2), dtype=np.int64)
    actions = np.empty((length, n_trajectories), dtype=np.int64)
    cells[0] = rng.integers(SIZE, size=(n_trajectories, 2))
    for t in range(length):
        cumulative = collecting[cells[t, :, 0] * SIZE + cells[t, :, 1]].cumsum(axis=1)
        drawn = (rng.random((n_trajectories, 1)) >= cumulative).sum(axis=1)
        actions[t] = np.minimum(drawn, len(MOVES) - 1)
        cells[t + 1] = next_cell(cells[t], MOVES[actions[t]])
    seen = (cells + (rng.random(cells.shape) - 0.5) * (1 - 1e-6)).astype(np.float32)
    ends = np.zeros((n_trajectories, length), dtype=bool)
    ends[:, -1] = True

    def flat(values: np.ndarray) -> np.ndarray:  # one trajectory after the other
        return np.swapaxes(values, 0, 1).reshape(n_trajectories * length, *values.shape[2:])

    return GridSeed(other if off_policy else collecting, flat(seen[:-1]), flat(actions), flat(seen[1:]), ends.reshape(-1))


def training_data(seed: GridSeed, uniform_goals: float = 0.0) -> TrainingData:
    """:return: Its data for the networks, which see plain coordinates and a one-hot action. Some random goals are uniform"""
    n = len(seed.actions)
    eye = np.eye(len(MOVES), dtype=np.float32)
    pool = ActionPool(eye[None], seed.evaluated[cell_number(seed.next_observations)], np.ones(n, dtype=bool))
    last = np.flatnonzero(seed.ends)
    inputs = 2 + len(MOVES) + 2
    random_goals = None
    if uniform_goals > 0:
        rng = np.random.default_rng(n)
        uniform = rng.random(n) < uniform_goals
        anywhere = rng.uniform(-0.5, SIZE - 0.5, size=(n, 2)).astype(np.float32)
        random_goals = np.where(uniform[:, None], anywhere, seed.next_observations)
    return TrainingData(
        seed.observations, eye[seed.actions], seed.next_observations, seed.next_observations,
        last[np.searchsorted(last, np.arange(n))], np.zeros(n, dtype=bool), pool, np.zeros(inputs), np.ones(inputs),
        random_goals,
    )  # fmt: skip


@th.no_grad()
def predicted_logits(classifiers: BatchedClassifiers, n: int) -> np.ndarray:
    """:return: Logits at the cells' centers, ``(n, 25, 4, 25)``"""
    cells = th.as_tensor(all_cells(), dtype=th.float32)
    shape = (N_CELLS, len(MOVES), N_CELLS)
    states = cells[:, None, None].expand(*shape, -1)
    actions = th.eye(len(MOVES))[None, :, None].expand(*shape, -1)
    goals = cells[None, None].expand(*shape, -1)
    inputs = th.cat([states, actions, goals], dim=-1).reshape(1, -1, 2 + len(MOVES) + 2)
    return classifiers(inputs.expand(n, -1, -1)).reshape(n, *shape).double().numpy()


def fit_seeds(seeds: Sequence[GridSeed], settings: TrainingSettings, uniform_goals: float = 0.0) -> np.ndarray:
    """
    Train all seeds' networks together; their initial weights and batches are independent draws.

    :return: Logits at the cells' centers, ``(n_seeds, 25, 4, 25)``
    """
    classifiers = train_classifiers([training_data(one, uniform_goals) for one in seeds], settings, seed=0)
    return predicted_logits(classifiers, len(seeds))


class GridErrors(NamedTuple):
    """
    How good a prediction ``(25, 4, 25)`` is.

    :param kl: Mean over states and actions of KL(truth, normalized prediction)
    :param total: Mean over states and actions of the prediction's sum over cells, before it is normalized
    """

    kl: float
    total: float


def errors(log_density: np.ndarray, truth: np.ndarray) -> GridErrors:
    """:return: The errors of a prediction's log density ``(25, 4, 25)``; a cell's area is 1"""
    log_total = logsumexp(log_density, axis=-1, keepdims=True)
    terms = np.where(truth > 0, truth * (np.log(np.maximum(truth, 1e-300)) - (log_density - log_total)), 0.0)
    return GridErrors(float(terms.sum(axis=-1).mean()), float(np.exp(log_total).mean()))

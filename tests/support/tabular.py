"""Small random Markov decision processes whose future is known exactly."""

from typing import NamedTuple

import numpy as np

from sb3_clearning import FutureStateEstimator


class Tabular(NamedTuple):
    transitions: np.ndarray  # (states, actions, states)
    behavior: np.ndarray  # (states, actions)
    other: np.ndarray  # (states, actions)

    def future(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """:return: (states, actions, states), the exact discounted future"""
        following = np.einsum("sa,sat->st", policy, self.transitions)
        return (1 - gamma) * self.transitions @ np.linalg.inv(np.eye(len(following)) - gamma * following)

    def n_step_future(self, policy: np.ndarray, gamma: float, n: int) -> np.ndarray:
        """:return: (states, actions, states), the n-step recursion's fixed point; the first n actions are the behavior's"""
        n_states, n_actions, _ = self.transitions.shape
        following = np.einsum("sa,sat->st", self.behavior, self.transitions)
        reached = self.transitions.reshape(-1, n_states)  # the state after k steps of each pair
        total = np.zeros_like(reached)
        for k in range(n):
            total += (1 - gamma) * gamma**k * reached
            reached = reached @ following if k < n - 1 else reached
        # p = total + gamma^n reached (policy p), a linear system over pairs.
        to_pairs = (reached[:, :, None] * policy).reshape(len(reached), n_states * n_actions)
        return np.linalg.solve(np.eye(len(reached)) - gamma**n * to_pairs, total).reshape(self.transitions.shape)

    def collect(self, n: int, seed: int, length: int = 200) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        states, actions, following = (np.empty((length, n // length), dtype=np.int64) for _ in range(3))
        current = rng.integers(len(self.transitions), size=n // length)
        for t in range(length):
            states[t] = current
            actions[t] = _draw(self.behavior[current], rng)
            current = following[t] = _draw(self.transitions[current, actions[t]], rng)
        ends = np.zeros_like(states, dtype=bool)
        ends[-1] = True
        return {
            "observations": states.T.ravel(),
            "actions": actions.T.ravel(),
            "next_observations": following.T.ravel(),
            "truncations": ends.T.ravel(),
        }


def _draw(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = (rng.random((len(probabilities), 1)) >= probabilities.cumsum(axis=1)).sum(axis=1)
    return np.minimum(drawn, probabilities.shape[1] - 1)


def random_tabular(seed: int, n_states: int = 4, n_actions: int = 2) -> Tabular:
    rng = np.random.default_rng(seed)
    return Tabular(
        rng.dirichlet(np.full(n_states, 0.5), size=(n_states, n_actions)),
        rng.dirichlet(np.full(n_actions, 3.0), size=n_states),
        rng.dirichlet(np.full(n_actions, 0.5), size=n_states),
    )


def falling(remaining: float) -> float:
    """:return: A learning rate that falls with the remaining progress"""
    return 1e-2 * remaining + 1e-4


def table_of(estimator: FutureStateEstimator, mdp: Tabular) -> np.ndarray:
    """:return: The predicted probabilities, (states, actions, states)"""
    n_states, n_actions, _ = mdp.transitions.shape
    states, actions = (axis.ravel() for axis in np.meshgrid(np.arange(n_states), np.arange(n_actions), indexing="ij"))
    density = estimator.density(states, actions, np.arange(n_states), marginal="data")
    return density.reshape(n_states, n_actions, n_states)

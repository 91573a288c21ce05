"""Small random Markov decision processes whose future is known exactly."""

from typing import NamedTuple

import numpy as np


class Tabular(NamedTuple):
    transitions: np.ndarray  # (states, actions, states)
    behaviour: np.ndarray  # (states, actions)
    other: np.ndarray  # (states, actions)

    def future(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """:return: (states, actions, states), the exact discounted future"""
        following = np.einsum("sa,sat->st", policy, self.transitions)
        return (1 - gamma) * self.transitions @ np.linalg.inv(np.eye(len(following)) - gamma * following)

    def collect(self, n: int, seed: int, length: int = 200) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        states, actions, following = (np.empty((length, n // length), dtype=np.int64) for _ in range(3))
        current = rng.integers(len(self.transitions), size=n // length)
        for t in range(length):
            states[t] = current
            actions[t] = _draw(self.behaviour[current], rng)
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

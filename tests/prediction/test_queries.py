"""The questions, on a predictor whose ratio is known."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from matplotlib.figure import Figure

from sb3_clearning import FutureStateEstimator
from sb3_clearning.prediction.calibration import reliability
from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.marginals import KernelMarginal, TableMarginal
from sb3_clearning.prediction.plots import background_of, density_map, expected_picture, plot_reliability
from sb3_clearning.prediction.queries import FuturePredictor
from sb3_clearning.replay.experience import Values
from sb3_clearning.replay.geometric import future_rows


class ShiftedNormal(FuturePredictor):
    """The marginal is N(0, 2²) and the future N(s + a, 1), both of dimension 1."""

    def __init__(self, n_visited: int = 1000, seed: int = 0):
        line = spaces.Box(-np.inf, np.inf, (1,))
        self._states, self._actions, self._goals = (Encoder(line, name) for name in ("observations", "actions", "goals"))
        self.visited = 2 * np.random.default_rng(seed).standard_normal((n_visited, 1)).astype(np.float32)

    def _visited_goals(self) -> np.ndarray:
        return self.visited

    def _log_ratios(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        assert actions is not None
        mean = np.asarray(observations) + actions
        g = goals[:, 0]
        return -0.5 * (g - mean) ** 2 + 0.5 * (g / 2) ** 2 + np.log(2)


def phi(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.array([0.5 * (1 + erf(value / np.sqrt(2))) for value in np.atleast_1d(x)])


def test_shapes() -> None:
    predictor = ShiftedNormal()
    states, actions, goals = np.zeros((5, 1)), np.zeros((5, 1)), np.zeros((3, 1))
    assert predictor.log_ratio(states, actions, goals).shape == (5, 3)
    assert predictor.log_ratio(states, actions[0], goals).shape == (5, 3)
    assert predictor.log_ratio(states[0], actions[0], goals).shape == (3,)
    assert predictor.log_ratio(states, actions, goals[0]).shape == (5,)
    assert np.ndim(predictor.log_ratio(states[0], actions[0], goals[0])) == 0
    assert predictor.expected_future_state(states, actions).shape == (5, 1)
    assert predictor.expected_future_state(states[0], actions[0]).shape == (1,)
    assert predictor.probability(states, actions, lambda g: g[:, 0] > 0).value.shape == (5,)


def test_averages_and_their_standard_errors() -> None:
    means = np.array([[-1.0], [0.0], [1.5]])
    exact_mean, exact_chance = means[:, 0], 1 - phi(0.5 - means[:, 0])
    draws = []
    for seed in range(200):
        predictor = ShiftedNormal(seed=seed)
        action = np.zeros(1)
        chance = predictor.probability(means, action, lambda g: g[:, 0] > 0.5)
        reward = predictor.expected_reward(means, action, lambda g: 3 * g[:, 0])
        draws.append((chance.value, chance.standard_error, reward.value, reward.standard_error))
    chances, chance_error, rewards, reward_error = (np.array(column) for column in zip(*draws, strict=True))
    assert np.abs(chances.mean(axis=0) - exact_chance).max() < 0.01
    assert np.abs(rewards.mean(axis=0) - 3 * exact_mean).max() < 0.05
    # The reported error is the spread over draws of the candidates.
    for values, reported in ((chances, chance_error), (rewards, reward_error)):
        assert np.all(np.abs(reported.mean(axis=0) / values.std(axis=0) - 1) < 0.2)


def test_an_event_is_true_or_false() -> None:
    predictor, one = ShiftedNormal(), np.zeros(1)
    with pytest.raises(ValueError, match="whether it is in the set: booleans, not float32 values"):
        predictor.probability(one, one, lambda g: g[:, 0] * 3)
    as_numbers = predictor.probability(one, one, lambda g: 1.0 * (g[:, 0] > 0)).value
    assert as_numbers == predictor.probability(one, one, lambda g: g[:, 0] > 0).value


def test_an_event_that_no_candidate_shows_is_not_certain() -> None:
    never = ShiftedNormal().probability(np.zeros(1), np.zeros(1), lambda g: g[:, 0] > 100)
    assert never.value == 0
    assert 1e-4 < never.standard_error < 0.1


def test_density_with_its_marginal_is_the_normal() -> None:
    goals = np.linspace(-3, 3, 7)[:, None]
    exact = np.exp(-0.5 * (goals[:, 0] - 0.5) ** 2) / np.sqrt(2 * np.pi)

    def marginal(g: np.ndarray) -> np.ndarray:
        return -0.5 * (g[:, 0] / 2) ** 2 - np.log(2 * np.sqrt(2 * np.pi))

    predictor = ShiftedNormal(5000)
    state, action = np.array([0.2]), np.array([0.3])
    assert np.allclose(predictor.density(state, action, goals, marginal), exact)
    assert np.allclose(predictor.density(state, action, goals), exact / np.exp(marginal(goals)))
    assert np.abs(predictor.density(state, action, goals, "data") - exact).max() < 0.04


def test_marginals() -> None:
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((4000, 2)) * [1.0, 10.0]
    points = np.array([[0.0, 0.0], [1.0, -10.0]])
    exact = -0.5 * (points**2 / [1, 100]).sum(axis=1) - np.log(2 * np.pi * 10)
    assert np.abs(KernelMarginal(sample)(points) - exact).max() < 0.25
    table = TableMarginal(np.array([0, 0, 1]), 3)
    assert np.allclose(np.exp(table(np.arange(3))), [2.5 / 4.5, 1.5 / 4.5, 0.5 / 4.5])


@pytest.mark.parametrize("absorbing", [False, True])
def test_future_rows_follow_the_geometric_law(absorbing: bool) -> None:
    gamma, n = 0.7, 200_000
    last, terminations = np.array([3, 3, 3, 3, 5, 5]), np.array([False, False, False, True, False, False])
    uniform = np.random.default_rng(0).random(n)
    rows = future_rows(np.ones(n, dtype=np.int64), last, terminations, gamma, absorbing, uniform)
    law = (1 - gamma) * gamma ** np.arange(3)
    law = np.append(law[:2], 1 - law[:2].sum()) if absorbing else law / law.sum()
    assert np.abs(np.bincount(rows, minlength=4)[1:] / n - law).max() < 0.005
    rows = future_rows(np.full(n, 4), last, terminations, gamma, absorbing, uniform)
    assert abs((rows == 4).mean() - 1 / (1 + gamma)) < 0.005  # truncated, never absorbing


def test_reliability() -> None:
    rng = np.random.default_rng(0)
    chance = rng.random(20_000)
    happened = rng.random(20_000) < chance
    assert reliability(chance, happened).expected_calibration_error < 0.02
    # Predictions that are pushed to the ends are off by what they were pushed.
    pushed = np.clip(chance + np.where(chance > 0.5, 0.1, -0.1), 0, 1)
    found = reliability(pushed, happened)
    assert 0.07 < found.expected_calibration_error < 0.11
    assert found.n.sum() == 20_000
    with pytest.raises(ValueError, match=r"within \[0, 1\]"):
        reliability(np.array([1.5]), np.array([True]))


def test_pictures() -> None:
    predictor = ShiftedNormal()
    candidates = np.array([[-3.0], [0.0], [3.0]], dtype=np.float32)
    pictures = np.zeros((3, 2, 3, 3), dtype=np.uint8)
    pictures[0, 0, 0], pictures[1, 0, 1], pictures[2, 0, 2] = 255, 255, 255
    picture = expected_picture(predictor, np.array([2.9]), np.zeros(1), candidates, pictures)
    assert picture.shape == (2, 3, 3)
    assert picture[0, 2].min() == 255  # the likeliest candidate's
    assert picture[0, 0].max() < 5
    # Something that is likely nowhere is faint, and as bright as in its own picture once the background is known.
    many = np.zeros((20, 2, 20, 3), dtype=np.uint8) + 100
    many[np.arange(20), 0, np.arange(20)] = 200
    places = np.linspace(-3, 3, 20, dtype=np.float32)[:, None]
    background = background_of(many)
    assert (background == 100).all()
    raised = expected_picture(predictor, np.array([0.0]), np.zeros(1), places, many, background)
    assert 195 <= raised.max() <= 201
    assert np.argmax(raised[0, :, 0]) in (9, 10)
    assert (raised[1] == 100).all()
    with pytest.raises(ValueError, match="its picture"):
        expected_picture(predictor, np.array([2.9]), np.zeros(1), candidates, pictures[:2])
    axes = Figure().subplots()
    plot_reliability(axes, reliability(np.array([0.1, 0.9]), np.array([0, 1])), "test")
    assert axes.get_legend() is not None


def test_a_density_map() -> None:
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {"observations": rng.random((200, 2)).astype(np.float32), "actions": rng.integers(2, size=200)}
    estimator = FutureStateEstimator(0.5, hidden=(4,), seed=0).fit(data, steps=3)
    x, y = np.linspace(0, 1, 4), np.linspace(0, 1, 5)
    mesh = density_map(Figure().subplots(), estimator, data["observations"][0], np.array(1), x, y)
    expected = estimator.density(data["observations"][0], np.array(1), np.array([[x[2], y[3]]]))
    assert np.isclose(np.asarray(mesh.get_array()).reshape(5, 4)[3, 2], expected[0])

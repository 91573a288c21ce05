"""Warnings where an answer should not be trusted, and none where it should."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb3_clearning import FutureStateEstimator, HindsightQEstimator, OneStepModel, UntrustedAnswerWarning
from sb3_clearning.replay.experience import Values
from tests.prediction.test_queries import ShiftedNormal
from tests.support.fitted_estimators import one_episode
from tests.support.tabular import falling, random_tabular

ZERO = np.zeros(1)


def positive(goals: np.ndarray) -> np.ndarray:
    return goals[:, 0] > 0


def told(ask: Callable[[], Any]) -> list[str]:
    """:return: The warnings of a query, all of them at the line that asked"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask()
    assert all(one.filename == __file__ and one.category is UntrustedAnswerWarning for one in caught)
    return [str(one.message) for one in caught]


class Scaled(ShiftedNormal):
    """The exact odds times a factor: they average this factor over the marginal."""

    factor = 1.0

    def _log_ratios(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        return super()._log_ratios(observations, actions, goals) + np.log(self.factor)


def test_odds_that_do_not_average_one() -> None:
    states = np.array([[-1.5], [0.0], [1.5]])
    for seed in range(100):
        predictor = Scaled(seed=seed)
        assert told(lambda: predictor.probability(states, ZERO, positive)) == []  # noqa: B023
    for factor, shown in ((0.5, "0.5"), (3.0, "3")):
        predictor.factor = factor
        queries: list[Callable[[], Any]] = [
            lambda: predictor.probability(states, ZERO, positive),
            lambda: predictor.expected_reward(states, ZERO, lambda goals: goals[:, 0]),
            lambda: predictor.expected_future_state(states, ZERO),
        ]
        for query in queries:
            (message,) = told(query)
            assert message.startswith("For 3 of 3 states the classifier's odds do not average 1")
            mean, error = message.split("candidates: ")[1].split(" for the worst")[0].split(" ± ")
            assert abs(float(mean) - float(shown)) < 4 * float(error) < float(shown) / 2
        assert told(lambda: predictor.log_ratio(states, ZERO, states)) == []  # is not divided by the average


def test_few_candidates_are_no_reason_for_a_warning() -> None:
    predictor = ShiftedNormal()
    assert told(lambda: predictor.probability(ZERO, ZERO, positive, candidates=np.array([[0.5]]))) == []
    assert told(lambda: predictor.probability(np.zeros((0, 1)), ZERO, positive)) == []


def test_a_classifier_that_learned_the_exact_future_is_trusted_and_one_that_could_not_is_not() -> None:
    mdp = random_tabular(0)
    data, states, actions = mdp.collect(20_000, seed=1), np.repeat(np.arange(4), 2), np.tile(np.arange(2), 4)

    def ask(estimator: FutureStateEstimator) -> Any:
        return estimator.probability(states, actions, lambda goals: goals > 1)

    good = FutureStateEstimator(0.8, hidden=(32,), learning_rate=falling, seed=0).fit(data, steps=700)
    assert told(lambda: ask(good)) == []
    exact = mdp.future(mdp.behavior, 0.8)[:, :, 2:].sum(axis=-1).ravel()
    assert np.abs(ask(good).value - exact).max() < 0.05
    # With w limited to 0.2 the recursion keeps at most (1 - gamma) + gamma 0.2 = 0.36 of the future.
    clipped = FutureStateEstimator(0.8, hidden=(32,), learning_rate=falling, w_clip=0.2, seed=0)
    (message,) = told(lambda: ask(clipped.fit(data, steps=700, n_steps=1)))
    assert message.startswith("For 8 of 8 states")
    assert 0.15 < float(message.split("candidates: ")[1].split(" ±")[0]) < 0.4


@pytest.mark.parametrize("kind", [FutureStateEstimator, HindsightQEstimator, OneStepModel])
def test_states_that_are_far_from_the_data(kind: type[FutureStateEstimator], tmp_path: Path) -> None:
    data = one_episode()
    # Meters or millimeters: the same answer.
    for unit in (np.ones(2, np.float32), np.array([1.0, 1000.0], np.float32)):
        scaled = {name: value * unit for name, value in data.items()}
        fitted = kind(0.8, hidden=(8,), seed=0).fit(scaled, steps=2)
        fitted.save(tmp_path / "file")
        for estimator in (fitted, kind.load(tmp_path / "file")):

            def ratio(states: np.ndarray, estimator: Any = estimator, scaled: dict[str, Any] = scaled) -> list[str]:
                return told(lambda: estimator.log_ratio(states, scaled["actions"][0], scaled["observations"][:5]))

            assert ratio(scaled["observations"]) == []  # all states of the data
            assert ratio(np.array([0.0, 0.5], np.float32) * unit) == []  # between them
            rows = np.array([[0.0, 0.0], [0.0, 6.0]], np.float32) * unit  # the data ends at 2
            (message,) = ratio(rows)
            assert message.startswith("1 of 2 states are far from the data")
            # The nearest state of the data, in standard deviations, over the largest such distance between states of the data.
            standard = scaled["observations"] / scaled["observations"].std(axis=0)
            between = np.linalg.norm(standard[:, None] - standard[None], axis=-1) + np.diag(np.full(len(standard), np.inf))
            own = np.linalg.norm(standard - rows[1] / scaled["observations"].std(axis=0), axis=1).min()
            assert f"number 1 is {own / between.min(axis=1).max():.3g} times as far" in message


def test_a_state_that_the_data_lacks_among_numbered_ones() -> None:
    numbers = np.random.default_rng(0).integers(4, size=500)
    data = {"observations": numbers[:-1], "actions": np.zeros(499, dtype=int), "next_observations": numbers[1:]}
    estimator = FutureStateEstimator(0.8, hidden=(8,), seed=0).fit(data, policy=np.ones((5, 1)), steps=2)
    assert told(lambda: estimator.log_ratio(np.arange(4), None, np.arange(4))) == []
    assert len(told(lambda: estimator.log_ratio(np.arange(5), None, np.arange(4)))) == 1


def test_the_default_takes_ten_recorded_steps_only_for_the_data_s_own_policy() -> None:
    data = random_tabular(0).collect(2000, seed=1, length=20)
    table = np.full((4, 2), 0.5)

    def answer(policy: Any, **arguments: Any) -> np.ndarray:
        estimator = FutureStateEstimator(0.8, hidden=(8,), seed=0).fit(data, policy=policy, steps=5, **arguments)
        return estimator.log_ratio(np.arange(4), np.zeros(4, dtype=int), np.arange(4))

    assert np.array_equal(answer(None), answer(None, n_steps=10))
    assert not np.array_equal(answer(None), answer(None, n_steps=1))
    assert np.array_equal(answer(table), answer(table, n_steps=1))

"""Bad input gets an error that says what to do, before anything is learned."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO, TD3
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_clearning import FutureStateEstimator, HindsightQEstimator, OneStepModel, TablePolicy


def data(n: int = 50, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    result = {"observations": rng.random((n, 3)).astype(np.float32), "actions": rng.random((n, 2)).astype(np.float32)}
    return {**result, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros((49, 2))}, "'observations': 50, 'actions': 49"),
        ({"observations": np.zeros((0, 3)), "actions": np.zeros((0, 2))}, "is empty"),
        ({"observations": np.full((50, 3), np.nan)}, "NaN or inf"),
        ({"truncations": np.zeros(7)}, "'truncations': 7"),
        ({"next_observations": np.zeros((50, 4))}, "need the same shape"),
        ({"next_observations": np.zeros((20, 3))}, "'next_observations': 20"),
        ({"terminations": np.ones(50)}, "every episode has a single row"),
        ({"actions": np.full(50, -1)}, "0, 1, … of a Discrete"),
    ],
)
def test_datasets_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FutureStateEstimator().fit(data(**changes), steps=1)


@pytest.mark.parametrize("name", ["dones", "truncation", "terminated"])
def test_ends_under_another_name_are_not_left_unread(name: str) -> None:
    arrays = {"observations": np.zeros((9, 2)), "actions": np.zeros((9, 1)), name: np.arange(9) == 4}
    with pytest.raises(ValueError, match=f"has '{name}': name the ends of episodes `terminations`"):
        FutureStateEstimator().fit(arrays, steps=1)


def test_no_dataset_at_all() -> None:
    with pytest.raises(ValueError, match="lacks"):
        FutureStateEstimator().fit({"states": np.zeros(3)})
    with pytest.raises(ValueError, match="is not a dataset"):
        FutureStateEstimator().fit(np.zeros((5, 3)))
    empty = ReplayBuffer(10, spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), "cpu")
    with pytest.raises(ValueError, match="is empty"):
        FutureStateEstimator().fit(empty)
    with pytest.raises(FileNotFoundError, match="minari download"):
        FutureStateEstimator().fit("no/such/dataset-v0")


def test_policies_that_do_not_fit_the_data() -> None:
    discrete = PPO("MlpPolicy", gym.make("CartPole-v1"), device="cpu")
    with pytest.raises(ValueError, match="action space is Discrete"):
        FutureStateEstimator().fit(data(), policy=discrete)
    other = TD3("MlpPolicy", gym.make("Pendulum-v1"), device="cpu", buffer_size=10)
    with pytest.raises(ValueError, match="takes observations of the shape"):
        FutureStateEstimator().fit(data(observations=np.zeros((50, 5)), actions=np.zeros((50, 1))), policy=other)
    with pytest.raises(ValueError, match="returned actions of the shape"):
        FutureStateEstimator().fit(data(), policy=lambda observations: np.zeros((len(observations), 5)))
    with pytest.raises(ValueError, match="TablePolicy"):
        FutureStateEstimator().fit(data(), policy=np.full((3, 2), 0.5))
    numbers = np.arange(50) % 4
    with pytest.raises(ValueError, match="the data has 4 states"):
        FutureStateEstimator().fit({"observations": numbers, "actions": numbers % 2}, policy=np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="add up to 1"):
        TablePolicy(np.ones((3, 2)), lambda observations: observations)
    with pytest.raises(ValueError, match="not 'random'"):
        FutureStateEstimator().fit(data(), policy="random")


def test_less_data_than_the_method_needs() -> None:
    pair = {"observations": np.zeros((1, 3)), "actions": np.zeros((1, 2)), "next_observations": np.ones((1, 3))}
    with pytest.raises(ValueError, match="no two transitions that follow"):
        FutureStateEstimator().fit(pair)
    with pytest.raises(ValueError, match="No two transitions"):
        OneStepModel().fit(pair)
    with pytest.warns(UserWarning, match="longest episode has 49 steps, less than the horizon"):
        FutureStateEstimator(0.99, hidden=(4,)).fit(data(), method="mc", steps=1)
    with pytest.warns(UserWarning, match="whatever `policy` is"):
        FutureStateEstimator(0.5, hidden=(4,)).fit(data(), lambda obs: np.zeros((len(obs), 2)), "mc", steps=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.0}, "`gamma`"),
        ({"lambda_": 2}, "`lambda_`"),
        ({"w_clip": 0}, "`w_clip`"),
        ({"n_classifiers": 0}, "`n_classifiers`"),
        ({"methd": "td"}, "Unknown arguments"),
        ({"steps": 3}, "are `fit`'s"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FutureStateEstimator(**arguments)


def test_a_whole_number_is_a_learning_rate_and_a_list_has_sizes() -> None:
    for kind in (FutureStateEstimator, OneStepModel):
        kind(0.5, hidden=[4], learning_rate=1).fit(data(), steps=1)  # type: ignore[arg-type]


def test_unknown_methods_and_readings() -> None:
    with pytest.raises(ValueError, match="`method` must be one of"):
        FutureStateEstimator().fit(data(), method="q")
    with pytest.raises(ValueError, match="`reading` must be one of"):
        HindsightQEstimator(reading="both")
    with pytest.raises(ValueError, match="observations of a Box"):
        OneStepModel().fit({"observations": np.arange(5), "actions": np.zeros((5, 1))})


def test_questions_that_do_not_fit() -> None:
    estimator = FutureStateEstimator(0.5, hidden=(4,))
    with pytest.raises(ValueError, match="call `fit"):
        estimator.log_ratio(np.zeros(3), np.zeros(2), np.zeros(3))
    estimator.fit(data(), steps=2)
    states, actions = np.zeros((4, 3)), np.zeros((4, 2))
    with pytest.raises(ValueError, match="observations need the shape"):
        estimator.log_ratio(np.zeros((4, 2)), actions, states)
    with pytest.raises(ValueError, match="4 states but 3 actions"):
        estimator.log_ratio(states, actions[:3], states)
    with pytest.raises(ValueError, match="goals need the shape"):
        estimator.log_ratio(states, actions, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="pass `actions`"):
        estimator.expected_future_state(states)
    with pytest.raises(ValueError, match="no candidates"):
        estimator.expected_future_state(states, actions, np.zeros((0, 3)))
    with pytest.raises(ValueError, match="event must give one value for each"):
        estimator.probability(states, actions, lambda goals: goals > 0)
    with pytest.raises(ValueError, match="`marginal` must be"):
        estimator.density(states, actions, states, marginal="kernels")

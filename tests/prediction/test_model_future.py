"""model.future: the classifiers of a trained CLearning model answer."""

from typing import Any

import numpy as np
import pytest
import torch as th
from small_models import small_model
from stable_baselines3 import PPO
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import FutureStateEstimator
from sb3_clearning.envs.gridworld import ContinuousGridworld


@pytest.fixture(scope="module")
def observations() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    state = rng.uniform(0, 4, size=(3, 2)).astype(np.float32)
    return {"observation": state, "achieved_goal": state}


def test_the_ratio_is_the_mean_logit_with_the_goal_commanded(observations: dict[str, np.ndarray]) -> None:
    model = small_model(ContinuousGridworld(), lambda_on_w=True).learn(40)
    goals = np.random.default_rng(1).uniform(0, 4, size=(5, 2)).astype(np.float32)
    action = np.array([0.3, -0.2], dtype=np.float32)
    ratios = model.future.log_ratio(observations, action, goals)
    assert ratios.shape == (3, 5)
    for i in range(3):
        for j in range(5):
            one = {**{key: value[i : i + 1] for key, value in observations.items()}, "desired_goal": goals[j : j + 1]}
            with th.no_grad():
                logits = model.critic(obs_as_tensor(one, model.device), th.as_tensor(action[None]))
            assert np.isclose(ratios[i, j], float(logits.mean()), atol=1e-5)
    # Without an action: what the policy does when commanded to that goal.
    one = {**{key: value[:1] for key, value in observations.items()}, "desired_goal": goals[:1]}
    chosen = model.predict(one, deterministic=True)[0]
    own = model.future.log_ratio(observations, None, goals)
    assert np.isclose(own[0, 0], model.future.log_ratio(observations, chosen[0], goals)[0, 0], atol=1e-5)
    estimate = model.future.probability(observations, action, lambda g: g[:, 0] > 2)
    assert estimate.value.shape == (3,)
    assert ((estimate.value > 0) & (estimate.value < 1)).all()
    assert model.future.expected_future_state(observations, action).shape == (3, 2)


def test_the_ratio_of_a_density_that_integrates_to_more(observations: dict[str, np.ndarray]) -> None:
    model = small_model(ContinuousGridworld(), lambda_=0.6, lambda_on_w=False, gamma=0.9).learn(40)
    goals, action = observations["achieved_goal"], np.zeros(2, dtype=np.float32)
    one = {**{key: value[:1] for key, value in observations.items()}, "desired_goal": goals[1:2]}
    with th.no_grad():
        logits = model.critic(obs_as_tensor(one, model.device), th.zeros(1, 2))
    # Futures are summed over 1 / (1 - gamma) steps: 0.6 (1 - gamma) + 0.4 of each.
    mass = sum(0.9**step * (0.6 * 0.1 + 0.4) for step in range(1000))
    assert np.isclose(
        model.future.log_ratio(observations, action, goals)[0, 1], float(logits.mean()) - np.log(mass), atol=1e-5
    )


def test_observations_are_normalised_as_in_training(observations: dict[str, np.ndarray]) -> None:
    env = VecNormalize(DummyVecEnv([ContinuousGridworld]), norm_reward=False)
    model = small_model(env, lambda_on_w=True).learn(40)
    goals = observations["achieved_goal"]
    ratios = model.future.log_ratio(observations, np.zeros(2), goals)
    one = {**{key: value[:1] for key, value in observations.items()}, "desired_goal": goals[1:2]}
    normalized = env.normalize_obs(one)
    assert isinstance(normalized, dict)
    with th.no_grad():
        logits = model.critic(obs_as_tensor(normalized, model.device), th.zeros(1, 2))
    assert np.isclose(ratios[0, 1], float(logits.mean()), atol=1e-5)


def test_an_empty_buffer_asks_for_candidates(observations: dict[str, np.ndarray]) -> None:
    model = small_model(ContinuousGridworld())
    with pytest.raises(ValueError, match="pass `candidates`"):
        model.future.expected_future_state(observations, np.zeros(2))
    assert model.future.expected_future_state(observations, np.zeros(2), observations["achieved_goal"]).shape == (3, 2)


def test_an_estimator_on_the_models_buffer_and_policy() -> None:
    model = small_model(ContinuousGridworld()).learn(60)
    estimator = FutureStateEstimator(0.8, hidden=(16,), seed=0, policy_samples=2)
    estimator.fit(model.replay_buffer, policy=model, method="td", steps=20)
    obs = {key: space.sample()[None] for key, space in model.observation_space.spaces.items()}  # type: ignore[attr-defined]
    assert estimator.expected_future_state(obs, np.zeros((1, 2))).shape == (1, 2)
    assert estimator.expected_future_state(obs).shape == (1, 2)


def test_an_on_policy_model_with_discrete_actions_as_the_policy() -> None:
    import gymnasium as gym

    env = gym.make("CartPole-v1")
    model = PPO("MlpPolicy", env, device="cpu", seed=0)
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {"observations": rng.random((100, 4)).astype(np.float32), "actions": rng.integers(2, size=100)}
    estimator = FutureStateEstimator(0.8, crop=[0, 2], hidden=(16,), seed=0).fit(data, policy=model, steps=20)
    assert estimator.expected_future_state(data["observations"][0]).shape == (2,)

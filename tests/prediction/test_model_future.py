"""model.future: the classifiers of a trained CLearning model answer."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, FutureStateEstimator, GoalReplayBuffer
from sb3_clearning.envs.gridworld import ContinuousGridworld
from tests.support.small_models import small_model


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
    model = small_model(ContinuousGridworld(), lambda_=0.6, lambda_on_w=False, gamma=0.9, n_steps=1).learn(40)
    goals, action = observations["achieved_goal"], np.zeros(2, dtype=np.float32)
    one = {**{key: value[:1] for key, value in observations.items()}, "desired_goal": goals[1:2]}
    with th.no_grad():
        logits = model.critic(obs_as_tensor(one, model.device), th.zeros(1, 2))
    # Futures are summed over 1 / (1 - gamma) steps: 0.6 (1 - gamma) + 0.4 of each.
    mass = sum(0.9**step * (0.6 * 0.1 + 0.4) for step in range(1000))
    assert np.isclose(
        model.future.log_ratio(observations, action, goals)[0, 1], float(logits.mean()) - np.log(mass), atol=1e-5
    )


def test_observations_are_normalized_as_in_training(observations: dict[str, np.ndarray]) -> None:
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


#: The probabilities of four places as the next one, whatever is done, and as the commanded goal.
PLACES, COMMANDS = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.1, 0.1, 0.7])


class Lottery(gym.Env[Any, np.ndarray]):
    """Four places, one-hot."""

    def __init__(self) -> None:
        place = spaces.Box(0, 1, (4,), np.float32)
        self.observation_space = spaces.Dict({key: place for key in ("observation", "achieved_goal", "desired_goal")})
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, **_: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {key: np.eye(4, dtype=np.float32)[3] for key in ("observation", "achieved_goal", "desired_goal")}, {}


def lottery_model(**kwargs: Any) -> CLearning:
    """:return: A model with 20,000 transitions in episodes of ten, which all begin in the last place"""
    n, rng, eye = 20_000, np.random.default_rng(0), np.eye(4, dtype=np.float32)
    following = rng.choice(4, p=PLACES, size=n)
    states, commanded = np.roll(following, 1), np.repeat(rng.choice(4, p=COMMANDS, size=n // 10), 10)
    states[::10] = 3

    def observations(places: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": eye[places], "achieved_goal": eye[places], "desired_goal": eye[commanded]}

    model = small_model(Lottery(), gamma=0.5, buffer_size=n, batch_size=512, learning_rate=3e-3, tau=0.05, **kwargs)
    actions = rng.uniform(-1, 1, size=(n, 1)).astype(np.float32)
    model.replay_buffer.load_arrays(
        observations(states), actions, np.zeros(n, dtype=bool), np.arange(n) % 10 == 9, observations(following)
    )
    return model


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 1.0])
def test_candidates_are_draws_of_what_training_tells_futures_from(fraction: float) -> None:
    model = lottery_model(commanded_goal_fraction=fraction)
    found = model.replay_buffer.transitions()
    visited, commanded = found.next_observations["achieved_goal"].mean(0), found.observations["desired_goal"].mean(0)
    expected = (1 - fraction) * visited + fraction * commanded
    for n in (1000, 10_000):  # the candidates of an answer, and the sample of the marginal
        counts = model.future._visited_goals()[:n].sum(axis=0)
        assert counts.sum() == n
        # Chi-square of three degrees of freedom: above 16.3 in one of a thousand samples.
        assert (((counts - n * expected) ** 2) / (n * expected)).sum() < 16.3


def test_mean_odds_are_one_over_the_candidates() -> None:
    model = lottery_model(commanded_goal_fraction=0.9, lambda_=0.5).learn_offline(500)
    places = np.eye(4, dtype=np.float32)
    states, action = {"observation": places, "achieved_goal": places}, np.zeros(1)
    odds = np.exp(model.future.log_ratio(states, action, model.future._visited_goals()[:1000]))
    assert abs(odds.mean() - 1) < 0.12
    # Over visited goals alone they are not: they are told from commanded ones, among which some places are rare.
    assert (np.exp(model.future.log_ratio(states, action, places)) @ PLACES).mean() > 1.8
    # A place's probability is an average over one-hot goals.
    assert np.abs(model.future.expected_future_state(states, action).mean(axis=0) - PLACES).max() < 0.06


@pytest.mark.parametrize("steps", [7, 40])
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_the_buffer_s_random_goals_are_next_states_and_commands(kind: type, steps: int) -> None:
    goal = spaces.Box(0, 200, (2,), kind)
    space = spaces.Dict({"observation": spaces.Box(0, 200, (1,)), "achieved_goal": goal, "desired_goal": goal})
    buffer = GoalReplayBuffer(32, space, spaces.Box(-1, 1, (1,)), "cpu", n_envs=2)
    for step in range(steps):  # episodes of five; 40 steps go over the ring's seam

        def at(time: int) -> dict[str, np.ndarray]:
            place: np.ndarray = np.array([[time, 0], [time, 1]], dtype=kind)
            return {"observation": place[:, :1].astype(np.float32), "achieved_goal": place, "desired_goal": 100 + place}

        done = np.full(2, step % 5 == 4)
        buffer.add(at(2 * step), at(2 * step + 1 if step % 5 == 4 else 2 * step + 2), np.zeros((2, 1)), done, done, [{}, {}])
    found = buffer.transitions()

    def as_rows(goals: np.ndarray) -> list[tuple[int, ...]]:
        return sorted(map(tuple, goals.astype(int).tolist()))

    assert as_rows(buffer.random_goals(100)) == as_rows(found.next_observations["achieved_goal"])
    assert as_rows(buffer.random_goals(100, 1.0)) == as_rows(found.observations["desired_goal"])
    for n in (4, 8):
        some = buffer.random_goals(n, 0.25, seed=1)
        assert some.shape == (n, 2)
        assert (some[:, 0] >= 100).sum() == n // 4
    assert np.array_equal(buffer.random_goals(4, 0.5, seed=1), buffer.random_goals(4, 0.5, seed=1))


def test_a_question_leaves_training_s_random_numbers_alone(observations: dict[str, np.ndarray]) -> None:
    model = small_model(ContinuousGridworld(), commanded_goal_fraction=0.5).learn(40)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    model.future.expected_future_state(observations, np.zeros(2))
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_an_estimator_on_the_models_buffer_and_policy() -> None:
    model = small_model(ContinuousGridworld()).learn(60)
    estimator = FutureStateEstimator(0.8, hidden=(16,), seed=0, policy_samples=2)
    estimator.fit(model.replay_buffer, policy=model, method="td", steps=20)
    obs = {key: space.sample()[None] for key, space in model.observation_space.spaces.items()}  # type: ignore[attr-defined]
    assert estimator.expected_future_state(obs, np.zeros((1, 2))).shape == (1, 2)
    assert estimator.expected_future_state(obs).shape == (1, 2)


def test_an_on_policy_model_with_discrete_actions_as_the_policy() -> None:
    env = gym.make("CartPole-v1")
    model = PPO("MlpPolicy", env, device="cpu", seed=0)
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {"observations": rng.random((100, 4)).astype(np.float32), "actions": rng.integers(2, size=100)}
    estimator = FutureStateEstimator(0.8, crop=[0, 2], hidden=(16,), seed=0).fit(data, policy=model, steps=20)
    assert estimator.expected_future_state(data["observations"][0]).shape == (2,)

"""FutureStateEstimator against exact answers."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import TD3
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import FutureStateEstimator, HindsightQEstimator, OneStepModel, TablePolicy
from sb3_clearning.prediction.queries import FuturePredictor
from tests.support.tabular import falling, random_tabular, table_of

GAMMA = 0.8


@pytest.mark.parametrize("method", ["mc", "td", "mixed"])
def test_the_data_s_own_future_is_the_exact_one(method: str) -> None:
    mdp = random_tabular(0)
    estimator = FutureStateEstimator(GAMMA, hidden=(32,), learning_rate=falling, seed=0)
    estimator.fit(mdp.collect(20_000, seed=1), method=method, steps=700)
    predicted, exact = table_of(estimator, mdp), mdp.future(mdp.behavior, GAMMA)
    assert np.abs(predicted - exact).max() < 0.04
    assert np.abs(predicted.sum(axis=-1) - 1).max() < 0.06


@pytest.mark.parametrize("average", [False, True])
def test_td_predicts_another_policy_than_the_data_s(average: bool) -> None:
    mdp = random_tabular(11)
    data = mdp.collect(20_000, seed=1)
    exact, own = mdp.future(mdp.other, GAMMA), mdp.future(mdp.behavior, GAMMA)
    assert np.abs(exact - own).max() > 0.15  # else the test could not tell
    estimator = FutureStateEstimator(GAMMA, hidden=(32,), learning_rate=falling, seed=0, average_next_actions=average)
    estimator.fit(data, policy=mdp.other, steps=700)
    off = np.abs(table_of(estimator, mdp) - exact)
    assert off.max() < 0.1
    assert off.mean() < 0.03 < np.abs(own - exact).mean() / 2
    # Without an action the policy's own is meant: the mean over its actions.
    mean = np.einsum("sa,sat->st", mdp.other, exact)
    states = np.arange(len(mean))
    assert np.abs(estimator.density(states, None, states, marginal="data") - mean).max() < 0.1


def test_random_goals_of_another_distribution_give_the_same_density() -> None:
    mdp = random_tabular(10)
    even = np.tile(np.arange(4), 100)
    estimator = FutureStateEstimator(GAMMA, hidden=(32,), learning_rate=falling, seed=0)
    estimator.fit(mdp.collect(20_000, seed=1), policy=mdp.other, steps=700, random_goals=even)
    exact = mdp.future(mdp.other, GAMMA)
    assert np.abs(table_of(estimator, mdp) - exact).max() < 0.05
    # The ratio itself is one to the even distribution.
    ratio = np.exp(estimator.log_ratio(np.array([0]), np.array([0]), np.arange(4)))[0]
    assert np.abs(ratio / 4 - exact[0, 0]).max() < 0.05


@pytest.mark.parametrize("method", ["mc", "td", "mixed"])
def test_an_absorbing_termination_is_stayed_in(method: str) -> None:
    # 0 goes to 1 or, with probability 1/4, to the terminal 2; 1 goes to 0.
    rng = np.random.default_rng(0)
    observations, following, ended = [], [], []
    for _ in range(800):
        state = 0
        while state != 2:
            next_state = (2 if rng.random() < 0.25 else 1) if state == 0 else 0
            observations.append(state)
            following.append(next_state)
            ended.append(next_state == 2)
            state = next_state
    data = {
        "observations": np.array(observations),
        "actions": np.zeros(len(ended), dtype=int),
        "next_observations": np.array(following),
        "terminations": np.array(ended),
    }
    chain = np.array([[0, 0.75, 0.25], [1.0, 0, 0], [0, 0, 1.0]])
    exact = (1 - GAMMA) * chain @ np.linalg.inv(np.eye(3) - GAMMA * chain)
    estimator = FutureStateEstimator(GAMMA, hidden=(32,), learning_rate=falling, seed=0, absorbing=True)
    estimator.fit(data, method=method, steps=600)
    predicted = estimator.density(np.arange(2), np.array(0), np.arange(3), marginal="data")
    assert np.abs(predicted - exact[:2]).max() < 0.05


def linear_data(n: int, seed: int) -> dict[str, np.ndarray]:
    """s' = s + a + noise, with actions that keep the state within a few units but are not those of the policy."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-2, 2, size=(n, 2)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(n, 2)).astype(np.float32)
    following = states + actions + 0.1 * rng.standard_normal((n, 2)).astype(np.float32)
    return {"observations": states, "actions": actions, "next_observations": following}


def contracting(observations: np.ndarray) -> np.ndarray:
    return -0.4 * observations


def exact_linear_mean(states: np.ndarray, actions: np.ndarray, gamma: float) -> np.ndarray:
    # E[s after d steps] = 0.6^(d - 1) (s + a)
    return (1 - gamma) * (states + actions) / (1 - 0.6 * gamma)


def test_continuous_actions_and_a_cropped_state() -> None:
    gamma = 0.6
    estimator = FutureStateEstimator(gamma, crop=[1], hidden=(64,), learning_rate=lambda left: 5e-3 * left + 1e-4, seed=0)
    estimator.fit(linear_data(10_000, 0), policy=contracting, steps=700)
    rng = np.random.default_rng(1)
    states, actions = rng.uniform(-1.2, 1.2, size=(60, 2)), rng.uniform(-0.6, 0.6, size=(60, 2))
    exact = exact_linear_mean(states, actions, gamma)[:, 1:]
    predicted = estimator.expected_future_state(states, actions)
    assert predicted.shape == (60, 1)
    assert np.sqrt(np.mean((predicted - exact) ** 2)) < 0.12 < np.std(exact) / 2


def test_the_one_step_model_unrolls_to_the_exact_mean() -> None:
    gamma = 0.8
    model = OneStepModel(gamma, horizon=60, hidden=(64,), learning_rate=3e-3, seed=0)
    model.fit(linear_data(5000, 0), policy=contracting, steps=500)
    rng = np.random.default_rng(1)
    states, actions = rng.uniform(-1, 1, size=(40, 2)), rng.uniform(-0.6, 0.6, size=(40, 2))
    exact = exact_linear_mean(states, actions, gamma)
    assert np.abs(model.expected_future_state(states, actions) - exact).max() < 0.1 < np.abs(exact).max() / 3
    assert np.abs(model.expected_future_state(states[0], actions[0]) - exact[0]).max() < 0.1
    # The state falls below 0.2 after k steps, 0.6^k (s + a) < 0.2: until then it is above.
    first = (states + actions)[:, 0]
    steps = np.where(first > 0.2, np.floor(np.log(0.2 / np.maximum(first, 0.2)) / np.log(0.6)) + 1, 0)
    chance = model.probability(states, actions, lambda goals: goals[:, 0] > 0.2)
    assert np.abs(chance.value - (1 - gamma**steps)).mean() < 0.06
    reward = model.expected_reward(states, actions, lambda goals: 2 * goals[:, 1])
    assert np.allclose(reward.value, 2 * model.expected_future_state(states, actions)[:, 1], atol=1e-5)


def test_the_one_step_model_s_density_integrates_to_one() -> None:
    model = OneStepModel(0.5, crop=[0], horizon=20, hidden=(32,), learning_rate=3e-3, seed=0)
    model.fit(linear_data(3000, 0), policy=contracting, steps=300)
    points = np.linspace(-4, 4, 4001)[:, None]
    density = model.density(np.array([1.0, 0.0]), np.array([0.0, 0.0]), points, marginal="data")
    assert abs(np.trapezoid(density, points[:, 0]) - 1) < 0.01


def test_the_one_step_model_learns_the_data_s_own_actions() -> None:
    # One long trajectory of the contracting policy with noise.
    rng = np.random.default_rng(0)
    states = np.empty((4000, 1), dtype=np.float32)
    actions = np.empty_like(states)
    state = np.zeros(1)
    for t in range(len(states)):
        states[t], actions[t] = state, -0.4 * state
        state = state + actions[t] + 0.5 * rng.standard_normal(1)
    model = OneStepModel(0.8, horizon=40, hidden=(32,), learning_rate=3e-3, seed=0)
    model.fit({"observations": states, "actions": actions}, steps=600)
    start = np.array([[1.0], [-0.5]])
    assert np.abs(model.expected_future_state(start, -0.4 * start) - exact_linear_mean(start, -0.4 * start, 0.8)).max() < 0.1


def test_a_table_policy_for_unnumbered_observations() -> None:
    mdp = random_tabular(3)
    data = mdp.collect(10_000, seed=1)
    for name in ("observations", "next_observations"):
        data[name] = np.eye(4, dtype=np.float32)[data[name]]
    policy = TablePolicy(mdp.other, lambda observations: observations.argmax(axis=1))
    estimator = FutureStateEstimator(GAMMA, hidden=(32,), learning_rate=falling, seed=0, normalize=False)
    estimator.fit(data, policy=policy, steps=500, action_space=spaces.Discrete(2))
    exact = mdp.future(mdp.other, GAMMA)
    estimate = estimator.probability(np.eye(4), np.zeros(4, dtype=int), lambda goals: goals[:, 2] == 1)
    assert np.abs(estimate.value - exact[:, 0, 2]).max() < 0.08


def test_a_table_as_a_list_is_the_same_as_an_array() -> None:
    mdp = random_tabular(3)
    data = mdp.collect(200, seed=1)
    table = np.full((5, 3), 1 / 3)  # one state and one action more than the data has
    one, two = (
        FutureStateEstimator(GAMMA, hidden=(8,), seed=0).fit(data, policy, steps=20) for policy in (table, table.tolist())
    )
    query = np.array([4]), np.array([2]), np.arange(5)
    assert np.array_equal(one.log_ratio(*query), two.log_ratio(*query))


@pytest.mark.parametrize("kind", [FutureStateEstimator, HindsightQEstimator, OneStepModel])
def test_a_model_that_was_trained_in_a_normalization(kind: type[FuturePredictor]) -> None:
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    model = TD3("MlpPolicy", env, learning_starts=50, policy_kwargs={"net_arch": [8]}, seed=0, device="cpu").learn(200)
    statistics = env.obs_rms
    assert isinstance(statistics, RunningMeanStd)
    before = (statistics.mean.copy(), statistics.var.copy(), statistics.count)

    def act(observations: np.ndarray) -> np.ndarray:
        """The same policy, with the normalization written out."""
        scaled = (observations - before[0]) / np.sqrt(before[1] + env.epsilon)
        return model.predict(np.clip(scaled, -env.clip_obs, env.clip_obs).astype(np.float32), deterministic=True)[0]

    states = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32) * [1, 1, 8]
    assert np.abs(act(states) - model.predict(states, deterministic=True)[0]).max() > 0.01
    answers = []
    for policy in (model, act):
        estimator: Any = kind(gamma=0.5, hidden=(8,), seed=0)
        estimator.fit(model.replay_buffer, policy=policy, steps=30, deterministic=True)
        answers.append([estimator.log_ratio(states, action, states) for action in (None, act(states), np.zeros(1))])
    (own, same, learned), (_, _, learned_too) = answers
    assert np.allclose(own, same, atol=1e-4)
    assert np.allclose(learned, learned_too, atol=1e-4)
    assert np.array_equal(before[0], statistics.mean)
    assert np.array_equal(before[1], statistics.var)
    assert before[2] == statistics.count


def test_hindsight_q_reaches_its_own_fixed_point() -> None:
    # Q = ((1 - l) T + l p gamma E[Q']) / ((1 - l) T + l p), elementwise over (s, a, g): what the weighted loss is least at.
    mdp, lambda_ = random_tabular(4), 0.7
    data = mdp.collect(20_000, seed=1)
    marginal = np.bincount(data["next_observations"], minlength=4) / 20_000
    q = np.zeros_like(mdp.transitions)
    for _ in range(200):
        value = np.einsum("sa,sag->sg", mdp.other, q)
        following = np.einsum("sat,tg->sag", mdp.transitions, value)
        positive, random = (1 - lambda_) * mdp.transitions, lambda_ * marginal
        q = (positive + random * GAMMA * following) / (positive + random)
    estimator = HindsightQEstimator(GAMMA, lambda_, hidden=(32,), learning_rate=falling, seed=0)
    estimator.fit(data, policy=mdp.other, steps=700)
    states, actions = (axis.ravel() for axis in np.meshgrid(np.arange(4), np.arange(2), indexing="ij"))
    learned = np.exp(estimator.log_q(states, actions, np.arange(4))).reshape(4, 2, 4)
    assert np.abs(learned - q).max() < 0.1
    assert np.abs(learned - q).mean() < 0.02
    # Both readings are made of the same Q.
    as_density = HindsightQEstimator(GAMMA, lambda_, reading="density", hidden=(32,), learning_rate=falling, seed=0)
    as_density.fit(data, policy=mdp.other, steps=700)
    density = as_density.density(states, actions, np.arange(4), marginal="data").reshape(4, 2, 4)
    assert np.allclose(density, learned, atol=1e-5)


def test_fits_are_reproducible_and_seeds_differ() -> None:
    data = random_tabular(0).collect(1000, seed=0)
    fits = [FutureStateEstimator(GAMMA, hidden=(8,), seed=seed).fit(data, steps=20) for seed in (0, 0, 1)]
    answers = [fit.log_ratio(np.arange(4), np.array(0), np.arange(4)) for fit in fits]
    assert np.array_equal(answers[0], answers[1])
    assert not np.array_equal(answers[0], answers[2])


def test_the_key_of_a_dict_that_is_predicted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = {"joints": rng.normal(size=(300, 3)).astype(np.float32), "force": rng.normal(size=(300, 1)).astype(np.float32)}
    data = {"observations": states, "actions": rng.normal(size=(300, 1)), "terminals": np.arange(300) % 20 == 19}
    settings: dict[str, Any] = {"hidden": (16,), "n_classifiers": 1, "seed": 0}
    with pytest.raises(ValueError, match=r"have the keys \['force', 'joints'\], not 'observation'.*`crop=\{\"key\": None\}`"):
        FutureStateEstimator(0.5, **settings).fit(data, steps=2)
    with pytest.raises(ValueError, match="`crop` must name one key"):
        FutureStateEstimator(0.5, crop={"joints": [0]}, **settings).fit({**data, "observations": states["joints"]}, steps=2)
    estimator = FutureStateEstimator(0.5, crop={"joints": [0, 2]}, **settings).fit(data, steps=20)
    one = {key: value[7] for key, value in states.items()}
    goals = states["joints"][:4, [0, 2]]
    found = estimator.log_ratio(one, np.zeros(1), goals)
    assert found.shape == (4,)
    visited = {tuple(goal) for goal in states["joints"][:, [0, 2]].tolist()}
    assert {tuple(goal) for goal in estimator._goals.decode(estimator._visited).tolist()} <= visited
    estimator.save(tmp_path / "estimator.safetensors")
    np.testing.assert_array_equal(
        FutureStateEstimator.load(tmp_path / "estimator.safetensors").log_ratio(one, np.zeros(1), goals), found
    )


def test_a_function_as_crop_gets_the_dict_as_everywhere() -> None:
    rng = np.random.default_rng(0)
    states = {"joints": rng.normal(size=(300, 3)).astype(np.float32), "force": rng.normal(size=(300, 1)).astype(np.float32)}
    data = {"observations": states, "actions": rng.normal(size=(300, 1)), "terminals": np.arange(300) % 20 == 19}

    def crop(observations: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([observations["force"], observations["joints"][:, 1:2]], axis=1)

    estimator = FutureStateEstimator(0.5, crop=crop, hidden=(16,), seed=0).fit(data, steps=5)
    visited = {tuple(goal) for goal in crop(states).tolist()}
    assert {tuple(goal) for goal in estimator._goals.decode(estimator._visited).tolist()} <= visited
    with pytest.raises(ValueError, match=r"returned the shape \(1,\) for 285 observations"):
        FutureStateEstimator(0.5, crop=lambda observations: observations["joints"][0, :1], seed=0).fit(data, steps=2)


def test_policies_that_answer_wrongly() -> None:
    data = {"observations": np.zeros((40, 2)), "actions": np.zeros((40, 1)), "truncations": np.arange(40) % 20 == 19}
    for act, message in (
        (lambda obs: np.full((len(obs), 1), 9.0), "The policy's actions lie outside .* first in state 0"),
        (lambda obs: (np.zeros((len(obs), 1)), None), "returned a tuple instead of actions. Pass a model itself"),
    ):
        with pytest.raises(ValueError, match=message):
            FutureStateEstimator(0.5, seed=0).fit(data, policy=act, steps=1, action_space=spaces.Box(-2.0, 2.0, (1,)))


def test_settings_that_are_no_settings() -> None:
    for settings, message in (
        ({"absorbing": "no"}, "`absorbing` must be True or False"),
        ({"w_clip": 0}, r"\(inf: no limit\)"),
    ):
        with pytest.raises(ValueError, match=message):
            FutureStateEstimator(0.5, **settings)
    assert FutureStateEstimator(0.5, device="auto").device.type in ("cpu", "cuda")

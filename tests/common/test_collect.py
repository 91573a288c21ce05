"""Collected datasets are what a plain loop records."""

import random
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from sb3_clearning import CLearning, Experience, FutureStateEstimator, collect
from tests.support.goal_envs import POINT_ID, ImageGoalEnv, PointEnv, make
from tests.support.small_models import small_model

KEYS = ("observation", "achieved_goal", "desired_goal")


def towards_the_goal(obs: dict[str, np.ndarray]) -> np.ndarray:
    """A policy whose episodes end in both ways: some of the goals are too far away for the time."""
    return np.clip(0.3 * (obs["desired_goal"] - obs["achieved_goal"]), [-0.3, -0.1], [0.2, 0.4]).astype(np.float32)


def recorded(env: gym.Env, act: Callable[[Any], np.ndarray], steps: int, seed: int) -> list[tuple[Any, ...]]:
    """The loop of the documentation of Gymnasium."""
    rows = []
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        action = act(obs)
        following, _, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, following, terminated, terminated or truncated or step == steps - 1))
        obs = env.reset()[0] if terminated or truncated else following
    return rows


def assert_same(found: Experience, rows: list[tuple[Any, ...]]) -> None:
    observations, actions, following, terminated, ends = zip(*rows, strict=True)
    assert np.array_equal(found.actions, np.stack(actions))
    assert found.terminations.tolist() == list(terminated)
    assert found.ends.tolist() == list(ends)
    for values, expected in ((found.observations, observations), (found.next_observations, following)):
        if isinstance(expected[0], dict):
            assert isinstance(values, dict)
            assert all(np.array_equal(values[key], np.stack([obs[key] for obs in expected])) for key in expected[0])
        else:
            assert np.array_equal(np.asarray(values), np.stack(expected))


def one(obs: dict[str, np.ndarray]) -> np.ndarray:
    return towards_the_goal({key: value[None] for key, value in obs.items()})[0]


def test_three_environments_one_after_the_other() -> None:
    found = collect(towards_the_goal, DummyVecEnv([make(PointEnv, terminates=True)] * 3), 100, seed=5)
    rows = [row for index in range(3) for row in recorded(PointEnv(terminates=True), one, 34, 5 + index)]
    assert len(found) == 102  # a whole number of steps of three environments
    assert_same(found, rows)
    assert found.terminations.any()
    assert (found.ends & ~found.terminations).sum() > 3
    assert found.observation_space == PointEnv().observation_space
    assert found.action_space == PointEnv().action_space


def test_the_policy_sees_normalized_observations_and_the_dataset_holds_the_original_ones() -> None:
    # It clips nearly everything, and its statistics would change with each step: nothing can be undone.
    env = VecNormalize(DummyVecEnv([make(PointEnv, terminates=True)] * 2), clip_obs=0.01)
    statistics = {key: env.obs_rms[key].mean.copy() for key in KEYS}
    seen: list[Any] = []

    def act(obs: dict[str, np.ndarray]) -> np.ndarray:
        seen.append(obs)
        return 5 * towards_the_goal(obs)

    found = collect(act, env, 60, seed=5)
    played = iter(found.actions)
    assert_same(found, [r for i in range(2) for r in recorded(PointEnv(terminates=True), lambda _: next(played), 30, 5 + i)])
    assert found.observation_space == PointEnv().observation_space
    assert all(np.array_equal(env.obs_rms[key].mean, statistics[key]) for key in KEYS)
    for t, obs in enumerate(seen):
        expected: Any = env.normalize_obs({key: found.observations[key][[t, 30 + t]] for key in KEYS})
        assert all(np.array_equal(obs[key], expected[key]) for key in KEYS)


def test_random_actions_and_the_kinds_of_environments() -> None:
    space = PointEnv().action_space
    space.seed(3)
    rows = recorded(gym.make(POINT_ID), lambda _: space.sample(), 40, 3)
    for env in (POINT_ID, gym.make(POINT_ID), DummyVecEnv([lambda: gym.make(POINT_ID)])):
        assert_same(collect("random", env, 40, seed=np.int64(3)), rows)  # type: ignore[arg-type]
    assert not np.array_equal(collect("random", POINT_ID, 40).actions, collect("random", POINT_ID, 40).actions)


def test_a_seed_repeats_a_stochastic_model_and_leaves_the_random_states_alone() -> None:
    env = gym.make("CartPole-v1")
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=0, device="cpu")
    states = random.getstate(), np.random.get_state(legacy=False)["state"]["key"], th.get_rng_state()
    first, second = collect(model, env, 60, seed=1), collect(model, env, 60, seed=1)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], states[1])
    assert th.equal(th.get_rng_state(), states[2])
    assert np.array_equal(first.actions, second.actions)
    assert np.array_equal(np.asarray(first.observations), np.asarray(second.observations))
    assert first.actions.dtype == np.int64
    assert set(first.actions.tolist()) == {0, 1}
    assert not np.array_equal(first.actions, collect(model, env, 60, seed=2).actions)
    rows = recorded(gym.make("CartPole-v1"), lambda obs: model.predict(obs, deterministic=True)[0], 60, 1)
    assert_same(collect(model, env, 60, deterministic=True, seed=1), rows)
    FutureStateEstimator(gamma=0.5).fit(first, steps=2)  # discrete actions, with their space


def test_a_model_sees_a_plain_environment_through_its_normalization() -> None:
    env = VecNormalize(DummyVecEnv([PointEnv]))
    model = small_model(env, learning_starts=20).learn(30)
    env.training = False
    assert_same(
        collect(model, PointEnv(), 25, deterministic=True, seed=1),
        recorded(PointEnv(), lambda obs: model.predict(env.normalize_obs(obs), deterministic=True)[0], 25, 1),
    )


def test_a_recurrent_policy_gets_its_state_and_the_beginnings_of_episodes() -> None:
    class Counts:
        """Acts by the number of steps in the episode."""

        def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False) -> Any:
            state = np.where(episode_start, 0, 0 if state is None else state)
            return np.repeat(0.01 * state[:, None], 2, axis=1), state + 1

    actions = collect(Counts(), PointEnv(length=4), 10).actions
    assert actions[:, 0] == pytest.approx(0.01 * np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1]))


def test_a_normalization_under_another_wrapper_is_refused() -> None:
    with pytest.raises(ValueError, match="outermost"):
        collect("random", VecMonitor(VecNormalize(DummyVecEnv([PointEnv]))), 5)


def test_the_progress_bar_counts_to_its_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    collect("random", PointEnv(), 30, progress_bar=True)
    assert "30/30" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r'pip install "sb3_clearning\[extra\]"'):
        collect("random", PointEnv(), 30, progress_bar=True)


def test_discrete_observations() -> None:
    found = collect("random", "FrozenLake-v1", 30, seed=0)
    assert isinstance(found.observation_space, spaces.Discrete)
    assert np.asarray(found.observations).shape == (30,)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda obs: np.full((2, 2), 9.0), r"in step 0 lie outside of the action space.*from 9 to 9. Clip or rescale them"),
        (lambda obs: np.full((2, 2), np.nan), "in step 0 have NaN or inf"),
        (lambda obs: np.full((2, 2), "up"), "actions are <U2, not numbers"),
        (lambda obs: (np.zeros((2, 2)), None), "returned a tuple instead of actions. Pass a model itself, not its `predict`"),
        (lambda obs: np.zeros(2), r"shape \(2,\), not \(2, 2\): it is called with the observations of all 2 environments"),
    ],
)
def test_actions_that_no_learner_would_take(policy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collect(policy, DummyVecEnv([PointEnv] * 2), 10)


def test_discrete_actions_are_whole_numbers() -> None:
    with pytest.raises(ValueError, match=r"actions are float64, but Discrete\(2\) has whole numbers"):
        collect(lambda obs: np.full(1, 0.5), "CartPole-v1", 10)


def test_a_model_of_other_spaces() -> None:
    model = small_model(PointEnv())
    with pytest.raises(ValueError, match=r"for the observation space Dict\(.*the environment has Dict\(.*'phase'"):
        collect(model, PointEnv(extra=True), 10)
    with pytest.raises(ValueError, match=r"for the action space Box\(.*the environment has Box\(.*\(1, 2\)"):
        collect(model, PointEnv(action_shape=(1, 2)), 10)
    with pytest.raises(ValueError, match=r"the environment has Box\("):
        collect(model, "CartPole-v1", 10)


def test_a_model_that_was_made_from_data_and_one_of_images() -> None:
    data = collect("random", PointEnv(), 20)
    wide = spaces.Dict({key: spaces.Box(-np.inf, np.inf, part.shape) for key, part in data.observation_space.items()})  # type: ignore[attr-defined]
    model = CLearning.from_spaces(wide, data.action_space, device="cpu")
    assert len(collect(model, PointEnv(), 5)) == 5
    for channels_first in (True, False):
        env = ImageGoalEnv(channels_first)
        assert len(collect(small_model(env), ImageGoalEnv(channels_first), 5)) == 5


def test_a_dataset_is_equal_to_itself_only() -> None:
    first, second = collect("random", PointEnv(), 5, seed=0), collect("random", PointEnv(), 5, seed=0)
    assert first == first
    assert first != second
    assert len({first, second}) == 2

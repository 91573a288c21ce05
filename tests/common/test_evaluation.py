"""Evaluation counts what a task scores."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning.common.evaluation import EVALUATION_SEED, evaluate_goals
from sb3_clearning.envs import GoalFromObservation
from tests.support.goal_envs import ImageGoalEnv, PassesItsGoal, PointEnv
from tests.support.small_models import small_model

Observation = dict[str, Any]


class FirstCoordinateScored(gym.Wrapper[Observation, np.ndarray, Observation, np.ndarray]):
    """A task that scores the first coordinate of its goal only, as Sawyer Push does with the puck."""

    def _say(self, observation: Observation, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "distance": abs(float(observation["achieved_goal"][0] - observation["desired_goal"][0]))}

    def reset(self, **kwargs: Any) -> tuple[Observation, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return observation, self._say(observation, info)

    def step(self, action: np.ndarray) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, self._say(observation, info)


@pytest.mark.parametrize("scored", [False, True])
def test_distances_are_those_of_an_episode_after_the_other(scored: bool) -> None:
    model = small_model(PointEnv())

    def make() -> gym.Env:
        return FirstCoordinateScored(PointEnv()) if scored else PointEnv()

    env, initial, final, minimum, average, success = make(), [], [], [], [], []
    for seed in range(EVALUATION_SEED, EVALUATION_SEED + 7):
        observation, _ = env.reset(seed=seed)
        distances, done = [], False
        while True:
            gap = (observation["achieved_goal"] - observation["desired_goal"]).astype(np.float64)
            distances.append(abs(gap[0]) if scored else np.hypot(*gap))
            if done:
                break
            observation, _, terminated, truncated, info = env.step(model.predict(observation, deterministic=True)[0])
            done = terminated or truncated
        initial.append(distances[0])
        final.append(distances[-1])
        minimum.append(min(distances))
        average.append(np.mean(distances[1:]))
        success.append(info["is_success"])
    found = evaluate_goals(model, make, n_episodes=7, n_envs=3)
    expected = {"success": success, "initial": initial, "final": final, "minimum": minimum, "average": average}
    for name, values in expected.items():
        assert found[name] == pytest.approx(np.mean(values), rel=1e-5), name
    assert found["change"] == pytest.approx(np.mean(final) - np.mean(initial), rel=1e-5)


def test_a_single_environment_gives_the_same_and_stays_open() -> None:
    model, env = small_model(PointEnv()), PointEnv()
    assert evaluate_goals(model, env, n_episodes=3) == pytest.approx(evaluate_goals(model, PointEnv, n_episodes=3), rel=1e-6)
    env.reset()


class SaysSuccessAtReset(gym.Wrapper[Observation, np.ndarray, Observation, np.ndarray]):
    """As the paper's tasks do."""

    def reset(self, **kwargs: Any) -> tuple[Observation, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return observation, {**info, "is_success": bool(observation["desired_goal"][0] > 0)}


def test_the_share_of_episodes_that_begin_at_their_goal() -> None:
    model, env = small_model(PointEnv()), PointEnv()
    goals = [env.reset(seed=EVALUATION_SEED + episode)[0]["desired_goal"][0] for episode in range(7)]
    expected = np.mean([goal > 0 for goal in goals])
    assert 0 < expected < 1
    found = evaluate_goals(model, lambda: SaysSuccessAtReset(PointEnv()), n_episodes=7, n_envs=3)
    assert found["initial_success"] == pytest.approx(expected)
    assert "initial_success" not in evaluate_goals(model, PointEnv, n_episodes=3)  # PointEnv does not say it


@pytest.mark.parametrize("key", ["is_success", "success"])
def test_success_at_any_time_beside_success_at_the_end(key: str) -> None:
    model, env = small_model(PointEnv()), PassesItsGoal(key)
    said = []  # for each episode the success after each of its steps
    for seed in range(EVALUATION_SEED, EVALUATION_SEED + 12):
        observation, _ = env.reset(seed=seed)
        episode, done = [], False
        while not done:
            observation, _, terminated, done, info = env.step(model.predict(observation, deterministic=True)[0])
            assert not terminated
            episode.append(info[key])
        said.append(episode)
    at_the_end, any_time = np.mean([episode[-1] for episode in said]), np.mean([any(episode) for episode in said])
    assert 0 < at_the_end < any_time < 1
    for n_envs in (1, 5):  # an environment's next episode begins with none
        found = evaluate_goals(model, lambda: PassesItsGoal(key), n_episodes=12, n_envs=n_envs)
        assert (found["success"], found["success_any_time"]) == pytest.approx((at_the_end, any_time))


def test_success_of_an_environment_that_does_not_report_it() -> None:
    found = evaluate_goals(small_model(PointEnv()), lambda: PassesItsGoal(None), n_episodes=3)
    assert np.isnan(found["success"])
    assert np.isnan(found["success_any_time"])


def test_observations_are_normalized_as_in_training() -> None:
    env = VecNormalize(DummyVecEnv([PointEnv]))
    model = small_model(env, learning_starts=10).learn(60)
    seen: list[dict[str, np.ndarray]] = []
    predict = model.predict
    model.predict = lambda obs, **kwargs: seen.append(obs) or predict(obs, **kwargs)  # type: ignore[method-assign, func-returns-value]
    evaluate_goals(model, PointEnv, n_episodes=1)
    observation, _ = PointEnv().reset(seed=EVALUATION_SEED)
    expected = env.normalize_obs({key: value[None] for key, value in observation.items()})
    for key, value in expected.items():  # type: ignore[union-attr]
        np.testing.assert_allclose(seen[0][key], value, rtol=1e-6)
        assert not np.allclose(seen[0][key], observation[key])


def test_an_environment_of_another_shape_is_named() -> None:
    model = small_model(PointEnv())
    env = GoalFromObservation(gym.make("Pendulum-v1"), [0])
    with pytest.raises(ValueError, match=r"'desired_goal': \(1,\).*, but the model was made for .*'desired_goal': \(2,\)"):
        evaluate_goals(model, env)


@pytest.mark.parametrize("channels_first", [False, True])
def test_images_with_their_channels_first_or_last(channels_first: bool) -> None:
    policy_kwargs = {"features_extractor_kwargs": {"cnn_output_dim": 8}}
    model = small_model(ImageGoalEnv(channels_first), policy_kwargs=policy_kwargs).learn(15)
    found = evaluate_goals(model, lambda: ImageGoalEnv(channels_first), 2)
    assert found == evaluate_goals(model, lambda: ImageGoalEnv(not channels_first), 2)
    assert 0 < found["final"] < 1


class CellEnv(PointEnv):
    """Goals are numbers of cells, as Python's ints."""

    def __init__(self) -> None:
        super().__init__()
        cells = spaces.Discrete(4)
        parts = {"observation": spaces.Box(-1.0, 1.0, (3,)), "achieved_goal": cells, "desired_goal": cells}
        self.observation_space = spaces.Dict(parts)

    def _observation(self) -> dict[str, Any]:
        cell, goal = (int(2 * (place[0] > 0) + (place[1] > 0)) for place in (self.position, self.goal))
        return {"observation": super()._observation()["observation"], "achieved_goal": cell, "desired_goal": goal}


def test_goals_that_are_ints() -> None:
    found = evaluate_goals(small_model(CellEnv()).learn(15), CellEnv, 3)
    assert 0 <= found["final"] <= 3

"""Evaluation counts what a task scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize

from sb3_clearning import CLearning, collect
from sb3_clearning.common.evaluation import EVALUATION_SEED, RESULT_KEYS, evaluate_goals
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
    expected = evaluate_goals(model, PointEnv, n_episodes=3)
    assert evaluate_goals(model, env, n_episodes=3) == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert tuple(expected) == RESULT_KEYS
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
    assert np.isnan(evaluate_goals(model, PointEnv, n_episodes=3)["initial_success"])  # PointEnv does not say it


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
    with pytest.warns(UserWarning, match="`success` is NaN: the environment's info has neither `is_success` nor `success`"):
        found = evaluate_goals(small_model(PointEnv()), lambda: PassesItsGoal(None), n_episodes=3)
    assert tuple(found) == RESULT_KEYS
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


@pytest.mark.parametrize("file", ["zip", "export"])
def test_an_agent_without_its_normalization_is_refused(file: str, tmp_path: Path) -> None:
    env = VecNormalize(DummyVecEnv([PointEnv]))
    model = small_model(env, learning_starts=10).learn(60)
    if file == "zip":
        model.save(tmp_path / "agent.zip")
        agent = CLearning.load(tmp_path / "agent.zip", device="cpu")
    else:
        model.export(tmp_path / "agent.safetensors")
        agent = CLearning.from_export(tmp_path / "agent.safetensors", device="cpu")
    none, unseen = "and the environment here has no such wrapper", "and the VecNormalize here has seen no observations"
    for call, why in (
        (lambda: evaluate_goals(agent, PointEnv, n_episodes=1), none),
        (lambda: evaluate_goals(agent, DummyVecEnv([PointEnv]), n_episodes=1), none),
        (lambda: evaluate_goals(agent, VecNormalize(DummyVecEnv([PointEnv])), n_episodes=1), unseen),
        (lambda: collect(agent, PointEnv(), 5), none),
        (lambda: agent.export_policy(tmp_path / "policy.onnx"), none),
        (lambda: agent.export(tmp_path / "again.safetensors"), none),  # others would get an agent without its statistics
    ):
        with pytest.raises(ValueError, match=f"The agent was trained with a VecNormalize, {why}"):
            call()
    assert not (tmp_path / "policy.onnx").exists()
    assert not (tmp_path / "again.safetensors").exists()
    env.save(str(tmp_path / "statistics.pkl"))
    restored = VecNormalize.load(str(tmp_path / "statistics.pkl"), DummyVecEnv([PointEnv]))
    found = evaluate_goals(agent, restored, n_episodes=3)
    assert found == pytest.approx(evaluate_goals(model, DummyVecEnv([PointEnv]), n_episodes=3), nan_ok=True)


def test_whoever_learns_on_without_a_normalization_needs_none(tmp_path: Path) -> None:
    small_model(VecNormalize(DummyVecEnv([PointEnv])), learning_starts=10).learn(30).save(tmp_path / "agent.zip")
    model = CLearning.load(tmp_path / "agent.zip", env=PointEnv(), device="cpu")
    with pytest.warns(UserWarning, match="has learned from normalized observations"):
        model.learn(10)
    evaluate_goals(model, PointEnv, n_episodes=1)


def one_after_the_other(model: Any, env: VecNormalize | VecFrameStack, n_episodes: int) -> dict[str, float]:
    """:return: The same measures, from the positions that the environment itself has"""
    point = env.unwrapped.envs[0]  # type: ignore[attr-defined]
    env.seed(EVALUATION_SEED)
    observation: Any = env.reset()
    final, minimum, success = [], [], []
    for _ in range(n_episodes):
        gaps, done = [np.linalg.norm(point.position - point.goal)], False
        while not done:
            before = point.position.copy(), point.goal.copy()
            action = model.predict(observation, deterministic=True)[0]
            moved = np.clip(before[0] + action[0], -1, 1)  # an ended episode has been reset by the VecEnv
            gaps.append(np.linalg.norm(moved - before[1]))
            observation, _, dones, infos = env.step(action)
            done = dones[0]
        final.append(gaps[-1])
        minimum.append(min(gaps))
        success.append(infos[0]["is_success"])
    return {"final": np.mean(final), "minimum": np.mean(minimum), "success": np.mean(success)}


@pytest.mark.parametrize("wrapper", ["normalized", "stacked", "both"])
def test_a_vec_env_is_measured_in_its_own_units(wrapper: str) -> None:
    def make() -> Any:
        env: Any = DummyVecEnv([PointEnv])
        env = VecFrameStack(env, 3) if wrapper != "normalized" else env
        return VecNormalize(env, clip_obs=1.0) if wrapper != "stacked" else env

    model = small_model(make()).learn(60)
    other = make()  # with no statistics yet: the model's are used, and kept
    found = evaluate_goals(model, other, n_episodes=5)
    if wrapper != "stacked":
        assert other.training
        assert other.obs_rms["observation"].count == model.env.obs_rms["observation"].count  # type: ignore[union-attr]
        other.training = False
    expected = one_after_the_other(model, other, 5)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert tuple(found) == RESULT_KEYS


def test_episodes_are_shared_out_among_the_environments_of_a_vec_env() -> None:
    model, made = small_model(PointEnv()), [PassesItsGoal() for _ in range(3)]
    found = evaluate_goals(model, DummyVecEnv([lambda env=env: env for env in made]), n_episodes=7)  # type: ignore[misc]
    single = []
    for index, n_episodes in enumerate((2, 2, 3)):
        env = DummyVecEnv([PassesItsGoal])
        single.append((evaluate_goals(model, env, n_episodes, seed=EVALUATION_SEED + index), n_episodes))
    for key in ("success", "success_any_time", "initial_success", "initial", "final", "average"):
        assert found[key] == pytest.approx(sum(one[key] * n for one, n in single) / 7, rel=1e-5), key


def in_a_vec_env(env: gym.Env) -> VecEnv:
    return DummyVecEnv([lambda: env])


def as_it_is(env: gym.Env) -> gym.Env:
    return env


def in_wrappers(env: gym.Env) -> VecEnv:
    return VecFrameStack(in_a_vec_env(TimeLimit(env, 5)), 1)


TRAINED_IN: list[Callable[[gym.Env], Any]] = [as_it_is, in_a_vec_env, in_wrappers]


@pytest.mark.parametrize("passed", TRAINED_IN)
def test_the_training_environment_is_refused_while_the_model_learns(passed: Callable[[gym.Env], Any]) -> None:
    env = PointEnv()
    model = small_model(env)
    with pytest.raises(ValueError, match="in use for training"):
        model.learn(15, callback=lambda locals_, globals_: evaluate_goals(model, passed(env), n_episodes=1) == {})
    own = model.get_env()
    assert own is not None
    with pytest.raises(ValueError, match="in use for training"):
        model.learn(15, callback=lambda locals_, globals_: evaluate_goals(model, own, n_episodes=1) == {})


@pytest.mark.parametrize("passed", TRAINED_IN)
def test_the_training_environment_can_be_evaluated_between_two_calls_of_learn(passed: Callable[[gym.Env], Any]) -> None:
    """The next call begins a new episode. Without that, a step would be stored that leads from one episode to another."""
    env = PointEnv(length=10)
    model = small_model(env).learn(15)
    evaluate_goals(model, passed(env), n_episodes=2)
    model.learn(15, reset_num_timesteps=False)
    assert model.num_timesteps == 30
    batch = model.replay_buffer.sample(300)
    now, then = (10 * part["observation"][:, -1] for part in (batch.observations, batch.next_observations))
    np.testing.assert_allclose(then - now, 1, atol=1e-4)  # the observation says how old the episode is
    assert model.replay_buffer.size() == 30


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
    assert found == pytest.approx(
        evaluate_goals(model, lambda: ImageGoalEnv(not channels_first), 2), rel=0, abs=0, nan_ok=True
    )
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

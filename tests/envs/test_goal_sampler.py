"""GoalSampler: where goals come from, and that the env itself pursues them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import gymnasium_robotics
import numpy as np
import pytest
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

import sb3_clearning.envs  # noqa: F401
from sb3_clearning.envs import GoalFromObservation, GoalSampler
from tests.support.goal_envs import PointEnv
from tests.support.small_models import small_model

gym.register_envs(gymnasium_robotics)


def uniform(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-0.5, 0.5, 2)


def maze(**arguments: Any) -> gym.Env:
    return gym.make("PointMaze_UMaze-v3", **{"continuing_task": True, "reset_target": False, **arguments})


def panda() -> gym.Env:
    pytest.importorskip("panda_gym", reason="pybullet has no wheel for this Python")
    return gym.make("panda_gym:PandaReach-v3")


#: An env, and its own distance of success
FOREIGN: dict[str, tuple[Callable[[], gym.Env], float]] = {
    "Fetch": (lambda: gym.make("FetchReach-v4"), 0.05),
    "PointMaze": (maze, 0.45),
    "Panda": (panda, 0.05),
    "own task": (lambda: gym.make("PointUMaze-v0"), 0.45),
    "GoalFromObservation": (lambda: GoalFromObservation(gym.make("MountainCarContinuous-v0"), crop=[0]), 0.05),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_reward_success_and_termination_follow_the_commanded_goal(name: str) -> None:
    make, threshold = FOREIGN[name]
    env = GoalSampler(make())
    start = env.reset(seed=3)[0]
    for shift in (0.1 * threshold, 3 * threshold):
        goal = np.array(start["achieved_goal"])
        goal[0] += -shift if goal[0] > 0 else shift
        obs, info = env.reset(seed=3, options={"goal": goal})
        np.testing.assert_array_equal(obs["observation"], start["observation"])
        np.testing.assert_allclose(obs["desired_goal"], goal, rtol=1e-6)
        assert not any(info.get(key) for key in ("is_success", "success")) or shift < threshold
        for _ in range(2):
            obs, reward, terminated, _, info = env.step(np.zeros(env.action_space.shape))
            np.testing.assert_allclose(obs["desired_goal"], goal, rtol=1e-6)
            reached = np.linalg.norm(obs["achieved_goal"] - goal) <= threshold
            assert reached == (shift < threshold)
            assert info.get("is_success", info.get("success")) == reached
            assert terminated == (name == "Panda" and reached)
            assert reward == env.get_wrapper_attr("compute_reward")(obs["achieved_goal"], obs["desired_goal"], info)
            if terminated:
                break


def test_goals_come_from_a_function_an_array_and_a_replay_buffer() -> None:
    array = np.array([[0.1, 0.2], [-0.3, 0.4]])
    env = GoalSampler(PointEnv(), array)
    drawn = np.array([env.reset(seed=0 if i == 0 else None)[0]["desired_goal"] for i in range(40)])
    np.testing.assert_allclose(np.unique(drawn, axis=0), array[::-1], rtol=1e-6)
    env.set_sampler(uniform)
    drawn = np.array([env.reset()[0]["desired_goal"] for _ in range(200)])
    assert np.abs(drawn).max() <= 0.5 < drawn.max() - drawn.min()
    model = small_model(PointEnv(), learning_starts=100)
    env.set_sampler(model.replay_buffer)
    own = env.reset(seed=5)[0]["desired_goal"]  # the buffer is empty: the env's own goal
    np.testing.assert_array_equal(own, PointEnv().reset(seed=5)[0]["desired_goal"])
    model.learn(30)
    stored = model.replay_buffer.observations["achieved_goal"][:30].reshape(30, 2)
    for _ in range(20):
        goal = env.reset()[0]["desired_goal"]
        assert (stored == goal).all(axis=1).any()
    env.set_sampler(None)
    np.testing.assert_array_equal(env.reset(seed=5)[0]["desired_goal"], own)


def test_goals_of_a_foreign_buffer_with_several_envs() -> None:
    space: Any = PointEnv().observation_space
    buffer = DictReplayBuffer(6, space, PointEnv().action_space, n_envs=2)
    for step in range(2):
        obs = {key: np.full((2, *space[key].shape), 0.1 * step) for key in space}
        obs["achieved_goal"][1] += 0.05
        buffer.add(obs, obs, np.zeros((2, 2)), np.zeros(2), np.zeros(2), [{}, {}])
    env = GoalSampler(PointEnv(), buffer)
    drawn = np.unique([env.reset()[0]["desired_goal"][0] for _ in range(60)])
    np.testing.assert_allclose(drawn, [0.0, 0.05, 0.1, 0.15], atol=1e-6)


@pytest.mark.parametrize("has_goals", [True, False])
def test_goals_of_a_minari_dataset(has_goals: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import minari
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    space: Any = PointEnv().observation_space
    visited = np.random.default_rng(0).uniform(-1, 1, (6, 2)).astype(np.float32)
    observations: Any = {"observation": np.zeros((6, 3)), "achieved_goal": visited, "desired_goal": visited}
    episode = EpisodeBuffer(
        observations=observations if has_goals else np.zeros((6, 3)),
        actions=np.zeros((5, 2), dtype=np.float32),
        rewards=np.zeros(5).tolist(),
        terminations=np.zeros(5, dtype=bool).tolist(),
        truncations=(np.arange(5) == 4).tolist(),
    )
    dataset = minari.create_dataset_from_buffers(
        "point/walk-v0",
        buffer=[episode],
        observation_space=space if has_goals else space["observation"],
        action_space=PointEnv().action_space,
    )
    if has_goals:
        env = GoalSampler(PointEnv(), dataset)
        drawn = np.array([env.reset()[0]["desired_goal"] for _ in range(60)])
        np.testing.assert_array_equal(np.unique(drawn, axis=0), np.unique(visited, axis=0))
    else:
        with pytest.raises(ValueError, match="no achieved_goal: pass the goals as an array"):
            GoalSampler(PointEnv(), dataset)


def test_the_seed_determines_goals_and_start() -> None:
    def goals(seed: int) -> np.ndarray:
        env = GoalSampler(PointEnv(), uniform)
        first = env.reset(seed=seed)[0]
        return np.concatenate([first["desired_goal"], first["observation"], env.reset()[0]["desired_goal"]])

    np.testing.assert_array_equal(goals(1), goals(1))
    assert (goals(1) != goals(2)).sum() == 6  # all but the time


def test_goals_outside_of_the_space_are_refused_wherever_they_come_from() -> None:
    env = GoalSampler(gym.make("PointUMaze-v0"))
    for sampler in (lambda rng: np.array([0.0, 9.0]), None):
        env.set_sampler(sampler)
        with pytest.raises(ValueError, match=r"The goal \[0\. 9\.\] .* lies outside of the observations' bounds"):
            env.reset(options={} if sampler else {"goal": [0.0, 9.0]})
    with pytest.raises(ValueError, match=r"The goal \[0\. 9\.\] of sampler lies outside"):
        GoalSampler(gym.make("PointUMaze-v0"), [[0.0, 9.0]])


class Stubborn(gym.Env):
    """Takes goals by its own method only."""

    def __init__(self) -> None:
        self.point = PointEnv()
        self.observation_space, self.action_space = self.point.observation_space, self.point.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.point.reset(seed=seed)

    def step(self, action: np.ndarray) -> Any:
        return self.point.step(action)

    def please_reach(self, goal: np.ndarray) -> None:
        self.point.goal = goal.astype(np.float64) + 1e-7  # rounded on the way


def test_an_env_that_keeps_its_own_goal_is_an_error_and_set_goal_mends_it() -> None:
    with pytest.raises(TypeError, match="Stubborn takes no goal by reset"):
        GoalSampler(Stubborn(), uniform).reset(seed=0)
    env = GoalSampler(Stubborn(), uniform, set_goal=lambda base, goal: None)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"pass set_goal=function of \(env, goal\)"):
        env.step(np.zeros(2))
    env = GoalSampler(Stubborn(), uniform, set_goal=Stubborn.please_reach)
    goal = env.reset(seed=0)[0]["desired_goal"]
    np.testing.assert_array_equal(env.step(np.zeros(2))[0]["desired_goal"], goal)


def test_an_env_that_changes_its_goal_within_an_episode_is_an_error() -> None:
    env = GoalSampler(maze(reset_target=True))
    start = env.reset(seed=0)[0]["achieved_goal"]
    env.reset(seed=0, options={"goal": start})
    env.step(np.zeros(2))  # shows the goal that it was for
    with pytest.raises(ValueError, match="reset_target=False"):
        env.step(np.zeros(2))


@pytest.mark.parametrize("vec_env", [DummyVecEnv, SubprocVecEnv])
def test_vectorized_envs_take_another_sampler(vec_env: Any) -> None:
    venv = vec_env([lambda: GoalSampler(PointEnv(), uniform) for _ in range(2)])
    venv.env_method("set_sampler", np.array([[0.25, -0.25]]))
    np.testing.assert_allclose(venv.reset()["desired_goal"], [[0.25, -0.25]] * 2)
    venv.close()


def test_a_wrapped_env_can_be_pickled_and_made_again() -> None:
    env = GoalSampler(gym.make("PointUMaze-v0"), [[0.25, -0.25]])
    copy = pickle.loads(pickle.dumps(env))
    np.testing.assert_allclose(copy.reset(seed=0)[0]["desired_goal"], [0.25, -0.25])
    assert env.spec is not None
    np.testing.assert_allclose(gym.make(env.spec).reset(seed=0)[0]["desired_goal"], [0.25, -0.25])

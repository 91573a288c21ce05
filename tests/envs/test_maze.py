import gymnasium as gym
import numpy as np
from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv

from tests.support.distributions import assert_independent, many_resets

# The middles of the U's seven cells.
CELLS = np.array([[-1, 1], [0, 1], [1, 1], [1, 0], [1, -1], [0, -1], [-1, -1]])


def test_starts_and_goals_are_spread_over_the_cells() -> None:
    starts, goals = many_resets(gym.make("PointUMaze-v0"), 400)
    for points in (starts[:, :2], goals):
        from_cells = points[:, None] - CELLS
        nearest = np.abs(from_cells).max(axis=-1).argmin(axis=1)
        assert np.abs(from_cells[np.arange(400), nearest]).max() <= 0.25 + 1e-6
        assert np.abs(from_cells[np.arange(400), nearest]).max() > 0.24
        assert np.bincount(nearest, minlength=7).min() > 30  # 57 expected
        assert_independent(*from_cells[np.arange(400), nearest].T)
    assert np.linalg.norm(starts[:, :2] - goals, axis=1).min() > 0.45  # never solved before it begins
    np.testing.assert_array_equal(starts[:, 2:], 0.0)


def test_resets_are_those_of_the_simulator() -> None:
    """The same seed gives the same start and goal as in gymnasium-robotics."""
    env, native = gym.make("PointUMaze-v0"), PointMazeEnv(continuing_task=True, reset_target=False)
    for seed in range(20):
        ours, theirs = env.reset(seed=seed)[0], native.reset(seed=seed)[0]
        for key, value in theirs.items():
            np.testing.assert_allclose(ours[key], value, atol=1e-6)


def test_steps_are_those_of_the_simulator() -> None:
    env, native = gym.make("PointUMaze-v0"), PointMazeEnv(continuing_task=True, reset_target=False)
    first, _ = env.reset(seed=0)
    native.reset(seed=0)
    native.point_env.set_state(first["observation"][:2].astype(np.float64), np.zeros(2))
    env.unwrapped.data.qpos[:] = native.point_env.data.qpos  # type: ignore[attr-defined]
    generator = np.random.default_rng(0)
    action = np.zeros(2, dtype=np.float32)
    fastest = 0.0
    for step in range(300):
        if step % 25 == 0:  # long pushes, which reach the walls and the limit of the velocity
            action = np.sign(generator.uniform(-1, 1, 2)).astype(np.float32)
        ours = env.step(action)[0]["observation"]
        np.testing.assert_allclose(ours, native.step(action)[0]["observation"], atol=1e-4)
        fastest = max(fastest, np.abs(ours[2:]).max())
    assert fastest > 5.0


def test_goal_stays_after_it_is_reached() -> None:
    env = gym.make("PointUMaze-v0")
    first, _ = env.reset(seed=0)
    start, info = env.reset(seed=0, options={"goal": first["achieved_goal"]})
    assert info["is_success"]
    following, reward, terminated, _, info = env.step(np.zeros(2, dtype=np.float32))
    assert reward == 0.0
    assert info["is_success"]
    assert not terminated
    np.testing.assert_array_equal(following["desired_goal"], start["desired_goal"])

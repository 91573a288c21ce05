"""The batched tasks against their single environments, and the maze against MuJoCo and against brute force."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sb3_clearning.envs import BatchedGridworld, BatchedPointMaze
from sb3_clearning.envs.batched import BatchedTask
from sb3_clearning.envs.gridworld import cell_of
from sb3_clearning.envs.point_maze import CELLS, HALF, WALL, PointMaze

TASKS = [(BatchedPointMaze, "PointMaze-v0"), (BatchedGridworld, "ContinuousGridworld-v0")]


@pytest.mark.parametrize(("batched", "task_id"), TASKS)
def test_one_batched_environment_is_the_single_one_bit_for_bit(batched: type[BatchedTask], task_id: str) -> None:
    """The same seed and actions: the same observations, goals, rewards, ends and infos, over the episodes' ends."""
    many, one = batched(1), gym.make(task_id)
    many.seed(7)
    found: Any = many.reset()
    expected, _ = one.reset(seed=7)
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(2 * batched.episode_length + 5):
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key][0], value)
            assert found[key].dtype == value.dtype
        action = rng.uniform(-1.2, 1.2, 2).astype(np.float32)
        found, rewards, dones, infos = many.step(action[None])
        expected, reward, terminated, truncated, info = one.step(action)
        assert (rewards[0], dones[0], terminated) == (reward, truncated, False)
        if truncated:
            ended += 1
            for key, value in expected.items():
                np.testing.assert_array_equal(infos[0]["terminal_observation"][key], value)
            assert infos[0]["TimeLimit.truncated"]
            assert (infos[0]["distance"], infos[0]["is_success"]) == (info["distance"], info["is_success"])
            expected, _ = one.reset()
    assert ended == 2


def test_each_of_many_mazes_moves_as_a_single_one() -> None:
    n = 40
    many = BatchedPointMaze(n)
    many.seed(3)
    obs: Any = many.reset()
    singles = []
    for env in range(n):
        single = PointMaze()
        single.reset(seed=0)
        single._position, single._velocity = many._position[env : env + 1].copy(), np.zeros((1, 2))
        singles.append(single)
    rng = np.random.default_rng(1)
    held = rng.uniform(-1, 1, (n, 2))
    for step in range(250):
        if step % 20 == 0:
            held = rng.uniform(-1, 1, (n, 2))
        obs, *_ = many.step(held)
        for env, single in enumerate(singles):
            np.testing.assert_array_equal(obs["observation"][env], single.step(held[env])[0]["observation"])


def test_many_gridworlds_move_by_the_probabilities() -> None:
    n = 30_000
    world = BatchedGridworld(n)
    world.seed(0)
    before: Any = world.reset()
    after: Any = world.step(np.tile([0.3, -0.8], (n, 1)))[0]
    step = cell_of(after["observation"]) - cell_of(before["observation"])
    assert not cell_of(before["observation"] - before["achieved_goal"]).any()
    inside = (cell_of(before["observation"]) > 0).all(axis=1) & (cell_of(before["observation"]) < 4).all(axis=1)
    moved = [(step[inside, 0] == 1).mean(), (step[inside, 1] == -1).mean()]
    assert moved == pytest.approx([0.3, 0.8], abs=0.02)
    assert np.unique(step[:, 0]).tolist() == [0, 1]
    assert np.unique(step[:, 1]).tolist() == [-1, 0]
    # At the edge nobody leaves
    assert (step[cell_of(before["observation"])[:, 0] == 4, 0] == 0).all()


def test_away_from_walls_the_ball_moves_as_in_mujoco() -> None:
    mujoco_maze: Any = gym.make("PointUMaze-v0").unwrapped
    ours = PointMaze()
    for env in (mujoco_maze, ours):
        env.reset(seed=0)
    mujoco_maze.data.qpos[:] = (-1.0, 1.0)
    mujoco_maze.data.qvel[:] = 0.0
    ours._position = np.array([[-1.0, 1.0]])
    for action in [(1.0, 0.1)] * 15 + [(0.2, -0.3)] * 10 + [(-1.0, 0.25)] * 15:
        theirs = mujoco_maze.step(np.array(action, dtype=np.float32))[0]["observation"]
        found = ours.step(np.array(action, dtype=np.float32))[0]["observation"]
        assert np.abs(found[:2]).max() < 1.39
        np.testing.assert_allclose(found, theirs, atol=1e-6)
    assert np.abs(found[:2] - (-1, 1)).max() > 0.1
    mujoco_maze.close()


def test_no_ball_enters_a_wall_or_gains_energy_there() -> None:
    n = 500
    maze = BatchedPointMaze(n)
    maze.seed(1)
    maze.reset()
    rng = np.random.default_rng(2)
    held = rng.uniform(-1, 1, (n, 2))
    corners = np.array([[x, y] for x in WALL[:, 0] for y in WALL[:, 1]])
    close = 0
    for step in range(290):
        if step % 30 == 0:
            held = np.sign(rng.uniform(-1, 1, (n, 2)))
        before = np.linalg.norm(np.clip(maze._velocity, -5, 5), axis=1)
        maze.step(held)
        position = maze._position
        assert np.abs(position).max() <= HALF - 0.1 + 1e-12
        outside = np.linalg.norm(position - np.clip(position, WALL[0], WALL[1]), axis=1)
        assert outside.min() >= 0.1 - 1e-9
        # The force alone gives a ball at most 100 N * sqrt(2) / 4.19 kg * 0.01 s.
        assert (np.linalg.norm(maze._velocity, axis=1) <= before + 0.338).all()
        close += int((np.linalg.norm(position[:, None] - corners[[2, 3]], axis=-1) < 0.11).sum())
    assert close > 0, "no ball was ever at a corner"


def test_a_wall_stops_the_velocity_towards_it_and_not_along_it() -> None:
    ours = PointMaze()
    ours.reset(seed=0)
    ours._position, ours._velocity = np.array([[0.0, 0.62]]), np.array([[1.0, -3.0]])
    ours.step(np.zeros(2, dtype=np.float32))
    assert ours._position[0, 1] == pytest.approx(0.6)
    assert ours._velocity[0] == pytest.approx((1.0, 0.0), abs=0.01)


def test_starts_and_goals_are_in_different_free_cells() -> None:
    maze = BatchedPointMaze(7000)
    maze.seed(0)
    obs: Any = maze.reset()
    start, goal = (np.abs(obs[key][:, None] - CELLS).max(axis=-1).argmin(axis=1) for key in ("achieved_goal", "desired_goal"))
    assert np.abs(obs["achieved_goal"] - CELLS[start]).max() <= 0.2501
    assert (start != goal).all()
    pairs = np.bincount(start * 7 + goal, minlength=49).reshape(7, 7)
    off_diagonal = pairs[~np.eye(7, dtype=bool)]
    assert off_diagonal.min() > 100, "each of the 42 pairs is as likely: 167 of 7000"
    assert off_diagonal.max() < 240


def test_gymnasium_s_checker_accepts_the_single_maze() -> None:
    check_env(gym.make("PointMaze-v0", render_mode="rgb_array").unwrapped, skip_render_check=True)
    maze = gym.make("PointMaze-v0", render_mode="rgb_array")
    maze.reset(seed=0)
    picture: Any = maze.render()
    assert picture.shape == (480, 480, 3)
    assert (picture == (40, 80, 200)).all(axis=-1).sum() == pytest.approx(np.pi * 0.1**2 * 160**2, rel=0.05)


def test_the_seed_determines_everything_and_resets_go_on() -> None:
    maze = BatchedPointMaze(4)
    maze.seed(5)
    first: Any = maze.reset()
    second: Any = maze.reset()
    maze.seed(5)
    again: Any = maze.reset()
    np.testing.assert_array_equal(first["observation"], again["observation"])
    assert not np.array_equal(first["observation"], second["observation"])


def test_wrong_use_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="`n_envs` must be"):
        BatchedPointMaze(0)
    maze = BatchedPointMaze(2)
    with pytest.raises(gym.error.ResetNeeded):
        maze.step(np.zeros((2, 2)))
    maze.reset()
    with pytest.raises(ValueError, match="actions of shape"):
        maze.step(np.zeros(2))
    with pytest.raises(ValueError, match="must be finite"):
        maze.step(np.full((2, 2), np.nan))
    with pytest.raises(AttributeError, match="no attributes per environment"):
        maze.set_attr("x", 1)

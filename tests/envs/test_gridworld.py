from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from sb3_clearning.envs.gridworld import SIZE, cell_of, future_distribution, transitions
from tests.support.distributions import assert_independent, assert_uniform, many_resets


def make(**kwargs: Any) -> Any:
    return gym.make("ContinuousGridworld-v0", **kwargs).unwrapped


def test_starts_and_goals_fill_the_world() -> None:
    starts, goals = many_resets(make(), 400)
    for samples in (starts, goals):
        for axis in range(2):
            assert_uniform(samples[:, axis], -0.5, SIZE - 0.5)
        assert_independent(samples[:, 0], samples[:, 1])
        noise = samples - cell_of(samples)
        assert_uniform(noise[:, 0], -0.5, 0.5)
        assert_independent(noise[:, 0], noise[:, 1])
    assert_independent(starts[:, 0], goals[:, 0])


@pytest.mark.parametrize(("action", "expected"), [(0, (1, 0)), (1, (-1, 0)), (2, (0, 1)), (3, (0, -1))])
def test_moves_go_where_they_say_and_stop_at_the_edge(action: int, expected: tuple[int, int]) -> None:
    world = make(discrete=True)
    for seed in range(30):
        before = cell_of(world.reset(seed=seed)[0]["observation"])
        after = cell_of(world.step(action)[0]["observation"])
        wanted = [min(max(place + step, 0), 4) for place, step in zip(before, expected, strict=True)]
        assert after.tolist() == wanted


def test_checker_accepts_the_discrete_world() -> None:
    world = make(discrete=True)
    check_env(world, skip_render_check=True)
    world.reset(seed=0)
    with pytest.raises(ValueError, match="takes the actions 0 to 3"):
        world.step(4)


def test_observation_shows_the_cell_without_doubt() -> None:
    world = make(discrete=True)
    world.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(2000):
        observation = world.step(generator.integers(4))[0]["observation"]
        np.testing.assert_array_equal(cell_of(observation), world._cell)


def test_exact_future_agrees_with_simulated_futures() -> None:
    """Play the discrete world itself from each of a few states, with geometric horizons, and compare the frequencies."""
    gamma, plays = 0.7, 2000
    generator = np.random.default_rng(1)
    policy = generator.dirichlet(np.ones(4), size=25)
    exact = future_distribution(policy, gamma)
    np.testing.assert_allclose(exact.sum(axis=-1), 1.0)
    world = make(discrete=True)
    world.reset(seed=0)
    for state, action in [(0, 3), (12, 0), (23, 2)]:
        counts = np.zeros(25)
        for horizon in generator.geometric(1 - gamma, size=plays):
            world._cell = np.array(divmod(state, SIZE))
            move = action
            for _ in range(horizon):
                observation = world.step(move)[0]["observation"]
                row, column = cell_of(observation)
                move = int(generator.choice(4, p=policy[row * SIZE + column]))
            counts[row * SIZE + column] += 1
        expected = exact[state, action] * plays
        likely = expected > 5
        table = np.append(counts[likely], counts[~likely].sum()), np.append(expected[likely], expected[~likely].sum())
        assert stats.chisquare(*table).pvalue > 1e-3


def test_without_discount_the_future_is_the_next_cell() -> None:
    np.testing.assert_allclose(future_distribution(np.full((25, 4), 0.25), 0.0), transitions())


@pytest.mark.parametrize(
    ("policy", "gamma"), [(np.ones((25, 4)), 0.9), (np.full((24, 4), 0.25), 0.9), (np.full((25, 4), 0.25), 1.0)]
)
def test_impossible_questions_about_the_future_are_refused(policy: np.ndarray, gamma: float) -> None:
    with pytest.raises(ValueError, match="not"):
        future_distribution(policy, gamma)


def test_continuous_actions_are_chances_to_move() -> None:
    world = make()
    world.reset(seed=0)
    samples = []
    for _ in range(3000):
        world._cell = np.array([2, 2])
        samples.append(cell_of(world.step(np.array([0.3, -0.7], dtype=np.float32))[0]["observation"]) - 2)
    moves = np.array(samples)
    assert set(moves[:, 0]) == {0, 1}
    assert set(moves[:, 1]) == {0, -1}
    np.testing.assert_allclose(moves.mean(axis=0), [0.3, -0.7], atol=0.03)
    assert_independent(moves[:, 0], moves[:, 1])


def test_a_goal_is_reached_anywhere_in_its_cell() -> None:
    world = make()
    goal = np.array([2.4, 2.4], dtype=np.float32)
    inside, near = np.array([1.6, 1.6], dtype=np.float32), np.array([2.6, 2.4], dtype=np.float32)
    np.testing.assert_array_equal(world.compute_reward(np.array([inside, near]), np.array([goal, goal]), None), [0, -1])
    assert world.distance(near, goal) == 1.0

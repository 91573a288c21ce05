"""The distances to the goal, against a plain loop over whole episodes."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.logger import KVWriter, Logger

from sb3_clearning.common.distances import DistanceTracker, EpisodeDistances
from sb3_clearning.goal_spaces import goal_distance
from tests.support.goal_envs import PointEnv
from tests.support.small_models import small_model


def _plain_distance(one: np.ndarray, other: np.ndarray) -> float:
    return math.sqrt(sum((float(x) - float(y)) ** 2 for x, y in zip(one.reshape(-1), other.reshape(-1), strict=True)))


def _plain(path: list[float]) -> list[float]:
    """:return: What an episode with these distances, the initial one first, comes to"""
    initial, *after = path
    return [initial, after[-1], min(path), sum(after) / len(after), after[-1] - initial]


@pytest.mark.parametrize("shape", [(1, 3), (5, 3), (4, 2, 2, 3), (3, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_goal_distance_is_the_l2_norm_of_each_pair_or_of_pictures_the_root_mean_square(
    shape: tuple[int, ...], dtype: type
) -> None:
    generator = np.random.default_rng(0)
    # Bytes would wrap around if they were subtracted as bytes
    achieved: np.ndarray = generator.uniform(0, 255, shape).astype(dtype)
    desired: np.ndarray = generator.uniform(0, 255, shape).astype(dtype)
    # Pictures: the root mean square over the pixels, in [0, 1]
    scale = 1 / (255 * np.sqrt(np.prod(shape[1:]))) if dtype is np.uint8 and len(shape) == 4 else 1.0
    expected = [scale * _plain_distance(one, other) for one, other in zip(achieved, desired, strict=True)]
    distances = goal_distance(achieved, desired)
    assert distances.shape == (shape[0],)
    assert distances.tolist() == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    n_envs=st.integers(1, 4),
    n_steps=st.integers(1, 60),
    window=st.integers(1, 12),
    end_probability=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    restarts=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_tracked_episodes_are_those_of_a_plain_loop(
    n_envs: int, n_steps: int, window: int, end_probability: float, restarts: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    tracker = DistanceTracker(n_envs, window)
    paths: list[list[float]] = [[] for _ in range(n_envs)]
    finished: list[list[float]] = []
    current = generator.random(n_envs)
    for _ in range(n_steps):
        if restarts and generator.random() < 0.1:
            tracker.restart()
            paths = [[] for _ in range(n_envs)]
            current = generator.random(n_envs)
        starts = [not path for path in paths]
        assert tracker.starting() == any(starts)
        # Within an episode `before` is not read
        before = np.where(starts, current, np.nan)
        after, dones = generator.random(n_envs), generator.random(n_envs) < end_probability
        tracker.step(before, after, dones)
        for env in range(n_envs):
            paths[env] += [current[env], after[env]] if starts[env] else [after[env]]
            if dones[env]:
                finished.append(_plain(paths[env]))
                paths[env] = []
        current = np.where(dones, generator.random(n_envs), after)
    kept = finished[-window:]
    assert len(tracker.episodes) == len(kept)
    for episode, expected in zip(tracker.episodes, kept, strict=True):
        assert list(episode) == pytest.approx(expected)
    means = tracker.means()
    if kept:
        assert list(means) == ["initial", "final", "minimum", "average", "change"]
        assert list(means.values()) == pytest.approx([sum(column) / len(kept) for column in zip(*kept, strict=True)])
    else:
        assert means == {}


def test_an_episode_of_one_step_and_the_minimum_at_its_start() -> None:
    tracker = DistanceTracker(1)
    tracker.step(np.array([1.0]), np.array([3.0]), np.array([True]))
    assert list(tracker.episodes) == [EpisodeDistances(initial=1.0, final=3.0, minimum=1.0, average=3.0, change=2.0)]


def test_the_window_is_of_a_hundred_episodes_unless_told() -> None:
    tracker = DistanceTracker(1)
    for distance in range(150):
        tracker.step(np.array([0.0]), np.array([float(distance)]), np.array([True]))
    assert tracker.means()["final"] == pytest.approx(np.mean(range(50, 150)))


def test_an_episode_that_never_ends_is_logged() -> None:
    class Logs(KVWriter):
        def __init__(self) -> None:
            self.rows: list[dict[str, Any]] = []

        def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
            self.rows.append({**key_values, "step": step})

        def close(self) -> None:
            pass

    def rows(log_interval: int | None) -> list[dict[str, Any]]:
        env, logs, distances = PointEnv(length=10**9), Logs(), []
        model = small_model(env, learning_starts=10**9, seed=0)
        model.set_logger(Logger(None, [logs]))

        def record(local: dict[str, Any], _: Any) -> bool:
            distances.append(float(np.linalg.norm(env.position - env.goal)))
            return True

        model.learn(2500, callback=record, log_interval=log_interval)  # type: ignore[arg-type]
        if logs.rows:
            finals = [distances[999], distances[1999]]
            assert logs.rows[-1]["rollout/distance_final"] == pytest.approx(np.mean(finals), rel=1e-5)
            assert logs.rows[-1]["rollout/success_rate"] == np.mean(np.array(finals) < 0.15)
            assert model.replay_buffer.has_open_episodes  # for learning it is one episode
        return logs.rows

    assert [row["step"] for row in rows(4)] == [1000, 2000]
    assert rows(None) == []

"""Datasets of every kind become the same transitions."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_clearning import Experience, GoalReplayBuffer, collect
from sb3_clearning.replay.datasets import read_dataset
from tests.support.goal_envs import PointEnv

LOW, HIGH = np.array([-2.0], dtype=np.float32), np.array([4.0], dtype=np.float32)
ACTIONS = spaces.Box(LOW, HIGH)


def episodes(lengths: list[int]) -> list[np.ndarray]:
    """:return: States of episodes that can be told apart: 100 k, 100 k + 1, …, one more than there are transitions"""
    return [(100 * k + np.arange(length + 1, dtype=np.float32))[:, None] for k, length in enumerate(lengths)]


def as_triples(experience: Experience) -> list[tuple[float, float, bool, bool]]:
    observations, following = experience.observations, experience.next_observations
    if isinstance(observations, dict):
        observations, following = observations["observation"], following["observation"]
    return [
        (float(row[0]), float(next_row[0]), bool(terminated), bool(end))
        for row, next_row, terminated, end in zip(
            observations, following, experience.terminations, experience.ends, strict=True
        )
    ]


def test_arrays_without_next_observations_leave_out_what_is_not_known() -> None:
    states = episodes([3, 2])
    data = {
        "observations": np.concatenate(states),
        "actions": np.zeros((7, 1), dtype=np.float32),
        "terminals": np.array([0, 0, 0, 1, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 0, 0, 1]),
    }
    expected = [
        (0, 1, False, False),
        (1, 2, False, False),
        (2, 3, False, True),
        (100, 101, False, False),
        (101, 102, False, True),
    ]
    assert as_triples(read_dataset(data)) == expected


def test_arrays_with_next_observations_show_where_the_environment_was_reset() -> None:
    first, second = episodes([2, 2])
    data = {
        "observations": np.concatenate([first[:-1], second[:-1]]),
        "actions": np.zeros((4, 1), dtype=np.float32),
        "next_observations": np.concatenate([first[1:], second[1:]]),
    }
    experience = read_dataset(data)
    assert as_triples(experience)[1] == (1, 2, False, True)
    assert experience.last().tolist() == [1, 1, 3, 3]


def test_a_minari_dataset() -> None:
    def episode(states: np.ndarray, terminated: bool) -> SimpleNamespace:
        ends = np.zeros(len(states) - 1, dtype=bool)
        ends[-1] = terminated
        return SimpleNamespace(observations=states, actions=np.zeros((len(ends), 1)), terminations=ends, truncations=~ends)

    first, second = episodes([2, 1])
    dataset = SimpleNamespace(
        iterate_episodes=lambda: iter([episode(first, True), episode(second, False)]),
        observation_space=spaces.Box(-1000, 1000, (1,)),
        action_space=ACTIONS,
    )
    expected = [(0, 1, False, False), (1, 2, True, True), (100, 101, False, True)]
    assert as_triples(read_dataset(dataset)) == expected


@pytest.mark.parametrize("kind", ["plain", "memory", "dict", "goal"])
@pytest.mark.parametrize("size", [100, 10])
@pytest.mark.parametrize(("n_steps", "lengths"), [(17, (3, 4)), (18, (3, 1)), (17, (1, 2))])
def test_replay_buffers_of_two_environments_that_went_round(
    kind: str, size: int, n_steps: int, lengths: tuple[int, int]
) -> None:
    # The episodes of environment 0 terminate, those of environment 1 are truncated.
    box = spaces.Box(-1e5, 1e5, (1,))
    goal_space = spaces.Dict({key: box for key in ("observation", "achieved_goal", "desired_goal")})
    buffer: Any
    if kind == "plain":
        buffer = ReplayBuffer(size * 2, box, ACTIONS, "cpu", n_envs=2)
    elif kind == "memory":
        buffer = ReplayBuffer(
            size * 2, box, ACTIONS, "cpu", n_envs=2, optimize_memory_usage=True, handle_timeout_termination=False
        )
    elif kind == "dict":
        buffer = DictReplayBuffer(size * 2, goal_space, ACTIONS, "cpu", n_envs=2)
    else:
        buffer = GoalReplayBuffer(size * 2, goal_space, ACTIONS, "cpu", n_envs=2)

    def state(env: int, t: int, offset: int) -> float:
        episode, step = divmod(t, lengths[env])
        return 10_000 * env + 100 * episode + step + offset

    expected = []
    for t in range(n_steps):
        now, then = (np.array([[state(env, t, offset)] for env in range(2)], dtype=np.float32) for offset in (0, 1))
        dones = np.array([t % length == length - 1 for length in lengths])
        infos = [{}, {"TimeLimit.truncated": bool(dones[1])}]
        wrap = (lambda value: value) if kind in ("plain", "memory") else (lambda value: {key: value for key in goal_space})
        buffer.add(wrap(now), wrap(then), np.full((2, 1), t / 10 - 1, dtype=np.float32), np.zeros(2), dones, infos)
        expected.append((now[:, 0], then[:, 0], dones))
    experience = read_dataset(buffer)
    oldest = max(n_steps - size, 0) + (1 if kind == "memory" and size < n_steps else 0)
    wanted, times = [], []
    for env in range(2):
        for t in range(oldest, n_steps):
            now, then, dones = (column[env] for column in expected[t])
            newest = t == n_steps - 1
            cut = bool(dones) or newest
            if kind == "memory":
                # It stores states once: a final one is overwritten by the first of the next episode, so its row is left out,
                # and the row before ends the episode. It does not tell a truncation from a termination.
                if dones and not newest:
                    continue
                cut = newest or (t + 1 < n_steps - 1 and bool(expected[t + 1][2][env]))
            wanted.append((now, then, bool(dones) and (env == 0 or kind == "memory"), cut))
            times.append(t)
    assert as_triples(experience) == wanted
    # No episode has states of another one.
    found = np.array([row[:2] for row in wanted]) // 100
    assert (found == found[experience.last()][:, :1]).all()
    # The scaled actions are in the environment's range again: t / 10 - 1 within [-1, 1] is -2 + 6 t / 20.
    assert np.allclose(experience.actions[:, 0], -2 + 0.3 * np.array(times), atol=1e-5)


def collected(kind: str) -> Experience:
    env = {"dict": PointEnv(terminates=True), "box": gym.make("Pendulum-v1"), "discrete": gym.make("FrozenLake-v1")}[kind]
    return collect("random", env, 60, seed=0)


@pytest.mark.parametrize("kind", ["dict", "box", "discrete"])
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    experience = collected(kind)
    experience.save(tmp_path / "data")
    for found in (Experience.load(tmp_path / "data"), read_dataset(tmp_path / "data"), read_dataset(str(tmp_path / "data"))):
        for name in ("observation_space", "action_space"):
            assert getattr(found, name) == getattr(experience, name)
        for name in ("observations", "actions", "next_observations", "terminations", "ends"):
            one, two = getattr(found, name), getattr(experience, name)
            for key in two if isinstance(two, dict) else [...]:
                assert np.array_equal(one[key], two[key])
                assert one[key].dtype == two[key].dtype
    assert [path.name for path in tmp_path.iterdir()] == ["data"]  # no temporary file is left


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": np.zeros((60, 3))}, r"`actions` has the shape \(60, 3\), but is of 60 values of Box"),
        ({"ends": np.zeros(60)}, "`ends` needs 60 booleans, not float64"),
        ({"terminations": np.zeros(59, bool)}, "`terminations` needs 60 booleans"),
        ({"observations": np.zeros((60, 3))}, "`observations` and its space Dict.* do not fit"),
        ({"next_observations": {"observation": np.zeros((60, 3))}}, r"`next_observations` has the keys \['observation'\]"),
    ],
)
def test_what_does_not_fit_together_is_not_saved(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        replace(collected("dict"), **change).save(tmp_path / "data")
    assert not list(tmp_path.iterdir())


def test_discrete_actions_of_a_replay_buffer() -> None:
    buffer = ReplayBuffer(10, spaces.Box(-1, 1, (2,)), spaces.Discrete(3), "cpu")
    for t in range(4):
        state = np.full((1, 2), t, dtype=np.float32)
        buffer.add(state, state + 1, np.array([t % 3]), np.zeros(1), np.zeros(1), [{}])
    assert read_dataset(buffer).actions.tolist() == [0, 1, 2, 0]

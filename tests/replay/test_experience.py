"""Datasets of every kind become the same transitions."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_clearning import GoalReplayBuffer
from sb3_clearning.replay.datasets import Experience, read_dataset

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


def test_discrete_actions_of_a_replay_buffer() -> None:
    buffer = ReplayBuffer(10, spaces.Box(-1, 1, (2,)), spaces.Discrete(3), "cpu")
    for t in range(4):
        state = np.full((1, 2), t, dtype=np.float32)
        buffer.add(state, state + 1, np.array([t % 3]), np.zeros(1), np.zeros(1), [{}])
    assert read_dataset(buffer).actions.tolist() == [0, 1, 2, 0]

"""Offline data: plain arrays and real Minari files reach the buffer as the transitions that they are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sb3_clearning import CLearning, GoalReplayBuffer
from sb3_clearning.envs import GoalFromObservation
from sb3_clearning.replay import datasets
from tests.support.goal_envs import PointEnv


def collect(env: gym.Env, lengths: list[int], terminate: bool = False) -> list[dict[str, Any]]:
    """Random episodes: observations with one state more than actions."""
    env.action_space.seed(0)
    episodes = []
    for index, length in enumerate(lengths):
        obs, _ = env.reset(seed=index)
        observations, actions = [obs], []
        for _ in range(length):
            action = env.action_space.sample()
            observations.append(env.step(action)[0])
            actions.append(action)
        stacked = {key: np.stack([o[key] for o in observations]) for key in obs}
        episodes.append({"observations": stacked, "actions": np.stack(actions), "terminated": terminate and index % 2 == 0})
    return episodes


def as_arrays(episodes: list[dict[str, Any]], keys: list[str]) -> dict[str, Any]:
    ends = [np.arange(len(e["actions"])) == len(e["actions"]) - 1 for e in episodes]
    return {
        "observations": {key: np.concatenate([e["observations"][key][:-1] for e in episodes]) for key in keys},
        "next_observations": {key: np.concatenate([e["observations"][key][1:] for e in episodes]) for key in keys},
        "actions": np.concatenate([e["actions"] for e in episodes]),
        "terminations": np.concatenate([end & e["terminated"] for end, e in zip(ends, episodes, strict=True)]),
        "truncations": np.concatenate([end & (not e["terminated"]) for end, e in zip(ends, episodes, strict=True)]),
    }


def transitions(buffer: GoalReplayBuffer) -> set[tuple[float, ...]]:
    """All (state, scaled action, next state, done) of the buffer, by drawing far more than it holds."""
    batch = buffer.sample(200 * buffer.size() * buffer.n_envs)
    parts = [
        batch.observations["observation"],
        batch.observations["desired_goal"],
        batch.actions,
        batch.next_observations["observation"],
        batch.next_observations["achieved_goal"],
        batch.dones[:, None],
    ]
    return {tuple(np.round(row, 5)) for row in np.concatenate([part.numpy() for part in parts], axis=1).astype(float)}


def expected(episodes: list[dict[str, Any]], env: gym.Env, goals: str = "given") -> set[tuple[float, ...]]:
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    result = set()
    for episode in episodes:
        obs, actions = episode["observations"], episode["actions"]
        for t, action in enumerate(actions):
            last = t == len(actions) - 1
            goal = obs["desired_goal"][t] if goals == "given" else obs["achieved_goal"][-1]
            scaled = -1 + 2 * (action - low) / (high - low)
            done = [float(last and episode["terminated"])]
            row = [obs["observation"][t], goal, scaled, obs["observation"][t + 1], obs["achieved_goal"][t + 1], done]
            result.add(tuple(np.round(np.concatenate(row).astype(np.float32).astype(float), 5)))
    return result


def close(left: set[tuple[float, ...]], right: set[tuple[float, ...]]) -> bool:
    return len(left) == len(right) and bool(np.allclose(sorted(left), sorted(right), atol=2e-5))


LENGTHS = [5, 1, 7, 3]


@pytest.fixture
def env() -> gym.Env:
    return PointEnv()


@pytest.fixture
def make_buffer(env: gym.Env) -> Callable[..., GoalReplayBuffer]:
    def new(n_envs: int = 1) -> GoalReplayBuffer:
        return GoalReplayBuffer(1000, env.observation_space, env.action_space, n_envs=n_envs)

    return new


def test_arrays_become_the_transitions_that_they_are(env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]) -> None:
    episodes = collect(env, LENGTHS, terminate=True)
    buffer = make_buffer()
    assert buffer.load_arrays(**as_arrays(episodes, ["observation", "achieved_goal", "desired_goal"])) == sum(LENGTHS)
    assert close(transitions(buffer), expected(episodes, env))


def test_goals_that_the_data_lacks_are_the_last_ones_reached(
    env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]
) -> None:
    episodes = collect(env, LENGTHS)
    buffer = make_buffer()
    buffer.load_arrays(**as_arrays(episodes, ["observation", "achieved_goal"]))
    assert close(transitions(buffer), expected(episodes, env, goals="last"))


def test_without_next_observations_an_episode_loses_its_last_transition(
    env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]
) -> None:
    episodes = collect(env, LENGTHS)
    arrays = as_arrays(episodes, ["observation", "achieved_goal", "desired_goal"])
    del arrays["next_observations"]
    buffer = make_buffer()
    assert buffer.load_arrays(**arrays) == sum(LENGTHS) - len(LENGTHS)
    shorter = [
        {
            "observations": {key: value[:-1] for key, value in episode["observations"].items()},
            "actions": episode["actions"][:-1],
            "terminated": False,
        }
        for episode in episodes
    ]
    assert close(transitions(buffer), expected(shorter, env))
    # no future goal lies beyond an episode
    batch = buffer.sample_goals(4000, {"future": 1.0}, gamma=1.0)[0]
    reachable = [{tuple(np.round(g, 5)) for g in e["observations"]["achieved_goal"][1:].astype(np.float32)} for e in shorter]
    starts = [{tuple(np.round(o, 5)) for o in e["observations"]["observation"][:-1].astype(np.float32)} for e in shorter]
    for state, goal in zip(batch.observations["observation"].numpy(), batch.observations["desired_goal"].numpy(), strict=True):
        episode = next(i for i, states in enumerate(starts) if tuple(np.round(state, 5)) in states)
        assert tuple(np.round(goal, 5)) in reachable[episode]


def test_several_environments_share_the_data(env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]) -> None:
    episodes = collect(env, [6, 6, 4, 3])
    buffer = make_buffer(n_envs=2)
    assert buffer.load_arrays(**as_arrays(episodes, ["observation", "achieved_goal", "desired_goal"])) == 18  # 19 is odd
    found, all_of_it = transitions(buffer), expected(episodes, env)
    assert len(found) == 18
    assert all(min(np.abs(np.subtract(row, other)).max() for other in all_of_it) < 2e-5 for row in found)


def test_minari_dataset_becomes_the_transitions_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]
) -> None:
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = collect(env, [6, 3])
    buffers = [
        EpisodeBuffer(
            id=index,
            observations=episode["observations"],
            actions=episode["actions"],
            rewards=np.zeros(len(episode["actions"])).tolist(),
            terminations=[False] * len(episode["actions"]),
            # The second episode was stopped by the one who collected it: nothing says that it is over.
            truncations=[False] * (len(episode["actions"]) - 1) + [index == 0],
            infos={},
        )
        for index, episode in enumerate(episodes)
    ]
    dataset = minari.create_dataset_from_buffers(
        "offline/point-v0",
        buffers,
        observation_space=env.observation_space,
        action_space=env.action_space,
        author="test",
        author_email="test",
        code_permalink="test",
        algorithm_name="random",
        description="test",
    )
    monkeypatch.setattr(datasets, "_join", None)  # each episode by itself: a dataset may be larger than memory
    for source in (dataset, "offline/point-v0"):
        for kind in ("minari", "dataset"):
            buffer = make_buffer()
            assert getattr(buffer, f"load_{kind}")(source) == 9
            assert close(transitions(buffer), expected(episodes, env))


def test_cropped_data_of_an_ordinary_environment() -> None:
    env = GoalFromObservation(gym.make("Pendulum-v1"), crop=[0, 1])
    model = CLearning("MultiInputPolicy", env, seed=0, batch_size=16, policy_kwargs={"net_arch": [16]})
    states = np.random.default_rng(0).normal(size=(31, 3)).astype(np.float32)
    actions = np.random.default_rng(1).uniform(-2, 2, size=(30, 1))
    ends = np.arange(30) == 29
    added = model.replay_buffer.load_arrays(states[:-1], actions, np.zeros(30), ends, states[1:], crop=[0, 1])
    assert added == 30
    stored = model.replay_buffer.observations["achieved_goal"][:30, 0]
    assert stored == pytest.approx(states[:-1, :2])
    assert model.replay_buffer.actions[:30, 0] == pytest.approx(actions / 2, abs=1e-6)
    before = model.policy.state_dict()["actor.mu.0.weight"].clone()
    model.learn_offline(20)
    assert (model.policy.state_dict()["actor.mu.0.weight"] != before).any()
    assert model.num_timesteps == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": lambda a: a["actions"][:-1]}, "same length"),
        ({"actions": lambda a: a["actions"] * 100}, "outside of the environment's action space"),
        ({"actions": lambda a: a["actions"] * np.nan}, "NaN or inf"),
        ({"actions": lambda a: a["actions"][:, :1]}, "shape"),
        ({"observations": lambda a: {"state": a["actions"]}}, 'no key "observation"'),
        ({"observations": lambda a: {**a["observations"], "observation": a["actions"][:, :1]}}, "do not fit the environment"),
        ({"next_observations": lambda a: {k: v * np.inf for k, v in a["next_observations"].items()}}, "NaN or inf in the key"),
        ({"observations": lambda a: {"observation": a["observations"]["observation"]}}, "Pass `crop`"),
    ],
)
def test_bad_data_is_refused_whole(
    env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer], change: dict[str, Any], message: str
) -> None:
    arrays = as_arrays(collect(env, LENGTHS), ["observation", "achieved_goal", "desired_goal"])
    buffer = make_buffer()
    with pytest.raises(ValueError, match=message):
        buffer.load_arrays(**{**arrays, **{name: function(arrays) for name, function in change.items()}})
    assert buffer.size() == 0


def test_more_data_than_the_buffer_holds_is_said(env: gym.Env) -> None:
    arrays = as_arrays(collect(env, LENGTHS), ["observation", "achieved_goal", "desired_goal"])
    buffer = GoalReplayBuffer(10, env.observation_space, env.action_space)
    with pytest.warns(UserWarning, match="has 16 transitions, but the replay buffer holds 10"):
        buffer.load_arrays(**arrays)


def test_sb3s_order_of_arguments_is_refused(env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]) -> None:
    arrays = as_arrays(collect(env, LENGTHS), ["observation", "achieved_goal", "desired_goal"])
    with pytest.raises(ValueError, match=r"`actions` is a dict. The order is"):
        make_buffer().load_arrays(*(arrays[name] for name in ("observations", "next_observations", "actions", "terminations")))


def test_a_dataset_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_buffer: Any) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="run `minari download no/such-v0`"):
        make_buffer().load_minari("no/such-v0")


def test_single_rows_without_next_observations_are_refused(env: gym.Env, make_buffer: Callable[..., GoalReplayBuffer]) -> None:
    arrays = as_arrays(collect(env, [1, 1]), ["observation", "achieved_goal", "desired_goal"])
    del arrays["next_observations"]
    with pytest.raises(ValueError, match="Pass `next_observations`"):
        make_buffer().load_arrays(**arrays)


@pytest.mark.parametrize(
    ("crop", "message"),
    [([0, 9], "out of range"), (slice(0, 99), "out of range"), ([], "is empty"), ([0.5], "must be a sequence of indices")],
    ids=str,
)
def test_a_crop_that_does_not_fit_is_an_error_and_leaves_the_buffer_alone(crop: Any, message: str) -> None:
    env = GoalFromObservation(gym.make("Pendulum-v1"), crop=[0, 1])
    model = CLearning("MultiInputPolicy", env)
    observations, actions, ends = np.zeros((4, 3)), np.zeros((4, 1)), np.zeros(4)
    with pytest.raises((ValueError, TypeError), match=message):
        model.replay_buffer.load_arrays(observations, actions, ends, ends, crop=crop)
    assert model.replay_buffer.size() == 0

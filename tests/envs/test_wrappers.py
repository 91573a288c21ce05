import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_clearning.envs import GoalFromObservation, NoisyGoal
from tests.support.goal_envs import RobotEnv
from tests.support.small_models import small_model, weights


class Walk(gym.Env):
    """A noisy walk of the first two entries; the third counts the steps. float64, as MuJoCo's observations are."""

    metadata = {"render_modes": []}
    observation_space: spaces.Space = spaces.Box(np.array([-4.0, -3.0, 0.0]), np.array([4.0, 3.0, np.inf]), dtype=np.float64)
    action_space: spaces.Space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, life: int = 1000) -> None:
        self.life = life
        self.resets: list[tuple[int | None, dict | None]] = []
        self.render_mode = None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self.state = np.array([*self.np_random.uniform(-1, 1, 2), 0.0])
        return self.state.copy(), {"base": "reset"}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.state[:2] += 0.1 * np.asarray(action) + 0.01 * self.np_random.standard_normal(2)
        self.state[:2] = np.clip(self.state[:2], [-4, -3], [4, 3])
        self.state[2] += 1
        return self.state.copy(), 7.0, bool(self.state[2] >= self.life), bool(self.state[2] >= 2000), {"base": "step"}


class Picture(gym.Env):
    """Random pictures."""

    metadata = {"render_modes": []}
    observation_space: spaces.Space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space: spaces.Space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._picture(), 0.0, False, False, {}

    def _picture(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (36, 40, 3), dtype=np.uint8)


class Numbered(Walk):
    observation_space: spaces.Space = spaces.Discrete(4)


def squares(obs: np.ndarray) -> np.ndarray:
    return obs[..., :2] ** 2 - 3.0


def corner(obs: np.ndarray) -> np.ndarray:
    return obs[..., :20, :20, :]


def normal_goal(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=2)


def first_entry(goal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return goal[:1] + rng.normal(scale=0.1, size=1)


GOALS = np.array([[0.0, 0.5], [1.0, -1.0], [2.0, 2.0]])


def _rollout(env: gym.Env, seed: int | None, steps: int = 5, episodes: int = 2) -> list[dict[str, np.ndarray]]:
    action = np.array([0.5, -0.25], dtype=np.float32)
    observations = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed if episode == 0 else None)
        observations.append(obs)
        observations += [env.step(action)[0] for _ in range(steps)]
    return observations


def _assert_equal(first: list[dict[str, np.ndarray]], second: list[dict[str, np.ndarray]]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])


# ---------------------------------------------------------------------------------------------- GoalFromObservation: crop


@pytest.mark.parametrize(
    ("crop", "low", "high", "expected"),
    [
        (None, [-4, -3, 0], [4, 3, np.inf], lambda s: s),
        ([1], [-3], [3], lambda s: s[[1]]),
        ([-1, 0], [0, -4], [np.inf, 4], lambda s: s[[2, 0]]),
        (np.array([False, True, True]), [-3, 0], [3, np.inf], lambda s: s[[1, 2]]),
        (slice(0, 2), [-4, -3], [4, 3], lambda s: s[:2]),
        (slice(None, None, -2), [0, -4], [np.inf, 4], lambda s: s[[2, 0]]),
        (squares, [-np.inf] * 2, [np.inf] * 2, lambda s: s[:2] ** 2 - 3),
    ],
)
def test_the_achieved_goal_is_the_crop_of_the_state(crop: Any, low: list, high: list, expected: Any) -> None:
    env = GoalFromObservation(Walk(), crop=crop)
    assert isinstance(env.observation_space, spaces.Dict)
    for key in ("achieved_goal", "desired_goal"):
        space = env.observation_space[key]
        assert isinstance(space, spaces.Box)
        np.testing.assert_array_equal(space.low, np.array(low, dtype=np.float32))
        np.testing.assert_array_equal(space.high, np.array(high, dtype=np.float32))
    for obs in _rollout(env, seed=1):
        assert env.observation_space.contains(obs)
        assert {value.dtype for value in obs.values()} == {np.dtype(np.float32)}
        np.testing.assert_array_equal(obs["achieved_goal"], expected(obs["observation"]))
        assert not np.shares_memory(obs["achieved_goal"], obs["observation"])
    states = np.stack([obs["observation"] for obs in _rollout(env, seed=1)])
    np.testing.assert_array_equal(env.crop(states), np.stack([expected(state) for state in states]))


@pytest.mark.parametrize(
    ("crop", "error", "message"),
    [
        ([0, 3], ValueError, r"crop=\[0, 3\] is out of range for an observation of 3 entries"),
        ([-4], ValueError, "out of range for an observation of 3 entries"),
        ([0, 1, 0], ValueError, "selects an entry of the observation twice"),
        ([2, -1], ValueError, "selects an entry of the observation twice"),
        (slice(1, 5), ValueError, "out of range for an observation of 3 entries"),
        ([], ValueError, "is empty: it selects nothing"),
        (slice(2, 2), ValueError, "is empty: it selects nothing"),
        (np.zeros(3, dtype=bool), ValueError, "is empty: it selects nothing"),
        ([0.5], TypeError, "crop must be a sequence of indices, a slice, a function"),
        ([[0]], TypeError, "crop must be a sequence of indices, a slice, a function"),
        (1, TypeError, "crop must be a sequence of indices, a slice, a function"),
        ("xy", TypeError, "crop must be a sequence of indices, a slice, a function"),
        (lambda obs: obs[:2], ValueError, r"has to keep the leading axes, as in obs\[..., :2\]"),
        (lambda obs: obs[..., 0], ValueError, "crop must return an array with one entry or more"),
        (lambda obs: obs[..., :0], ValueError, "crop must return an array with one entry or more"),
        (lambda obs: obs[obs > 0] if obs.max() > 0 else obs, ValueError, None),
        (lambda obs: obs[..., : 2 if obs.max() > 0 else 1], ValueError, r"varying shapes, \(1,\) and \(2,\)"),
        (lambda obs: np.array(["a"]), TypeError, "crop must return numbers"),
    ],
)
def test_a_bad_crop_is_refused_at_construction(crop: Any, error: type[Exception], message: str | None) -> None:
    with pytest.raises(error, match=message):
        GoalFromObservation(Walk(), crop=crop)


def test_a_crop_that_changes_its_shape_later_is_named() -> None:
    env = GoalFromObservation(Walk(), crop=lambda obs: obs[..., : 2 if np.max(obs[..., 2]) < 2 else 1], goal_sampler=GOALS)
    env.reset(seed=0)
    env.step(np.zeros(2))
    with pytest.raises(ValueError, match=r"crop returned a goal of the shape \(1,\), but \(2,\) at construction"):
        env.step(np.zeros(2))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Numbered(), "needs a Box observation space, got Discrete.*FlattenObservation"),
        (GoalFromObservation(Walk()), "is a goal env already"),
        (RobotEnv(mode=spaces.Discrete(3)), r"needs a Box .*, got Discrete\(3\) in the key `mode`. .*FlattenObservation"),
        (
            RobotEnv(arm=spaces.Dict(hand=spaces.Box(-1, 1))),
            "needs a Box .*, got Dict.* in the key `arm`. .*FlattenObservation",
        ),
        (RobotEnv(mass=spaces.Box(0, 1, ())), "vectors or images as observations, got a scalar in `mass`"),
        (RobotEnv(achieved_goal=spaces.Box(0, 1)), r"has the keys \['achieved_goal'\], which GoalFromObservation adds"),
    ],
)
def test_a_foreign_observation_space_is_refused(env: gym.Env, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoalFromObservation(env)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"n_random_actions": 0}, "n_random_actions"), ({"distance_threshold": -0.1}, "distance_threshold")],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoalFromObservation(Walk(), **arguments)


# ---------------------------------------------------------------------------------------------- GoalFromObservation: goals


@pytest.mark.parametrize("sampler", ["reset", "random_actions", GOALS, normal_goal])
def test_a_seed_determines_everything_and_seeds_differ(sampler: Any) -> None:
    env = GoalFromObservation(Walk(), [0, 1], sampler)
    first = _rollout(env, seed=3)
    env.action_space.sample()
    _assert_equal(first, _rollout(env, seed=3))
    _assert_equal(first, _rollout(GoalFromObservation(Walk(), [0, 1], sampler), seed=3))
    goals = {tuple(env.reset(seed=seed)[0]["desired_goal"]) for seed in range(20)}
    assert len(goals) == (3 if sampler is GOALS else 20)


@pytest.mark.parametrize("sampler", ["reset", "random_actions", GOALS, normal_goal])
def test_the_goal_is_fixed_within_an_episode_and_new_in_the_next(sampler: Any) -> None:
    env = GoalFromObservation(Walk(), [0, 1], sampler)
    env.reset(seed=0)
    goals = []
    for _ in range(20):
        obs, _ = env.reset()
        goals.append(obs["desired_goal"].copy())
        for _ in range(3):
            obs["desired_goal"] += 1  # a caller's change is not the env's
            obs = env.step(env.action_space.sample())[0]
            np.testing.assert_array_equal(obs["desired_goal"], goals[-1])
    assert len(np.unique(goals, axis=0)) == (3 if sampler is GOALS else 20)


@pytest.mark.parametrize("sampler", ["reset", "random_actions"])
@pytest.mark.parametrize("seed", [0, 7, None])
def test_the_goal_is_not_the_start_which_is_the_base_env_s(sampler: str, seed: int | None) -> None:
    env = GoalFromObservation(Walk(), goal_sampler=sampler, n_random_actions=1)
    obs, _ = env.reset(seed=seed)
    assert np.abs(obs["desired_goal"][:2] - obs["achieved_goal"][:2]).min() > 1e-3
    if seed is not None:
        np.testing.assert_array_equal(obs["observation"], Walk().reset(seed=seed)[0].astype(np.float32))


def test_reset_goals_are_start_states_and_random_action_goals_lie_n_steps_on() -> None:
    obs, _ = GoalFromObservation(Walk(), goal_sampler="reset").reset(seed=0)
    assert obs["desired_goal"][2] == 0
    obs, _ = GoalFromObservation(Walk(), goal_sampler="random_actions", n_random_actions=17).reset(seed=0)
    assert obs["desired_goal"][2] == 17
    assert obs["observation"][2] == 0


@pytest.mark.parametrize(("n", "expected"), [(9, 9), (10, 0), (25, 5)])
def test_random_actions_restart_where_an_episode_ends(n: int, expected: int) -> None:
    env = GoalFromObservation(Walk(life=10), goal_sampler="random_actions", n_random_actions=n)
    assert env.reset(seed=0)[0]["desired_goal"][2] == expected


def test_the_state_at_a_time_limit_is_a_goal() -> None:
    limited = gym.wrappers.TimeLimit(Walk(), 10)
    env = GoalFromObservation(limited, goal_sampler="random_actions", n_random_actions=10)
    assert env.reset(seed=0)[0]["desired_goal"][2] == 10


def test_random_actions_leave_the_user_s_action_space_alone() -> None:
    env = Walk()
    env.action_space = spaces.Box(-1, 1, (2,), np.float32, seed=5)
    twin = spaces.Box(-1, 1, (2,), np.float32, seed=5)
    wrapped = GoalFromObservation(env, goal_sampler="random_actions")
    wrapped.reset(seed=0)
    np.testing.assert_array_equal(wrapped.action_space.sample(), twin.sample())


def test_goals_of_an_array_are_drawn_uniformly() -> None:
    env = GoalFromObservation(Walk(), [0, 1], GOALS.tolist())
    env.reset(seed=0)
    drawn = np.stack([env.reset()[0]["desired_goal"] for _ in range(900)])
    counts = [int((drawn == goal).all(axis=1).sum()) for goal in GOALS.astype(np.float32)]
    assert sum(counts) == 900
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_commanded_goal_is_pursued_and_other_options_go_to_the_base_env() -> None:
    env = GoalFromObservation(Walk(), [0, 1])
    base = env.unwrapped
    assert isinstance(base, Walk)
    obs, info = env.reset(seed=1, options={"goal": [0.25, -0.5], "wind": 3})
    np.testing.assert_array_equal(obs["desired_goal"], np.array([0.25, -0.5], dtype=np.float32))
    np.testing.assert_array_equal(env.step(np.zeros(2))[0]["desired_goal"], obs["desired_goal"])
    assert base.resets == [(1, {"wind": 3})]
    assert info["base"] == "reset"
    env.reset(options={"wind": 4})
    # The goal's own reset is an ordinary one: options that place the start would place the goal on it
    assert base.resets[1:] == [(None, None), (None, {"wind": 4})]


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        ("resets", ValueError, 'Unknown goal_sampler \'resets\': give "reset", "random_actions"'),
        (np.zeros((0, 2)), ValueError, "goal_sampler is an empty array"),
        (np.zeros((4, 3)), ValueError, r"goal_sampler array has the shape \(4, 3\), expected \(4, 2\)"),
        (
            np.zeros(2),
            ValueError,
            r"goal_sampler array has the shape \(2,\) of one goal: give a list of goals, for one \[goal\]",
        ),
        (np.array([[0.0, np.nan]]), ValueError, "goal_sampler array has entries that are not finite"),
        ([["a", "b"]], TypeError, "goal_sampler array must hold numbers"),
        (3, TypeError, "goal_sampler must be a string, a function or an array of goals"),
        (lambda: [0.0, 0.0], TypeError, "goal_sampler must be a function of a NumPy Generator: too many positional arguments"),
    ],
)
def test_a_bad_goal_sampler_is_refused_at_construction(sampler: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GoalFromObservation(Walk(), [0, 1], sampler)


def test_bad_goals_at_reset_are_named() -> None:
    env = GoalFromObservation(Walk(), [0, 1], lambda rng: rng.normal(size=3))
    with pytest.raises(ValueError, match=r"The goal of goal_sampler has the shape \(3,\), expected \(2,\)"):
        env.reset(seed=0)
    with pytest.raises(ValueError, match=r'The goal in options\["goal"\] has the shape \(1,\), expected \(2,\)'):
        env.reset(options={"goal": [1.0]})
    with pytest.raises(ValueError, match=r'The goal in options\["goal"\] has entries that are not finite'):
        env.reset(options={"goal": [1.0, np.inf]})


def test_a_goal_that_no_observation_can_be_is_refused() -> None:
    env = GoalFromObservation(gym.make("Pendulum-v1"), [0, 1])
    with pytest.raises(ValueError, match=r"lies outside of the observations' bounds \[-1. -1.\] to \[1. 1.\]"):
        env.reset(options={"goal": [0.0, 1.5]})
    env.reset(options={"goal": [1.0 + 1e-6, 0.0]})  # rounding
    with pytest.raises(ValueError, match=r"The goal \[0. 3.\] of goal_sampler lies outside"):
        GoalFromObservation(gym.make("Pendulum-v1"), [0, 1], [[1.0, 0.0], [0.0, 3.0]])


def test_step_before_reset_is_an_error() -> None:
    base = Walk()
    base.reset(seed=0)
    with pytest.raises(gym.error.ResetNeeded):
        GoalFromObservation(base).step(np.zeros(2))


# --------------------------------------------------------------------------------------------- GoalFromObservation: reward


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 20), st.floats(0.01, 3.0))
def test_vectorised_reward_is_that_of_a_loop(seed: int, n: int, threshold: float) -> None:
    env = GoalFromObservation(Walk(), distance_threshold=threshold)
    rng = np.random.default_rng(seed)
    achieved, desired = rng.normal(size=(2, n, 3)).astype(np.float32)
    rewards = env.compute_reward(achieved, desired, [{}] * n)
    assert rewards.shape == (n,)
    for i in range(n):
        distance = sum((float(a) - float(d)) ** 2 for a, d in zip(achieved[i], desired[i], strict=True)) ** 0.5
        assert rewards[i] == (0 if distance <= threshold else -1)
        assert env.compute_reward(achieved[i], desired[i], {}) == rewards[i]
        assert env.is_success(achieved[i], desired[i]) == (distance <= threshold)
        assert float(env.distance(achieved, desired)[i]) == pytest.approx(distance)


def test_steps_have_the_reward_distance_and_success_of_the_goal() -> None:
    env = GoalFromObservation(Walk(), slice(0, 2), goal_sampler=np.array([[0.3, 0.3]]), distance_threshold=0.3)
    obs, info = env.reset(seed=0)
    rewards, seen = [], 0
    for _ in range(60):
        assert info["distance"] == pytest.approx(np.linalg.norm(obs["achieved_goal"] - [0.3, 0.3]), abs=1e-5)
        assert info["is_success"] is (info["distance"] <= 0.3)
        action = np.clip(0.3 - obs["achieved_goal"], -1, 1)
        obs, reward, terminated, truncated, info = env.step(action)
        assert reward == (0 if info["is_success"] else -1)
        assert info["base"] == "step"
        assert not terminated
        assert not truncated
        rewards.append(reward)
        seen += info["is_success"]
    assert 0 < seen < 60


@pytest.mark.parametrize(("life", "expected"), [(3, (True, False)), (5000, (False, True))])
def test_the_base_env_s_ends_pass_through(life: int, expected: tuple[bool, bool]) -> None:
    base = Walk(life=life)
    env = GoalFromObservation(base)
    env.reset(seed=0)
    ends = (False, False)
    for step in range(2000):
        _, _, terminated, truncated, _ = env.step(np.zeros(2))
        ends = (bool(terminated), bool(truncated))
        if any(ends):
            assert step + 1 == min(life, 2000)
            break
    assert ends == expected


# --------------------------------------------------------------------------------------------- GoalFromObservation: images


def test_images_stay_images() -> None:
    env = GoalFromObservation(Picture())
    assert isinstance(env.observation_space, spaces.Dict)
    for key in ("observation", "achieved_goal", "desired_goal"):
        assert env.observation_space[key] == spaces.Box(0, 255, (36, 40, 3), np.uint8)
    obs, info = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    np.testing.assert_array_equal(obs["achieved_goal"], obs["observation"])
    assert (obs["desired_goal"] != obs["observation"]).any()
    # Two independent uniform pixels differ by 1/sqrt(6) of their range, in root mean square
    assert info["distance"] == pytest.approx(6**-0.5, abs=0.02)
    batch = np.stack([obs["achieved_goal"], obs["desired_goal"]])
    assert env.compute_reward(batch, batch[::-1], None).tolist() == [-1, -1]
    assert env.compute_reward(batch, batch, None).tolist() == [0, 0]


def test_an_image_may_be_cropped_by_a_function_only() -> None:
    env = GoalFromObservation(Picture(), crop=corner)
    assert isinstance(env.observation_space, spaces.Dict)
    assert env.observation_space["desired_goal"] == spaces.Box(0, 255, (20, 20, 3), np.uint8)
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs["achieved_goal"], obs["observation"][:20, :20])
    with pytest.raises(ValueError, match=r"For an observation of the shape \(36, 40, 3\) give crop a function"):
        GoalFromObservation(Picture(), crop=[0, 1])
    for bad in (np.full((1, 20, 20, 3), 0.5), np.full((1, 20, 20, 3), 300)):
        with pytest.raises(ValueError, match="whole numbers from 0 to 255"):
            GoalFromObservation(Picture(), crop=corner, goal_sampler=bad)


# -------------------------------------------------------------------------------------------------- GoalFromObservation: Dicts


def reach(obs: dict[str, np.ndarray]) -> np.ndarray:
    """The first joint and the camera's brightness."""
    brightness = obs["camera"].mean(axis=(-3, -2, -1))[..., None]
    return np.concatenate([obs["observation"][..., :1], brightness], axis=-1)


@pytest.mark.parametrize(
    ("crop", "expected", "bounds"),
    [
        ({"joints": [1, 0]}, lambda joints: joints[[1, 0]], ([-1, -1], [1, 1])),
        ({"joints": slice(1, 3)}, lambda joints: joints[1:], ([-1, 0], [1, np.inf])),
        ({"joints": np.array([True, False, False])}, lambda joints: joints[:1], ([-1], [1])),
        ({"joints": squares}, lambda joints: joints[:2] ** 2 - 3, ([-np.inf] * 2, [np.inf] * 2)),
        ({"joints": None}, lambda joints: joints, ([-1, -1, 0], [1, 1, np.inf])),
    ],
)
def test_the_goal_is_the_crop_of_the_named_key(crop: Any, expected: Any, bounds: tuple[list, list]) -> None:
    env = GoalFromObservation(RobotEnv(), crop)
    base = env.env.observation_space
    assert isinstance(env.observation_space, spaces.Dict)
    assert isinstance(base, spaces.Dict)
    assert set(env.observation_space) == {"camera", "observation", "achieved_goal", "desired_goal"}
    assert env.observation_space["camera"] == base["camera"]
    for key in ("achieved_goal", "desired_goal"):
        assert env.observation_space[key] == spaces.Box(*np.array(bounds, dtype=np.float32))
    observations, truth = _rollout(env, 3, episodes=1), _rollout(RobotEnv(), 3, episodes=1)
    for obs, true in zip(observations, truth, strict=True):
        assert env.observation_space.contains(obs)
        np.testing.assert_array_equal(obs["camera"], true["camera"])
        np.testing.assert_array_equal(obs["observation"], true["joints"].astype(np.float32))
        np.testing.assert_array_equal(obs["achieved_goal"], expected(obs["observation"]))
    # As `crop` of a dataset, whose observations are those under the key `observation`
    goals = env.crop(np.stack([obs["observation"] for obs in observations]))
    np.testing.assert_array_equal(goals, np.stack([obs["achieved_goal"] for obs in observations]))


def test_the_goal_may_be_the_image_of_a_dict() -> None:
    env = GoalFromObservation(RobotEnv(), {"camera": None})
    obs, info = env.reset(seed=0)
    assert set(obs) == {"joints", "observation", "achieved_goal", "desired_goal"}
    assert obs["achieved_goal"].dtype == np.uint8
    assert 0 < info["distance"] <= 1


def test_the_goal_may_be_a_function_of_the_dict() -> None:
    env = GoalFromObservation(RobotEnv("observation"), reach)
    assert isinstance(env.observation_space, spaces.Dict)
    assert env.observation_space["achieved_goal"] == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    observations = _rollout(env, 3)
    for obs in observations:
        np.testing.assert_array_equal(obs["achieved_goal"], reach(obs).astype(np.float32))
    stacked = {key: np.stack([obs[key] for obs in observations]) for key in ("camera", "observation")}
    np.testing.assert_array_equal(env.crop(stacked), np.stack([obs["achieved_goal"] for obs in observations]))


@pytest.mark.parametrize(
    ("name", "crop", "message"),
    [
        ("joints", None, r"say which of its keys \['camera', 'joints'\] the goal is in, as in .* got crop=None"),
        ("joints", [0, 1], r"say which of its keys .* got crop=\[0, 1\]"),
        ("joints", {}, "say which of its keys"),
        ("joints", {"camera": None, "joints": None}, "say which of its keys"),
        ("joints", {"legs": None}, "say which of its keys"),
        ("joints", {"joints": [3]}, r"crop=\[3\] is out of range for an observation of 3 entries"),
        ("joints", {"camera": [0]}, "Indices crop a vector"),
        ("joints", reach, r'none is `observation`. Name the one .*: crop=\{"key": function\}'),
        ("observation", {"camera": None}, "`camera` would become `observation`, a key that the env has as well"),
        ("observation", lambda obs: obs["observation"][:1], "has to keep the leading axes"),
    ],
)
def test_a_bad_crop_of_a_dict_is_refused_at_construction(name: str, crop: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoalFromObservation(RobotEnv(name), crop)


def test_a_box_has_no_keys() -> None:
    with pytest.raises(ValueError, match="names a key, but the env's observation is no Dict"):
        GoalFromObservation(Walk(), {"joints": [0]})


@pytest.mark.parametrize("sampler", ["reset", "random_actions", [[0.5, 0.5], [-0.5, 0.0]], lambda rng: rng.uniform(-1, 1, 2)])
def test_goals_of_dicts_follow_the_seed(sampler: Any) -> None:
    env = GoalFromObservation(RobotEnv(), {"joints": [0, 1]}, sampler)
    first = _rollout(env, 5)
    _assert_equal(first, _rollout(env, 5))
    assert (first[0]["desired_goal"] != first[0]["achieved_goal"]).all()
    np.testing.assert_array_equal(env.reset(options={"goal": [0.25, -1]})[0]["desired_goal"], [0.25, -1])
    with pytest.raises(ValueError, match="lies outside of the observations' bounds"):
        env.reset(options={"goal": [0.25, -2]})


def test_c_learning_trains_on_an_image_beside_a_vector() -> None:
    env = GoalFromObservation(RobotEnv(), {"joints": [0, 1]})
    model = small_model(env, learning_starts=20)
    before = weights(model)
    model.learn(30)
    assert any((value != before[name]).any() for name, value in weights(model).items() if "cnn" in name)


def test_a_simulator_s_camera_beside_its_state() -> None:
    reacher = gym.make("Reacher-v5", render_mode="rgb_array", width=48, height=48)
    env = GoalFromObservation(gym.wrappers.AddRenderObservation(reacher, render_only=False), {"state": [0, 1, 2, 3]})
    for obs in _rollout(env, 0, steps=2):
        assert env.observation_space.contains(obs)
        assert obs["pixels"].std() > 0
        np.testing.assert_array_equal(obs["achieved_goal"], obs["observation"][:4])
    assert env.spec is not None
    if tuple(map(int, gym.__version__.split(".")[:2])) >= (1, 4):  # 1.2 writes a spec of its wrapper that it cannot read
        twin = gym.make(env.spec)
        assert twin.observation_space == env.observation_space
        twin.close()
    env.close()


# ------------------------------------------------------------------------------------------------------ both, with their hosts


def _make(kind: str) -> gym.Env:
    if kind == "image":
        return GoalFromObservation(Picture())
    if kind == "dict":
        return GoalFromObservation(RobotEnv(), {"joints": [0, 1]}, distance_threshold=0.8)
    env = GoalFromObservation(Walk(life=20), [0, 1], "random_actions", n_random_actions=5, distance_threshold=0.8)
    if kind == "noisy":
        return NoisyGoal(env, 0.5)
    return NoisyGoal(env, first_entry, distance_threshold=0.8) if kind == "latent" else env


KINDS = ["vector", "image", "dict", "noisy", "latent"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_checkers_of_gymnasium_and_sb3_pass(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # About any wrapper, and about any env that was not made by an id
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        # About open bounds, which the base env has, and measurements with Gaussian noise must have
        warnings.filterwarnings("ignore", message=".*Box observation space m(in|ax)imum value is -?infinity.*")
        gymnasium_check_env(_make(kind))
        sb3_check_env(_make(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_reward_agrees_with_compute_reward(kind: str) -> None:
    env = _make(kind)
    compute_reward = env.get_wrapper_attr("compute_reward")
    rewards = []
    for seed in range(20):
        env.reset(seed=seed)
        obs, reward, _, _, info = env.step(env.action_space.sample())
        assert reward == compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
        batch = compute_reward(*(np.stack([obs[key]] * 2) for key in ("achieved_goal", "desired_goal")), [info] * 2)
        assert batch.tolist() == [reward, reward]
        rewards.append(reward)
    assert set(rewards) == ({-1} if kind == "image" else {-1, 0})


@pytest.mark.parametrize("kind", ["vector", "dict", "noisy", "latent"])
def test_a_pickled_env_goes_on_alike(kind: str) -> None:
    env = _make(kind)
    env.reset(seed=4)
    restored = pickle.loads(pickle.dumps(env))
    _assert_equal(_rollout(env, None), _rollout(restored, None))


def test_a_registered_env_is_rebuilt_from_its_spec() -> None:
    env = NoisyGoal(GoalFromObservation(gym.make("Pendulum-v1"), crop=[0, 1], distance_threshold=0.2), noise=0.1)
    assert env.spec is not None
    twin = gym.make(env.spec)
    assert twin.get_wrapper_attr("distance_threshold") is None
    assert twin.observation_space == env.observation_space
    np.testing.assert_array_equal(twin.reset(seed=2)[0]["desired_goal"], env.reset(seed=2)[0]["desired_goal"])


@pytest.mark.parametrize("kind", ["dict", "noisy"])
def test_vec_envs_agree_and_their_envs_have_goals_of_their_own(kind: str) -> None:
    def roll(venv: VecEnv) -> np.ndarray:
        venv.seed(3)
        obs = venv.reset()
        assert isinstance(obs, dict)
        rows = [obs["desired_goal"], obs["achieved_goal"]]
        for _ in range(25):  # beyond the episodes' end, and the resets after it
            obs = venv.step(np.full((2, 2), 0.5, dtype=np.float32))[0]
            assert isinstance(obs, dict)
            rows += [obs["desired_goal"], obs["achieved_goal"]]
        venv.close()
        return np.stack(rows)

    makers = [lambda: _make(kind)] * 2
    rows = roll(DummyVecEnv(makers))
    assert (rows[0, 0] != rows[0, 1]).all()
    np.testing.assert_array_equal(rows, roll(SubprocVecEnv(makers, start_method="fork")))


@pytest.mark.parametrize("kind", ["vector", "noisy", "latent"])
def test_her_learns_on_it(kind: str) -> None:
    model = SAC(
        "MultiInputPolicy",
        _make(kind),
        replay_buffer_class=HerReplayBuffer,
        learning_starts=40,
        batch_size=16,
        policy_kwargs={"net_arch": [8]},
        seed=0,
    )
    model.learn(45)
    assert model.num_timesteps == 45


# ------------------------------------------------------------------------------------------------------------------- NoisyGoal


@pytest.mark.parametrize("noise", [0.2, [0.2, 0.05], np.array([0.3, 0.0])])
def test_measurements_are_normal_around_the_truth(noise: Any) -> None:
    scale = np.broadcast_to(noise, 2)
    truth = np.array([0.5, -0.25])
    env = NoisyGoal(GoalFromObservation(Walk(), [0, 1], truth[None]), noise)
    achieved, desired = [], []
    for episode in range(1000):
        obs, _ = env.reset(seed=11 if episode == 0 else None)
        achieved.append(obs["achieved_goal"] - obs["observation"][:2])
        desired.append(obs["desired_goal"] - truth)
        obs = env.step(np.zeros(2))[0]
        achieved.append(obs["achieved_goal"] - obs["observation"][:2])
    for errors in (np.stack(achieved), np.stack(desired)):
        for entry in range(2):
            if scale[entry] == 0:
                np.testing.assert_allclose(errors[:, entry], 0, atol=1e-6)
            else:
                assert stats.kstest(errors[:, entry], "norm", args=(0, scale[entry])).pvalue > 1e-3
        if scale.all():
            assert abs(np.corrcoef(errors.T)[0, 1]) < 0.1
    if scale.all():
        # Successive steps, and the start and the goal, are measured independently
        steps = np.stack(achieved)[:, 0].reshape(1000, 2)
        assert abs(np.corrcoef(steps.T)[0, 1]) < 0.1
        assert abs(np.corrcoef(steps[:, 0], np.stack(desired)[:, 0])[0, 1]) < 0.1


def test_the_desired_goal_is_measured_once_an_episode() -> None:
    env = NoisyGoal(GoalFromObservation(Walk(), [0, 1], GOALS[:1]), 0.2)
    env.reset(seed=0)
    measured = []
    for _ in range(5):
        obs, _ = env.reset()
        goal = obs["desired_goal"].copy()
        for _ in range(4):
            obs["desired_goal"] += 1
            obs = env.step(np.zeros(2))[0]
            np.testing.assert_array_equal(obs["desired_goal"], goal)
        measured.append(goal)
    assert len(np.unique(measured, axis=0)) == 5


def test_a_goal_that_the_env_changes_is_measured_again() -> None:
    base = GoalFromObservation(Walk(), [0, 1], GOALS[:1])
    env = NoisyGoal(base, 0.001)
    env.reset(seed=0)
    base._goal = np.array([3.0, 1.0], dtype=np.float32)
    np.testing.assert_allclose(env.step(np.zeros(2))[0]["desired_goal"], [3.0, 1.0], atol=0.01)


@pytest.mark.parametrize("noise", [0.2, first_entry])
def test_a_seed_determines_the_noise(noise: Any) -> None:
    env = NoisyGoal(GoalFromObservation(Walk(), [0, 1]), noise)
    first = _rollout(env, seed=3)
    _assert_equal(first, _rollout(env, seed=3))
    _assert_equal(first, _rollout(NoisyGoal(GoalFromObservation(Walk(), [0, 1]), noise), seed=3))
    assert (first[0]["desired_goal"] != _rollout(env, seed=4)[0]["desired_goal"]).all()


def test_the_noise_is_independent_of_the_goals_drawn_by_the_same_seed() -> None:
    base = GoalFromObservation(Walk(), [0, 1], normal_goal)
    env = NoisyGoal(base, 1.0)
    goals, errors = [], []
    for seed in range(500):
        measured = env.reset(seed=seed)[0]["desired_goal"]
        goals.append(base.reset(seed=seed)[0]["desired_goal"])
        errors.append(measured - goals[-1])
    assert abs(np.corrcoef(np.ravel(goals), np.ravel(errors))[0, 1]) < 0.15


def test_the_info_is_of_the_true_goals_and_the_state_is_untouched() -> None:
    base = GoalFromObservation(Walk(), [0, 1], GOALS[:1])
    env, twin = NoisyGoal(base, 5.0), GoalFromObservation(Walk(), [0, 1], GOALS[:1])
    obs, info = env.reset(seed=0)
    true_obs, true_info = twin.reset(seed=0)
    for _ in range(4):
        assert info == true_info
        np.testing.assert_array_equal(obs["observation"], true_obs["observation"])
        obs, _, _, _, info = env.step(np.ones(2))
        true_obs, _, _, _, true_info = twin.step(np.ones(2))


def test_the_true_distance_is_added_where_the_env_gives_none() -> None:
    class Silent(gym.Wrapper):
        def reset(self, **kwargs: Any) -> tuple[Any, dict]:
            return self.env.reset(**kwargs)[0], {}

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
            return *self.env.step(action)[:4], {"is_success": "as the env says"}

    twin = GoalFromObservation(Walk(), [0, 1])
    env = NoisyGoal(Silent(GoalFromObservation(Walk(), [0, 1])), 5.0)
    assert env.reset(seed=0)[1] == {"distance": pytest.approx(twin.reset(seed=0)[1]["distance"])}
    info = env.step(np.ones(2))[4]
    assert info == {"is_success": "as the env says", "distance": pytest.approx(twin.step(np.ones(2))[4]["distance"])}


def test_the_env_rewards_measurements_of_its_goals_shape() -> None:
    env = NoisyGoal(GoalFromObservation(Walk(), [0, 1], distance_threshold=0.5), 0.1)
    achieved, desired = np.zeros((3, 2)), np.array([[0.0, 0.4], [0.0, 0.6], [0.4, 0.4]])
    assert env.compute_reward(achieved, desired, None).tolist() == [0, -1, -1]
    env = NoisyGoal(GoalFromObservation(Walk(), [0, 1], distance_threshold=0.5), 0.1, distance_threshold=0.57)
    assert env.compute_reward(achieved, desired, None).tolist() == [0, -1, 0]


def test_measurements_of_another_shape_keep_the_true_reward_or_take_a_threshold() -> None:
    def base() -> GoalFromObservation:
        return GoalFromObservation(Walk(), [0, 1], np.array([[0.0, 2.5]]), distance_threshold=10.0)

    env = NoisyGoal(base(), first_entry)
    assert isinstance(env.observation_space, spaces.Dict)
    assert env.observation_space["achieved_goal"] == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert env.step(np.zeros(2))[1] == 0
    with pytest.raises(
        ValueError, match=r"measurements of the shape \(1,\), its goals have \(2,\): give NoisyGoal a distance_thr"
    ):
        env.compute_reward(obs["achieved_goal"], obs["desired_goal"], {})

    space = spaces.Box(-9, 9, (1,), np.float32)
    env = NoisyGoal(base(), first_entry, space=space, distance_threshold=0.5)
    assert isinstance(env.observation_space, spaces.Dict)
    assert env.observation_space["desired_goal"] == space
    assert env.compute_reward(np.array([[0.0], [0.0]]), np.array([[0.4], [0.6]]), None).tolist() == [0, -1]


def test_noisy_images_are_images() -> None:
    env = NoisyGoal(GoalFromObservation(Picture()), 10.0)
    assert isinstance(env.observation_space, spaces.Dict)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    error = obs["achieved_goal"].astype(float) - obs["observation"]
    inner = (obs["observation"] > 50) & (obs["observation"] < 205)  # where nothing is clipped
    assert error[inner].std() == pytest.approx(10, rel=0.1)
    assert np.abs(error).max() < 60  # clipped, not wrapped around


@pytest.mark.parametrize(
    ("noise", "arguments", "message"),
    [
        (-0.1, {}, "noise must be a finite scale that is not negative"),
        (np.nan, {}, "noise must be a finite scale that is not negative"),
        ([0.1, 0.1, 0.1], {}, r"noise has the shape \(3,\), which does not fit goals of the shape \(2,\)"),
        (0.1, {"distance_threshold": -1.0}, "distance_threshold must not be negative"),
        (first_entry, {"space": spaces.Box(-1, 1, (4,))}, r"measurements of the shape \(1,\), but the space has \(4,\)"),
        (lambda goal, rng: goal[0], {}, "noise must return an array with one entry or more"),
    ],
)
def test_bad_noise_is_refused_at_construction(noise: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyGoal(GoalFromObservation(Walk(), [0, 1]), noise, **arguments)


def test_a_measurement_of_varying_shape_is_named() -> None:
    env = NoisyGoal(GoalFromObservation(Walk()), lambda goal, rng: goal if goal[0] == 0 else goal[:2])
    with pytest.raises(ValueError, match=r"The measurement of noise has the shape \(2,\), expected \(3,\)"):
        env.reset(seed=0)


def test_noisy_goal_needs_a_goal_env() -> None:
    with pytest.raises(ValueError, match=r"NoisyGoal needs a goal env .* GoalFromObservation makes one"):
        NoisyGoal(Walk(), 0.1)


def test_fetch_can_be_measured() -> None:
    gymnasium_robotics = pytest.importorskip("gymnasium_robotics")
    gym.register_envs(gymnasium_robotics)
    env = NoisyGoal(gym.make("FetchReach-v4"), 0.01)
    obs, info = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    truth = env.unwrapped.goal  # type: ignore[attr-defined]
    assert 0 < np.linalg.norm(obs["desired_goal"] - truth) < 0.05
    obs, reward, _, _, info = env.step(np.zeros(4, dtype=np.float32))
    assert info["distance"] == pytest.approx(np.linalg.norm(obs["observation"][:3] - truth), abs=1e-6)
    assert reward == env.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)

"""What holds for every task."""

import pickle
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_env_of_gymnasium
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3
from stable_baselines3.common.vec_env import SubprocVecEnv

from sb3_clearning.envs import TASK_IDS
from sb3_clearning.envs.gridworld import ContinuousGridworld

# Dimensions of observation, goal and action, and the episode's length.
EXPECTED = {
    "SawyerReach-v0": (6, 3, 4, 50),
    "SawyerPush-v0": (6, 6, 4, 150),
    "SawyerWindow-v0": (6, 6, 4, 150),
    "SawyerDrawer-v0": (6, 6, 4, 150),
    "JacoReach-v0": (24, 12, 9, 250),
    "Finger-v0": (9, 2, 2, 1000),
    "AdroitHand-v0": (30, 30, 28, 50),
    "AdroitPen-v0": (36, 3, 24, 100),
    "PointUMaze-v0": (4, 2, 2, 300),
    "ContinuousGridworld-v0": (2, 2, 2, 100),
}


def rollout(env: gym.Env, steps: int, seed: int) -> list[Any]:
    """Observations and rewards of random actions, which do not come from the env's own generators."""
    generator = np.random.default_rng(seed)
    actions = generator.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)  # type: ignore[misc]
    return [env.step(action)[:2] for action in actions]


def assert_same(left: list[Any], right: list[Any]) -> None:
    for (left_observation, left_reward), (right_observation, right_reward) in zip(left, right, strict=True):
        for key, value in left_observation.items():
            np.testing.assert_array_equal(value, right_observation[key])
        assert left_reward == right_reward


@pytest.mark.parametrize("task_id", EXPECTED)
def test_dimensions_and_episode_length(task_id: str) -> None:
    observation_size, goal_size, action_size, length = EXPECTED[task_id]
    env = gym.make(task_id)
    space = env.observation_space
    assert isinstance(space, gym.spaces.Dict)
    assert {key: box.shape for key, box in space.items()} == {
        "observation": (observation_size,),
        "achieved_goal": (goal_size,),
        "desired_goal": (goal_size,),
    }
    assert all(box.dtype == np.float32 for box in space.values())
    assert env.action_space == gym.spaces.Box(-1.0, 1.0, (action_size,), np.float32)
    observation, info = env.reset(seed=0)
    for step in range(1, length + 1):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert not terminated
        assert truncated == (step == length)
        assert space.contains(observation)
        assert reward == (0.0 if info["is_success"] else -1.0)
        assert info["distance"] >= 0.0
    env.close()


def test_all_tasks_are_registered() -> None:
    assert set(TASK_IDS) == set(EXPECTED)


def test_checkers_have_nothing_to_say(task: gym.Env) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env_of_gymnasium(task, skip_render_check=True)
        check_env_of_sb3(task)


def test_achieved_goal_is_part_of_the_observation(task: Any) -> None:
    observation, _ = task.reset(seed=3)
    states = [observation, *(pair[0] for pair in rollout(task, 5, 0))]
    for state in states:
        np.testing.assert_array_equal(state["achieved_goal"], state["observation"][task.goal_slice])
        np.testing.assert_array_equal(state["desired_goal"], states[0]["desired_goal"])


def test_outputs_share_no_memory(task: Any) -> None:
    """What a replay buffer or a wrapper does with one array must not change another, nor the task."""
    first, _ = task.reset(seed=3)
    kept = {key: value.copy() for key, value in first.items()}
    first["desired_goal"][:] = 0.0
    first["achieved_goal"][:] = 0.0
    np.testing.assert_array_equal(first["observation"], kept["observation"])
    action = np.zeros(task.action_space.shape, dtype=np.float32)
    second, *_ = task.step(action)
    np.testing.assert_array_equal(second["desired_goal"], kept["desired_goal"])
    seen = second["observation"].copy()
    task.step(action)
    np.testing.assert_array_equal(second["observation"], seen)
    np.testing.assert_array_equal(action, 0.0)


def test_reward_of_a_batch_is_that_of_each(task: Any) -> None:
    observation, _ = task.reset(seed=1)
    goal = observation["desired_goal"]
    offsets = np.append(np.linspace(0, 2 * task.distance_threshold, 49), 5.0)[:, None] * np.ones_like(goal)
    achieved = (goal + offsets).astype(np.float32)
    rewards = task.compute_reward(achieved, np.tile(goal, (50, 1)), [{}] * 50)
    assert rewards.shape == (50,)
    assert rewards.dtype == np.float32
    assert rewards[0] == 0.0
    assert rewards[-1] == -1.0
    np.testing.assert_array_equal(rewards, [task.compute_reward(one, goal, {}) for one in achieved])
    if task.spec.id != "ContinuousGridworld-v0":  # which counts from cell to cell
        distances = np.linalg.norm((achieved - goal)[:, task.scored_slice].astype(np.float64), axis=1)
        np.testing.assert_array_equal(rewards, np.where(distances <= task.distance_threshold, 0.0, -1.0))


def test_seed_fixes_everything_to_the_bit(task: Any) -> None:
    def episodes() -> list[Any]:
        first, _ = task.reset(seed=11)
        steps = rollout(task, 20, 4)
        second, _ = task.reset()  # follows from the seed too
        return [(first, 0.0), *steps, (second, 0.0), *rollout(task, 20, 5)]

    used = episodes()
    assert_same(used, episodes())  # no trace of earlier episodes
    fresh = gym.make(task.spec.id).unwrapped
    task.close()
    task = fresh
    assert_same(used, episodes())
    observation, _ = task.reset(seed=12)
    assert not np.array_equal(observation["desired_goal"], used[0][0]["desired_goal"])


def test_given_goal_is_commanded_and_leaves_the_start_alone(task: Any) -> None:
    drawn, _ = task.reset(seed=5)
    other, _ = task.reset(seed=6)
    given, info = task.reset(seed=5, options={"goal": other["desired_goal"].tolist()})
    np.testing.assert_array_equal(given["desired_goal"], other["desired_goal"])
    np.testing.assert_array_equal(given["observation"], drawn["observation"])
    _, info = task.reset(seed=5, options={"goal": drawn["achieved_goal"]})
    assert info["is_success"] == (info["distance"] <= task.distance_threshold)
    next_observation, *_ = task.step(task.action_space.sample())
    np.testing.assert_array_equal(next_observation["desired_goal"], drawn["achieved_goal"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goals": [0.0]}, 'the option "goal" only'),
        ({"goal": np.zeros(99)}, "has the shape"),
        ({"goal": "nan"}, "lies outside"),
        ({"goal": "far"}, "lies outside"),
    ],
)
def test_bad_goals_are_refused(options: dict[str, Any], message: str) -> None:
    task = gym.make("PointUMaze-v0")
    if isinstance(options.get("goal"), str):
        options = {"goal": np.full(2, {"nan": np.nan, "far": 1e9}[options["goal"]])}
    with pytest.raises(ValueError, match=message):
        task.reset(options=options)


def test_bad_actions_are_refused(task: Any) -> None:
    size = task.action_space.shape[0]
    with pytest.raises(gym.error.ResetNeeded):
        task.step(np.zeros(size, dtype=np.float32))
    task.reset(seed=0)
    with pytest.raises(ValueError, match="must be finite"):
        task.step(np.full(size, np.nan, dtype=np.float32))
    with pytest.raises(ValueError, match="takes actions of shape"):
        task.step(np.zeros(size + 1, dtype=np.float32))


def test_actions_beyond_the_bounds_are_clipped(task: Any) -> None:
    size = task.action_space.shape[0]
    task.reset(seed=2)
    inside = [task.step(np.ones(size, dtype=np.float32))[:2] for _ in range(3)]
    task.reset(seed=2)
    assert_same(inside, [task.step(np.full(size, 7.0, dtype=np.float32))[:2] for _ in range(3)])


def test_unknown_render_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="not as 'ansi'"):
        ContinuousGridworld(render_mode="ansi")


def test_a_pickled_task_goes_on_where_it_stood(task: Any) -> None:
    task.reset(seed=8)
    rollout(task, 7, 0)
    copy = pickle.loads(pickle.dumps(task))
    assert_same(rollout(task, 20, 1), rollout(copy, 20, 1))
    original_next, _ = task.reset()
    copy_next, _ = copy.reset()
    assert_same([(original_next, 0.0), *rollout(task, 5, 2)], [(copy_next, 0.0), *rollout(copy, 5, 2)])
    assert copy.spec == task.spec
    copy.close()


@pytest.mark.parametrize(
    "task_id",
    ["SawyerPush-v0", *(pytest.param(task_id, marks=pytest.mark.slow) for task_id in EXPECTED if task_id != "SawyerPush-v0")],
)
def test_subprocesses_agree_with_this_process(task_id: str) -> None:
    workers: Any = SubprocVecEnv([partial(gym.make, f"sb3_clearning.envs:{task_id}")] * 2)
    workers.seed(21)  # SB3 gives each worker the next seed
    observations = workers.reset()
    actions = np.zeros((2, *workers.action_space.shape), dtype=np.float32)
    after, *_ = workers.step(actions)
    rewards = workers.env_method("compute_reward", after["achieved_goal"], after["desired_goal"], None, indices=[0])
    assert rewards[0].shape == (2,)
    workers.close()
    here = gym.make(task_id)
    for index in range(2):
        observation, _ = here.reset(seed=21 + index)
        np.testing.assert_array_equal(observation["desired_goal"], observations["desired_goal"][index])
        observation, *_ = here.step(actions[index])
        np.testing.assert_array_equal(observation["observation"], after["observation"][index])


def test_importing_the_tasks_imports_no_simulator() -> None:
    code = (
        "import sys, gymnasium, sb3_clearning.envs\n"
        "assert 'SawyerReach-v0' in gymnasium.registry\n"
        "print({'mujoco', 'metaworld', 'dm_control', 'shimmy', 'gymnasium_robotics', 'minari'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("task_id", "package"),
    [
        ("SawyerReach-v0", "metaworld"),
        ("PointUMaze-v0", "gymnasium_robotics"),
        ("PointUMaze-v0", "mujoco"),
        ("AdroitPen-v0", "gymnasium_robotics"),
        ("Finger-v0", "dm_control"),
        ("JacoReach-v0", "shimmy"),
    ],
)
def test_missing_simulator_names_the_extra(task_id: str, package: str) -> None:
    # None in sys.modules makes Python fail an import as if the package was not there.
    code = f"import sys; sys.modules[{package!r}] = None\nimport gymnasium, sb3_clearning.envs\ngymnasium.make({task_id!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode != 0
    assert result.stderr.rstrip().splitlines()[-1].endswith('pip install "sb3_clearning[envs]"')

import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from metaworld import policies

from sb3_clearning.envs import sawyer
from tests.support.distributions import assert_independent, assert_uniform, many_resets

TASKS: dict[str, type[sawyer.SawyerTask]] = {
    "SawyerReach-v0": sawyer.SawyerReach,
    "SawyerPush-v0": sawyer.SawyerPush,
    "SawyerWindow-v0": sawyer.SawyerWindow,
    "SawyerDrawer-v0": sawyer.SawyerDrawer,
}

# Low and high of the object's start and of the object's goal, in meters, as the docs state them. Reach has the hand's goal.
RANGES: dict[str, Any] = {
    "SawyerReach-v0": (((0, 0), (0.6, 0.6), None), ((-0.1, 0.1), (0.8, 0.9), (0.05, 0.3))),
    "SawyerPush-v0": (((-0.1, 0.1), (0.6, 0.7), None), ((-0.1, 0.1), (0.5, 0.9), (0.015, 0.015))),
    "SawyerWindow-v0": (((-0.09, 0.09), (0.69, 0.69), (0.2, 0.2)), ((-0.09, 0.09), (0.69, 0.69), (0.2, 0.2))),
    "SawyerDrawer-v0": (((0, 0), (0.57, 0.73), (0.09, 0.09)), ((0, 0), (0.57, 0.73), (0.09, 0.09))),
}


@pytest.mark.parametrize("task_id", TASKS)
def test_starts_and_goals_fill_the_stated_ranges(task_id: str) -> None:
    starts, goals = many_resets(gym.make(task_id))
    object_ranges, goal_ranges = RANGES[task_id]
    np.testing.assert_allclose(starts[:, :3], np.tile([0.0, 0.6, 0.2], (200, 1)), atol=0.01)
    for axis in range(3):
        if object_ranges[axis] is not None:
            assert_uniform(starts[:, 3 + axis], *object_ranges[axis])
        assert_uniform(goals[:, axis], *goal_ranges[axis])
    if task_id != "SawyerReach-v0":
        np.testing.assert_array_equal(goals[:, :3], goals[:, 3:])  # one point for the arm and the object
        axis = int(np.argmax(starts[:, 3:].std(axis=0)))
        assert_independent(starts[:, 3 + axis], goals[:, 3 + axis])
    if task_id == "SawyerPush-v0":
        assert_independent(starts[:, 3], starts[:, 4])
        np.testing.assert_allclose(starts[:, 5], 0.02, atol=1e-3)  # lies on the table


@pytest.mark.parametrize("task_id", TASKS)
def test_first_observation_is_not_stale(task_id: str) -> None:
    env = gym.make(task_id)
    for seed in range(10):
        first, _ = env.reset(seed=seed)
        second, *_ = env.step(np.zeros(4, dtype=np.float32))
        np.testing.assert_allclose(second["observation"], first["observation"], atol=2e-3)


@pytest.mark.parametrize("task_id", TASKS)
def test_steps_are_those_of_metaworld(task_id: str) -> None:
    task: Any = gym.make(task_id).unwrapped
    native = TASKS[task_id].simulator()
    native._set_task_called = True
    generator = np.random.default_rng(0)
    for episode in range(3):
        task.reset(seed=episode)
        if task_id in {"SawyerWindow-v0", "SawyerDrawer-v0"}:
            native.model.body_pos[:] = task.model.body_pos
        if episode == 2:  # on top of the object: with contacts
            hand = task.data.mocap_pos[0].copy()
            target = np.append(task._observe()[3:5], 0.07)
            for _ in range(60):
                task.step(np.append(np.clip((target - hand) * 10, -1, 1), -1))
                hand = task.data.mocap_pos[0].copy()
        spec = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(task.model, spec))
        mujoco.mj_getState(task.model, task.data, state, spec)
        mujoco.mj_setState(native.model, native.data, state, spec)
        mujoco.mj_forward(native.model, native.data)
        native._target_pos = np.zeros(3)
        native.curr_path_length = 0
        # What metaworld's reward wants to know; the reward itself is not compared.
        native.init_tcp, native.obj_init_pos, native.window_handle_pos_init = np.zeros(3), np.ones(3), np.ones(3)
        for _ in range(150):
            action = generator.uniform(-1, 1, 4).astype(np.float32)
            theirs = native.step(action)[0]
            ours = task.step(action)[0]["observation"]
            np.testing.assert_allclose(ours, np.concatenate([theirs[:3], theirs[4:7]]), atol=1e-4)


def reach(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.append(10 * (goal - observation[:3]), 0)


def push(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return policies.SawyerPushV3Policy().get_action(native_observation(observation, goal[3:]))


def slide_window(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    closing = observation[3] > goal[3]
    policy = policies.SawyerWindowCloseV3Policy() if closing else policies.SawyerWindowOpenV3Policy()
    return policy.get_action(native_observation(observation, goal[3:]))


def slide_drawer(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    opening = observation[4] > goal[4]
    policy = policies.SawyerDrawerOpenV3Policy() if opening else policies.SawyerDrawerCloseV3Policy()
    return policy.get_action(native_observation(observation, goal[3:]))


def native_observation(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    native = np.zeros(39)
    native[:3], native[4:7], native[36:] = observation[:3], observation[3:], goal
    return native


@pytest.mark.filterwarnings("ignore:Constant.s. may be too high")
@pytest.mark.parametrize(
    ("task_id", "controller"),
    [
        ("SawyerReach-v0", reach),
        ("SawyerPush-v0", push),
        ("SawyerWindow-v0", slide_window),
        ("SawyerDrawer-v0", slide_drawer),
    ],
)
def test_goals_are_feasible(task_id: str, controller: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    env = gym.make(task_id)
    reached: list[bool] = []
    seed = 0
    while len(reached) < 20:
        seed += 1
        observation, info = env.reset(seed=seed)
        if info["is_success"]:
            continue  # shows nothing
        truncated = False
        while not (truncated or info["is_success"]):
            action = np.clip(controller(observation["observation"], observation["desired_goal"]), -1, 1).astype(np.float32)
            observation, _, _, truncated, info = env.step(action)
        reached.append(info["is_success"])
    assert np.mean(reached) >= 0.8


@pytest.mark.parametrize("task_id", ["SawyerPush-v0", "SawyerWindow-v0", "SawyerDrawer-v0"])
def test_without_the_arm_the_goal_is_the_object_alone(task_id: str) -> None:
    whole, partial = gym.make(task_id), gym.make(task_id, arm_goal=False)
    assert partial.observation_space["desired_goal"].shape == (3,)  # type: ignore[index]
    for seed in range(3):
        (one, info), (other, other_info) = whole.reset(seed=seed), partial.reset(seed=seed)
        np.testing.assert_array_equal(other["observation"], one["observation"])  # the same episode
        for key in ("achieved_goal", "desired_goal"):
            np.testing.assert_array_equal(other[key], one[key][3:])
        assert other_info == info  # the same score
    copy = pickle.loads(pickle.dumps(partial.unwrapped))
    action = np.full(4, 0.5, dtype=np.float32)
    after, copied = partial.step(action), copy.step(action)
    np.testing.assert_array_equal(after[0]["achieved_goal"], copied[0]["achieved_goal"])
    with pytest.raises(TypeError, match="arm_goal must be True or False"):
        gym.make(task_id, arm_goal="hand")


def test_a_hand_at_its_part_of_the_goal_leaves_the_window_off() -> None:
    """The handle is beside the hand that pushes it, so that both parts of the paper's goal cannot be met."""
    env = gym.make("SawyerWindow-v0")
    observation, info = env.reset(seed=0)
    for step in range(150):
        hand, handle = observation["observation"][:3], observation["observation"][3:]
        target = np.add(handle, [0.1, 0.0, 0.0]) if step < 40 else observation["desired_goal"][:3]
        move = np.clip((target - hand) * 20, -1, 1)
        observation, _, _, _, info = env.step(np.append(move, -1).astype(np.float32))
    assert np.linalg.norm(observation["observation"][:3] - observation["desired_goal"][:3]) < 0.02
    assert info["distance"] > 0.04

import logging
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from tests.support.distributions import assert_independent, assert_uniform, many_resets

pytest.importorskip("dm_control", reason="dm_control cannot be installed with Python 3.13")
from dm_control import manipulation, suite

STATE = mujoco.mjtState.mjSTATE_INTEGRATION


def make(task_id: str) -> Any:
    return gym.make(task_id).unwrapped


def put_into_the_same_state(task: Any, physics: Any) -> None:
    state = np.empty(mujoco.mj_stateSize(task.model, STATE))
    mujoco.mj_getState(task.model, task.data, state, STATE)
    mujoco.mj_setState(physics.model.ptr, physics.data.ptr, state, STATE)
    mujoco.mj_forward(physics.model.ptr, physics.data.ptr)


def test_finger_steps_are_those_of_the_suite() -> None:
    task = make("Finger-v0")
    native = suite.load("finger", "turn_hard", task_kwargs={"time_limit": float("inf")})
    native.reset()
    task.reset(seed=0)
    put_into_the_same_state(task, native.physics)
    generator = np.random.default_rng(0)
    touched = False
    for _ in range(1000):
        action = generator.uniform(-1, 1, 2).astype(np.float32)
        theirs = native.step(action).observation
        ours = task.step(action)[0]["observation"]
        np.testing.assert_allclose(
            ours, np.concatenate([theirs["position"], theirs["velocity"], theirs["touch"]]), rtol=1e-5, atol=1e-4
        )
        touched = touched or theirs["touch"].any()
    assert touched


def test_finger_first_observation_and_ranges() -> None:
    task = make("Finger-v0")
    starts, goals = many_resets(task)
    # The joints' ranges in the suite's model; poses that touch the spinner are drawn again, so joints are not uniform.
    for column, name in enumerate(("proximal", "distal")):
        low, high = task.model.joint(name).range
        assert low <= starts[:, column].min() < low + 0.3
        assert high - 0.3 < starts[:, column].max() <= high
    radius = np.linalg.norm(goals, axis=1)
    np.testing.assert_allclose(radius, radius[0], rtol=1e-5)  # on a circle
    angles = np.arctan2(goals[:, 1], goals[:, 0])
    # Two opposite ends of the spinner touch nothing in fewer poses, so its angle is uniform but for a small part.
    for quarter in range(4):
        assert 20 < np.sum((angles >= -np.pi + quarter * np.pi / 2) & (angles < -np.pi / 2 + quarter * np.pi / 2)) < 80
    assert_independent(angles, np.arctan2(starts[:, 3], starts[:, 2]))
    np.testing.assert_array_equal(starts[:, 4:], 0.0)  # at rest
    for seed in range(5):
        first, _ = task.reset(seed=seed)
        np.testing.assert_allclose(first["observation"][:2], task.data.qpos[:2], atol=1e-6)


def test_jaco_steps_are_those_of_dm_control() -> None:
    task = make("JacoReach-v0")
    native = manipulation.load("reach_site_features")
    native.reset()
    task.reset(seed=0)
    put_into_the_same_state(task, native.physics)
    limits = native.action_spec()
    generator = np.random.default_rng(0)
    for _ in range(249):  # at the end of its time, the native one resets
        action = generator.uniform(-1, 1, 9).astype(np.float32)
        theirs = native.step(limits.minimum + (action + 1) / 2 * (limits.maximum - limits.minimum)).observation
        ours = task.step(action)[0]["observation"]
        keys = ("joints_pos", "joints_vel", "jaco_hand/joints_pos", "jaco_hand/joints_vel")
        np.testing.assert_allclose(ours, np.concatenate([theirs[f"jaco_arm/{key}"].ravel() for key in keys]), atol=1e-4)


def test_jaco_hands_fill_the_simulators_box() -> None:
    """Where the hand is after a reset, from the observed joints through the model's own kinematics."""
    task = make("JacoReach-v0")
    starts, goals = many_resets(task)
    pinch = task.model.site("jaco_arm/jaco_hand/pinchsite").id
    pose = mujoco.MjData(task.model)
    for angles in (starts[:, :12], goals):
        hands = []
        for sample in angles.reshape(-1, 6, 2):
            np.testing.assert_allclose(np.linalg.norm(sample, axis=1), 1.0, rtol=1e-5)
            pose.qpos[task._arm] = np.arctan2(sample[:, 0], sample[:, 1])
            mujoco.mj_kinematics(task.model, pose)
            hands.append(pose.site_xpos[pinch].copy())
        positions = np.array(hands)
        # Inverse kinematics is exact to a few millimeters; the simulator's box is 40 x 40 x 38 cm.
        for axis, (low, high) in enumerate([(-0.2, 0.2), (-0.2, 0.2), (0.02, 0.4)]):
            inside = np.clip(positions[:, axis], low, high)
            np.testing.assert_allclose(positions[:, axis], inside, atol=0.01)
            assert inside.min() < low + 0.05
            assert inside.max() > high - 0.05
    assert_independent(starts[:, 0], goals[:, 0])
    np.testing.assert_array_equal(starts[:, 12:18], 0.0)  # at rest
    assert_uniform((starts[:, 18] - starts[:, 18].min()) / np.ptp(starts[:, 18]), 0.0, 1.0)  # fingers opened by chance


def test_jaco_inverse_kinematics_keeps_quiet(caplog: pytest.LogCaptureFixture) -> None:
    task = make("JacoReach-v0")
    with caplog.at_level(logging.WARNING):
        for seed in range(30):
            task.reset(seed=seed)
    assert "Failed to converge" not in caplog.text


def test_no_reset_without_being_asked() -> None:
    """dm_control resets by itself when stepped past its own time limit."""
    task = make("Finger-v0")
    task.reset(seed=0)
    clock = [task.data.time]
    for _ in range(1100):
        task.step(np.zeros(2, dtype=np.float32))
        clock.append(task.data.time)
    np.testing.assert_allclose(np.diff(clock), 0.02)

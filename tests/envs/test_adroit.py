import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium_robotics.envs.adroit_hand.adroit_door import AdroitHandDoorEnv
from gymnasium_robotics.envs.adroit_hand.adroit_pen import AdroitHandPenEnv
from scipy import stats

from sb3_clearning.envs import adroit
from tests.support.distributions import many_resets


def make(task_id: str) -> Any:
    return gym.make(task_id).unwrapped


def rollout(env: Any, actions: np.ndarray) -> np.ndarray:
    observations = [env.step(action)[0] for action in actions]
    return np.array([seen["observation"] if isinstance(seen, dict) else seen for seen in observations])


def test_hand_steps_are_those_of_the_simulator() -> None:
    task, native = make("AdroitHand-v0"), AdroitHandDoorEnv()
    task.reset(seed=0)
    native.reset(seed=0)
    native.model.body_pos[native.door_body_id] = (0, 10, 10)
    native.set_state(native.init_qpos, native.init_qvel)
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 28)).astype(np.float32)
    theirs = rollout(native, actions)
    np.testing.assert_allclose(rollout(task, actions), np.delete(theirs, [27, 28, *range(32, 39)], axis=1), atol=1e-4)


def test_pen_steps_are_those_of_the_simulator() -> None:
    task, native = make("AdroitPen-v0"), AdroitHandPenEnv()
    first, _ = task.reset(seed=0)
    theirs, _ = native.reset(seed=0)
    np.testing.assert_allclose(first["observation"], theirs[:36], atol=1e-6)
    actions = np.random.default_rng(0).uniform(-1, 1, (100, 24)).astype(np.float32)
    np.testing.assert_allclose(rollout(task, actions), rollout(native, actions)[:, :36], atol=1e-4)


def test_no_door_is_in_the_hands_way() -> None:
    task = make("AdroitHand-v0")
    task.reset(seed=0)
    door = {index for index in range(task.model.nbody) if task.model.body(index).name in {"frame", "door", "latch"}}
    assert len(door) == 3
    for action in np.random.default_rng(0).uniform(-1, 1, (50, 28)).astype(np.float32):
        task.step(action)
        touching = {int(task.model.geom_bodyid[geom]) for contact in task.data.contact for geom in contact.geom}
        assert not touching & door


def test_hand_moves_as_if_there_was_no_door() -> None:
    """Against the simulator's model with the door cut out of it."""
    task = make("AdroitHand-v0")
    task.reset(seed=0)
    spec = mujoco.MjSpec.from_file(AdroitHandDoorEnv().fullpath)
    spec.detach_body(spec.body("frame"))
    model = spec.compile()
    assert model.nq == 28
    # The gains that the simulator sets after loading its file.
    model.actuator_gainprm[:], model.actuator_biasprm[:] = task.model.actuator_gainprm, task.model.actuator_biasprm
    data = mujoco.MjData(model)
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 28)).astype(np.float32)
    ours = rollout(task, actions)
    for action, expected in zip(actions, ours, strict=True):
        data.ctrl[:] = task._adroit.act_mean + action * task._adroit.act_rng
        mujoco.mj_step(model, data, nstep=5)
        np.testing.assert_allclose(expected[:27], data.qpos[1:], atol=1e-6)


def test_hand_goals_are_states_after_fifty_random_actions() -> None:
    """The simulator itself, under 50 uniform actions drawn from the same seed, ends in the goal."""
    task, native = make("AdroitHand-v0"), AdroitHandDoorEnv()
    for seed in range(10):
        goal = task.reset(seed=seed)[0]["desired_goal"]
        native.reset(seed=0)
        native.model.body_pos[native.door_body_id] = (0, 10, 10)
        native.set_state(native.init_qpos, native.init_qvel)
        actions = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).uniform(-1, 1, (50, 28))
        state = np.delete(rollout(native, actions)[-1], [27, 28, *range(32, 39)])
        np.testing.assert_allclose(goal, state, atol=1e-4)


def test_hand_goals_differ_from_reset_to_reset() -> None:
    starts, goals = many_resets(make("AdroitHand-v0"))
    assert len(np.unique(goals, axis=0)) == 200
    # 50 random actions leave the start behind, but none of the joints' limits.
    assert np.linalg.norm(goals - starts, axis=1).min() > 1.0
    for column in range(27):
        assert goals[:, column].std() > 0.01


def test_hand_starts_from_the_simulators_state() -> None:
    task = make("AdroitHand-v0")
    starts, _ = many_resets(task, 5)
    np.testing.assert_array_equal(starts, starts[:1].repeat(5, axis=0))
    native = AdroitHandDoorEnv()
    theirs, _ = native.reset(seed=0)
    np.testing.assert_allclose(starts[0], np.delete(theirs, [27, 28, *range(32, 39)]), atol=1e-6)


def test_pen_goals_without_demonstrations_are_the_documented_gaussian(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    adroit.demonstrated_pen_positions.cache_clear()
    _, goals = many_resets(make("AdroitPen-v0"))
    make("AdroitPen-v0")
    assert caplog.text.count("draws its goals from a Gaussian") == 1  # not once for each task made
    low, high = np.array([-0.05, -0.25, 0.205]), np.array([0.03, -0.16, 0.265])
    mean, deviation = np.array([0.006, -0.203, 0.232]), np.array([0.026, 0.025, 0.018])
    np.testing.assert_allclose(goals, np.clip(goals, low, high), atol=1e-6)
    for axis in range(3):
        at_top = np.isclose(goals[:, axis], high[axis]).mean()
        assert abs(at_top - stats.norm.sf(high[axis], mean[axis], deviation[axis])) < 0.1
        median = np.median(goals[:, axis])
        assert abs(median - mean[axis]) < 4 * 1.25 * deviation[axis] / np.sqrt(200)
    adroit.demonstrated_pen_positions.cache_clear()


DATASET = """
import logging
import gymnasium as gym, numpy as np, minari
from minari.data_collector import EpisodeBuffer
observations = np.random.default_rng(0).normal(size=(2, 11, 45)) * 0.01
buffers = [
    EpisodeBuffer(
        id=index, observations=episode, actions=np.zeros((10, 24), dtype=np.float32), rewards=np.zeros(10).tolist(),
        terminations=[False] * 10, truncations=[False] * 9 + [True], infos={},
    )
    for index, episode in enumerate(observations)
]
space = gym.spaces.Box(-np.inf, np.inf, (45,), np.float64)
minari.create_dataset_from_buffers(
    "D4RL/pen/human-v2", buffers, observation_space=space, action_space=gym.spaces.Box(-1, 1, (24,), np.float32),
    author="test", author_email="test", code_permalink="test", algorithm_name="test", description="test",
)
logging.basicConfig(level=logging.INFO)
import sb3_clearning.envs
env = gym.make("AdroitPen-v0")
positions = observations[:, :, 24:27].reshape(-1, 3).astype(np.float32)
drawn = np.array([env.reset(seed=seed)[0]["desired_goal"] for seed in range(200)])
found = (drawn[:, None] == positions).all(axis=-1)
assert found.any(axis=1).all(), "a goal that nobody demonstrated"
assert found.any(axis=0).all(), "demonstrated states that are never goals"
"""


def test_pen_goals_are_demonstrated_states_where_there_are_any(tmp_path: Path) -> None:
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", DATASET], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("draws its goals from D4RL/pen/human-v2") == 1


def test_pen_target_can_not_touch_anything() -> None:
    """The simulator's target stays in the model: it must not take part in the physics."""
    task = make("AdroitPen-v0")
    target = task.model.body("target").id
    geoms = np.flatnonzero(task.model.geom_bodyid == target)
    assert len(geoms) > 0
    np.testing.assert_array_equal(task.model.geom_contype[geoms], 0)
    np.testing.assert_array_equal(task.model.geom_conaffinity[geoms], 0)

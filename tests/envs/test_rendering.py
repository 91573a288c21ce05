"""Pictures: of the right shape, the right way up, and with the goal where it is."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from PIL import Image

from sb3_clearning.envs import TASK_IDS
from sb3_clearning.envs.contact_sheet import main


@pytest.fixture(autouse=True, scope="module")
def _needs_opengl() -> None:
    import mujoco

    try:
        mujoco.GLContext(16, 16).free()
    except Exception as error:
        pytest.skip(f"MuJoCo cannot render here (MUJOCO_GL=egl needs libegl1, libegl-mesa0, libgl1-mesa-dri): {error}")


@pytest.fixture(params=TASK_IDS)
def drawn_task(request: pytest.FixtureRequest) -> Iterator[Any]:
    env = gym.make(request.param, render_mode="rgb_array").unwrapped
    yield env
    env.close()


def test_goal_is_seen_and_moves_with_the_goal(drawn_task: Any) -> None:
    other, _ = drawn_task.reset(seed=1)
    drawn_task.reset(seed=0)
    picture = drawn_task.render()
    assert picture.shape == (480, 480, 3)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, drawn_task.render())  # looking changes nothing
    drawn_task.reset(seed=0, options={"goal": other["desired_goal"]})
    changed = (drawn_task.render() != picture).any(axis=-1).mean()
    assert 1e-4 < changed < 0.3  # the mark alone: the state is the same
    assert is_magenta(picture).sum() > 20


def is_magenta(picture: np.ndarray) -> np.ndarray:
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    return (red - green > 60) & (blue - green > 40)


@pytest.mark.parametrize(
    ("task_id", "low", "high"),
    [
        ("SawyerReach-v0", [0, 0.75, 0.1], [0, 0.75, 0.25]),
        ("SawyerPush-v0", [0, 0.75, 0.1] * 2, [0, 0.75, 0.25] * 2),
        ("SawyerWindow-v0", [0.2, 0.65, 0.1] * 2, [0.2, 0.65, 0.25] * 2),
        ("SawyerDrawer-v0", [0.2, 0.65, 0.1] * 2, [0.2, 0.65, 0.25] * 2),
        ("Finger-v0", [0.0, -0.18], [0.0, 0.18]),
        ("AdroitPen-v0", [-0.1, -0.2, 0.2], [-0.1, -0.2, 0.3]),
        ("PointUMaze-v0", [1, -1], [1, 1]),  # y upwards
        ("ContinuousGridworld-v0", [0, 0], [0, 4]),  # j upwards
    ],
)
def test_up_is_up(task_id: str, low: list[float], high: list[float]) -> None:
    """A mark put higher is seen higher: fails for pictures that are upside down."""
    task: Any = gym.make(task_id, render_mode="rgb_array").unwrapped
    rows = []
    for goal in (low, high):
        task.reset(seed=0, options={"goal": goal})
        rows.append(np.argwhere(is_magenta(task.render()))[:, 0].mean())
    task.close()
    assert rows[1] < rows[0] - 10


@pytest.mark.slow
def test_checker_accepts_the_pictures(drawn_task: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(drawn_task)


@pytest.mark.parametrize(("task_id", "point"), [("Finger-v0", "tip"), ("SawyerWindow-v0", "handleCloseStart")])
def test_mark_is_where_the_simulator_has_the_achieved_goal(task_id: str, point: str) -> None:
    task: Any = gym.make(task_id, render_mode="rgb_array").unwrapped
    first, _ = task.reset(seed=0)
    task.reset(seed=0, options={"goal": first["achieved_goal"]})
    expected = task.data.site(point).xpos
    np.testing.assert_allclose(task._goal_points()[0], expected, atol=1e-5)


@pytest.mark.parametrize("task_id", ["JacoReach-v0", "AdroitHand-v0"])
def test_ghost_of_the_achieved_pose_covers_the_robot(task_id: str) -> None:
    """A goal that is the present pose draws its ghost exactly over the robot."""
    task: Any = gym.make(task_id, render_mode="rgb_array").unwrapped
    first, _ = task.reset(seed=0)
    for _ in range(5):
        task.step(np.ones(task.action_space.shape, dtype=np.float32) * 0.5)
    there = is_magenta(task.render()).sum()
    poses = []
    task._add_ghost = lambda scene, pose, bodies: poses.append(pose)
    # At rest: palms are measured one simulation step before the joints.
    task.reset(seed=0, options={"goal": first["achieved_goal"]})
    task.render()
    assert there > 200
    np.testing.assert_allclose(poses[0], task.data.qpos, atol=1e-5 if task_id == "AdroitHand-v0" else 2 * np.pi + 1e-5)
    np.testing.assert_allclose(np.sin(poses[0]), np.sin(task.data.qpos), atol=1e-5)


def test_no_picture_without_a_render_mode() -> None:
    env: Any = gym.make("ContinuousGridworld-v0").unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


@pytest.mark.slow
def test_contact_sheet_shows_all_tasks(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "sheet.png"
    main([str(path), "--steps", "2"])
    with Image.open(path) as sheet:
        assert sheet.size == (960, -(-len(TASK_IDS) // 2) * 262)
        assert np.asarray(sheet).std() > 20

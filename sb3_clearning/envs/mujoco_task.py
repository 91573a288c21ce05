"""MujocoGoalTask: what MuJoCo tasks share, the state of the simulation and rendering with the goal marked."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning.envs.base import GoalTask, missing_simulator

try:
    import mujoco
except ImportError as error:
    raise missing_simulator("This task", error) from error

# All that a step depends on. It includes the solver's warm start, so that a restored simulation continues bit for bit.
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
# Magenta: the simulators use red, green and blue themselves.
GOAL_COLOR = np.array([1.0, 0.1, 0.8, 0.6], dtype=np.float32)
# Width and height of an image.
SIZE = 480


def save_simulation(model: Any, data: Any) -> np.ndarray:
    """:return: The whole state of an MjModel's simulation as a flat array"""
    state = np.empty(mujoco.mj_stateSize(model, _STATE))
    mujoco.mj_getState(model, data, state, _STATE)
    return state


def load_simulation(model: Any, data: Any, state: np.ndarray) -> None:
    """Restore what `save_simulation` returned. Positions of bodies are stale until `mj_forward` or `mj_kinematics`."""
    mujoco.mj_setState(model, data, state, _STATE)


class MujocoGoalTask(GoalTask):
    """A task simulated by MuJoCo."""

    #: The free camera: lookat, distance, azimuth, elevation. It is fixed and upright, unlike some of the simulators' cameras.
    camera: ClassVar[dict[str, Any]]
    #: Radius of the sphere that marks a goal's point.
    marker_radius: ClassVar[float] = 0.02

    def __init__(
        self,
        model: Any,
        data: Any,
        observation_low: np.ndarray,
        observation_high: np.ndarray,
        action_size: int,
        render_mode: str | None = None,
    ) -> None:
        actions = spaces.Box(-1.0, 1.0, (action_size,), dtype=np.float32)
        super().__init__(observation_low, observation_high, actions, render_mode)
        self.model = model
        self.data = data
        self._renderer: Any = None

    def _simulator_state(self) -> Any:
        return save_simulation(self.model, self.data)

    def _restore_simulator(self, state: Any) -> None:
        load_simulation(self.model, self.data, state)
        mujoco.mj_forward(self.model, self.data)

    # Pictures

    def _goal_points(self) -> list[np.ndarray]:
        """:return: The goal's points in the scene, (3,) each"""
        raise NotImplementedError

    def _mark_goal(self, scene: Any) -> None:
        """Draw the goal into a scene: by default a sphere at each of its points."""
        for point in self._goal_points():
            self._add_shape(scene, mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, self.marker_radius), point)

    def _add_shape(self, scene: Any, shape: Any, size: np.ndarray, point: np.ndarray) -> None:
        center, upright = np.asarray(point, dtype=np.float64), np.eye(3).ravel()
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], shape, size, center, upright, GOAL_COLOR)
        scene.ngeom += 1

    def _add_ghost(self, scene: Any, qpos: np.ndarray, bodies: np.ndarray) -> None:
        """Draw the bodies with the given ids again, translucent, in the pose `qpos`."""
        ghost = mujoco.MjData(self.model)
        ghost.qpos[:] = qpos
        mujoco.mj_forward(self.model, ghost)
        options, nothing_held = mujoco.MjvOption(), mujoco.MjvPerturb()
        options.sitegroup[:] = 0
        first = scene.ngeom
        mujoco.mjv_addGeoms(self.model, ghost, options, nothing_held, mujoco.mjtCatBit.mjCAT_DYNAMIC, scene)
        for geom in scene.geoms[first : scene.ngeom]:
            drawn = geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and self.model.geom_bodyid[geom.objid] in bodies
            geom.rgba[:] = GOAL_COLOR
            geom.rgba[3] = 0.45 if drawn else 0.0
            geom.matid = -1

    def _picture(self) -> np.ndarray:
        if self._renderer is None:
            self._renderer = self._make_renderer()
        free_camera = mujoco.MjvCamera()
        free_camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        free_camera.lookat[:] = self.camera["lookat"]
        free_camera.distance = self.camera["distance"]
        free_camera.azimuth = self.camera["azimuth"]
        free_camera.elevation = self.camera["elevation"]
        self._renderer.update_scene(self.data, camera=free_camera)
        self._mark_goal(self._renderer.scene)
        return self._renderer.render().copy()

    def _make_renderer(self) -> Any:
        off_screen = self.model.vis.global_
        off_screen.offheight, off_screen.offwidth = max(off_screen.offheight, SIZE), max(off_screen.offwidth, SIZE)
        try:
            return mujoco.Renderer(self.model, SIZE, SIZE, max_geom=20_000)
        except Exception as error:  # each OpenGL backend of MuJoCo raises other exceptions
            raise gym.error.DependencyNotInstalled(
                f"MuJoCo cannot render here ({error}). Without a screen, set the environment variable MUJOCO_GL=egl (needs "
                "libegl1, libegl-mesa0 and libgl1-mesa-dri on Debian) or MUJOCO_GL=osmesa (libosmesa6) before Python starts"
            ) from error

    def close(self) -> None:
        """Free the renderer's OpenGL context and the simulator."""
        for name in ("_renderer", "_simulator"):
            if getattr(self, name, None) is not None:
                getattr(self, name).close()
                setattr(self, name, None)

"""The four Sawyer tasks, in metaworld."""

from typing import ClassVar

import numpy as np

from sb3_clearning.envs.base import missing_simulator
from sb3_clearning.envs.mujoco_task import MujocoGoalTask, load_simulation, save_simulation

try:
    import mujoco
    from metaworld.envs import SawyerDrawerOpenEnvV3, SawyerPushEnvV3, SawyerReachEnvV3, SawyerWindowCloseEnvV3
except ImportError as error:
    raise missing_simulator("A Sawyer task", error) from error

# Where the hand starts in all four tasks of the paper; metaworld's window task now starts at y = 0.4.
_HAND_START = np.array([0.0, 0.6, 0.2])


class SawyerTask(MujocoGoalTask):
    """
    A Sawyer arm that is controlled by its hand, in front of an object.

    The observation is the hand's xyz and the object's xyz, the action a move of the hand by up to 1 cm in x, y, z, and the
    closing of the gripper.

    Metaworld's `reset` runs once; each episode restores that state and moves the object. That `reset` cannot be seeded, takes
    500 steps of simulation, and returns a stale first observation in two of these tasks. Metaworld's `step` computes rewards
    that are not used here.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 80}
    camera = {"lookat": (0.0, 0.72, 0.1), "distance": 1.05, "azimuth": 150.0, "elevation": -30.0}
    simulator: ClassVar[type]

    def __init__(self, render_mode: str | None = None) -> None:
        sawyer = self._simulator = self._sawyer = self.simulator()
        # The hand's bounds are metaworld's own; the object can leave the table.
        hand = sawyer._HAND_SPACE  # noqa: SLF001 (metaworld has no public name for the bounds)
        low, high = np.concatenate([hand.low, np.full(3, -3.0)]), np.concatenate([hand.high, np.full(3, 3.0)])
        super().__init__(sawyer.model, sawyer.data, low, high, action_size=4, render_mode=render_mode)
        self._hand = self.model.body("hand").id
        self.model.site("goal").rgba[3] = 0.0  # this package draws its own
        sawyer.hand_init_pos = _HAND_START
        self._place_furniture()
        mujoco.mj_resetData(self.model, self.data)
        sawyer._reset_hand()  # noqa: SLF001 (the part of metaworld's reset that is needed)
        self._start = save_simulation(self.model, self.data)

    def _place_furniture(self) -> None:
        """Place what never moves in this task."""

    def _place_object(self) -> None:
        """Draw the object's initial position, and set it in the simulation."""
        raise NotImplementedError

    def _object_position(self) -> np.ndarray:
        """:return: The object's position, (3,)"""
        raise NotImplementedError

    def _draw_goal(self) -> np.ndarray:
        """:return: A random goal"""
        raise NotImplementedError

    def _begin_episode(self) -> np.ndarray:
        load_simulation(self.model, self.data, self._start)
        goal = self._draw_goal()
        self._place_object()
        # Without it the first observation would show the object where it was before.
        mujoco.mj_forward(self.model, self.data)
        return goal

    def _advance(self, action: np.ndarray) -> None:
        sawyer, data = self._sawyer, self.data
        sawyer.set_xyz_action(action[:3])
        data.ctrl[0], data.ctrl[1] = action[3], -action[3]
        mujoco.mj_step(self.model, data, nstep=sawyer.frame_skip)
        # The positions of bodies lag one simulation step behind the joints.
        mujoco.mj_kinematics(self.model, data)

    def _observe(self) -> np.ndarray:
        return np.concatenate((self.data.xpos[self._hand], self._object_position()), dtype=np.float32)

    def _goal_points(self) -> list[np.ndarray]:
        assert self._goal is not None
        return [self._goal[self.scored_slice]]


class _PuckTask(SawyerTask):
    """A task with a puck on a free joint."""

    _puck_low = np.array([0.0, 0.6, 0.02])
    _puck_high = np.array([0.0, 0.6, 0.02])
    _goal_low: ClassVar[np.ndarray]
    _goal_high: ClassVar[np.ndarray]

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._puck = self.model.body("obj").id

    def _place_object(self) -> None:
        self.data.qpos[9:12] = self.np_random.uniform(self._puck_low, self._puck_high)
        self.data.qvel[9:15] = 0.0

    def _object_position(self) -> np.ndarray:
        return self.data.xpos[self._puck]

    def _draw_goal(self) -> np.ndarray:
        return self.np_random.uniform(self._goal_low, self._goal_high)


class SawyerReach(_PuckTask):
    """Bring the hand to a point. The goal is the hand's xyz."""

    simulator = SawyerReachEnvV3
    goal_slice = slice(0, 3)
    distance_threshold = 0.05  # metaworld's
    _goal_low = np.array([-0.1, 0.8, 0.05])
    _goal_high = np.array([0.1, 0.9, 0.3])


class _ObjectTask(SawyerTask):
    """
    A task that scores the object's position. As in the paper, the goal has the hand at the same point, which it cannot always
    reach: it stays 5 cm away beside the window's handle, 1 to 3 cm in front of it, and 3 cm over the table. With
    ``arm_goal=False`` the goal is the object's xyz alone, a partial goal.
    """

    scored_slice = slice(3, 6)

    def __init__(self, render_mode: str | None = None, arm_goal: bool = True) -> None:
        if not isinstance(arm_goal, bool):
            raise TypeError(f"arm_goal must be True or False, not {arm_goal!r}")
        if not arm_goal:
            self.goal_slice, self.scored_slice = slice(3, 6), slice(0, 3)
        self._places = 2 if arm_goal else 1
        super().__init__(render_mode)

    def _begin_episode(self) -> np.ndarray:
        return np.tile(super()._begin_episode(), self._places)


class SawyerPush(_ObjectTask, _PuckTask):
    """
    Push a puck to a point. The goal is the hand's and the puck's xyz, both at that point; the puck's alone is scored.

    The hand cannot move below z = 0.046, so that its part of the goal (z = 0.015) is never reached exactly. With
    ``arm_goal=False`` the goal is the puck's xyz alone.
    """

    simulator = SawyerPushEnvV3
    distance_threshold = 0.05  # metaworld's
    _puck_low = np.array([-0.1, 0.6, 0.02])
    _puck_high = np.array([0.1, 0.7, 0.02])
    _goal_low = np.array([-0.1, 0.5, 0.015])
    _goal_high = np.array([0.1, 0.9, 0.015])


class _SlideTask(_ObjectTask):
    """A task with an object that slides along a rail. The goal is the hand's and the handle's xyz, both at one point."""

    # Metaworld's own goal is always at the end of the rail. Here start and goal are anywhere on it, and metaworld's 0.05
    # of the window would call half of the episodes solved before they begin.
    distance_threshold = 0.03
    _furniture: ClassVar[tuple[str, tuple[float, float, float]]]
    _joint: ClassVar[str]
    _slide_range: ClassVar[tuple[float, float]]

    def __init__(self, render_mode: str | None = None, arm_goal: bool = True) -> None:
        super().__init__(render_mode, arm_goal)
        joint = self.model.joint(self._joint)
        self._slide, self._slide_velocity = joint.qposadr[0], joint.dofadr[0]

    def _place_furniture(self) -> None:
        name, position = self._furniture
        self.model.body(name).pos = position

    def _place_object(self) -> None:
        self.data.qpos[self._slide] = self.np_random.uniform(*self._slide_range)
        self.data.qvel[self._slide_velocity] = 0.0

    def _draw_goal(self) -> np.ndarray:
        # The simulator itself says where the handle is at a random position of the slide.
        self._place_object()
        mujoco.mj_kinematics(self.model, self.data)
        return self._object_position().copy()


class SawyerWindow(_SlideTask):
    """Slide a window. The goal is the hand's and the handle's xyz, both there; with ``arm_goal=False`` the handle's alone."""

    simulator = SawyerWindowCloseEnvV3
    _furniture = ("window", (-0.1, 0.785, 0.2))
    _joint = "window_slide"
    # The paper's range of the handle, x from -0.09 to 0.09. The rail now continues to 0.11.
    _slide_range = (0.0, 0.18)

    def __init__(self, render_mode: str | None = None, arm_goal: bool = True) -> None:
        super().__init__(render_mode, arm_goal)
        self._handle = self.model.site("handleCloseStart").id

    def _object_position(self) -> np.ndarray:
        return self.data.site_xpos[self._handle]


class SawyerDrawer(_SlideTask):
    """Slide a drawer. The goal is the hand's and the handle's xyz, both there; with ``arm_goal=False`` the handle's alone."""

    simulator = SawyerDrawerOpenEnvV3
    _furniture = ("drawer", (0.0, 0.9, 0.0))
    _joint = "goal_slidey"
    # The whole rail: the handle's y from 0.57 to 0.73. The paper's goals of 2020 began at 0.5.
    _slide_range = (-0.16, 0.0)
    # From the middle of the drawer to its handle, as metaworld counts it.
    _handle_offset = np.array([0.0, -0.16, 0.0])

    def __init__(self, render_mode: str | None = None, arm_goal: bool = True) -> None:
        super().__init__(render_mode, arm_goal)
        self._drawer = self.model.body("drawer_link").id

    def _object_position(self) -> np.ndarray:
        return self.data.xpos[self._drawer] + self._handle_offset

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

# Where the hand starts in all four tasks of the paper; metaworld's window task of today starts at y = 0.4.
_HAND_START = np.array([0.0, 0.6, 0.2])


class SawyerTask(MujocoGoalTask):
    """
    A Sawyer arm moved by its hand, before an object.

    The observation is the hand's xyz and the object's xyz, the action a move of the hand by up to 1 cm in x, y, z, and the
    closing of the gripper.

    The simulator runs its own slow reset once; each episode begins from that state, restored, with the object moved.
    Metaworld's `reset` can not be seeded, moves the hand through 500 steps of simulation each time, and gives a stale first
    observation in two of these tasks; its `step` computes rewards that nobody reads here.

    :param render_mode: None or "rgb_array"
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 80}
    camera = {"lookat": (0.0, 0.7, 0.1), "distance": 1.3, "azimuth": 140.0, "elevation": -30.0}
    simulator: ClassVar[type]

    def __init__(self, render_mode: str | None = None) -> None:
        sawyer = self._sawyer = self.simulator()
        # The hand's bounds are metaworld's own; the object can leave the table.
        hand = sawyer._HAND_SPACE
        low, high = np.concatenate([hand.low, np.full(3, -3.0)]), np.concatenate([hand.high, np.full(3, 3.0)])
        super().__init__(sawyer.model, sawyer.data, low, high, action_size=4, render_mode=render_mode)
        self._hand = self.model.body("hand").id
        self.model.site("goal").rgba[3] = 0.0  # ours is drawn instead
        sawyer.hand_init_pos = _HAND_START
        self._place_furniture()
        mujoco.mj_resetData(self.model, self.data)
        sawyer._reset_hand()
        self._start = save_simulation(self.model, self.data)

    def _place_furniture(self) -> None:
        """Put into place what never moves in this task."""

    def _place_object(self) -> None:
        """Draw where the object starts, and write it into the simulation."""
        raise NotImplementedError

    def _object_position(self) -> np.ndarray:
        """Where the object is, (3,)."""
        raise NotImplementedError

    def _draw_goal(self) -> np.ndarray:
        """A random goal."""
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

    def close(self) -> None:
        """Free the simulator."""
        super().close()
        self._sawyer.close()


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
    """
    Bring the hand to a point. The goal is the hand's xyz.

    :param render_mode: None or "rgb_array"
    """

    simulator = SawyerReachEnvV3
    goal_slice = slice(0, 3)
    distance_threshold = 0.05  # metaworld's
    _goal_low = np.array([-0.1, 0.8, 0.05])
    _goal_high = np.array([0.1, 0.9, 0.3])

"""The Adroit hand alone and the Adroit hand with a pen, in gymnasium-robotics."""

import logging
from functools import cache
from typing import Any

import numpy as np

from sb3_clearning.envs.base import missing_simulator
from sb3_clearning.envs.mujoco_task import MujocoGoalTask, load_simulation, save_simulation

try:
    import mujoco
    from gymnasium_robotics.envs.adroit_hand.adroit_door import AdroitHandDoorEnv
    from gymnasium_robotics.envs.adroit_hand.adroit_pen import AdroitHandPenEnv
except ImportError as error:
    raise missing_simulator("An Adroit task", error) from error

logger = logging.getLogger(__name__)

PEN_DATASET = "D4RL/pen/human-v2"


class AdroitTask(MujocoGoalTask):
    """A task of the Adroit hand. All episodes start in the same state, as in the simulator; only the goals differ."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 100}

    def __init__(self, adroit: Any, observation_size: int, render_mode: str | None = None) -> None:
        self._simulator = self._adroit = adroit
        # Joints in radians, positions in meters, velocities.
        high = np.full(observation_size, 100.0)
        super().__init__(adroit.model, adroit.data, -high, high, adroit.action_space.shape[0], render_mode)
        adroit.reset(seed=0)
        self._arrange()
        mujoco.mj_resetData(self.model, self.data)
        adroit.set_state(adroit.init_qpos, adroit.init_qvel)
        self._start = save_simulation(self.model, self.data)
        self._palm = self.model.site("S_grasp").id

    def _arrange(self) -> None:
        """Adapt the simulator's model to this task."""

    def _draw_goal(self) -> np.ndarray:
        """:return: A random goal. The hand may be moved for it"""
        raise NotImplementedError

    def _begin_episode(self) -> np.ndarray:
        goal = self._draw_goal()
        self._to_start()
        return goal

    def _to_start(self) -> None:
        load_simulation(self.model, self.data, self._start)
        mujoco.mj_forward(self.model, self.data)

    def _advance(self, action: np.ndarray) -> None:
        adroit = self._adroit
        # The simulator's own step, without its reward and target.
        self.data.ctrl[:] = adroit.act_mean + action * adroit.act_rng
        mujoco.mj_step(self.model, self.data, nstep=adroit.frame_skip)


class AdroitHand(AdroitTask):
    """
    Bring the hand into a pose. The goal is the whole state: 27 joints and the palm's xyz.

    The simulator's door is moved out of reach. A goal is the state after 50 random actions.
    """

    # Goals are snapshots of a moving hand: random actions end 1.2 away (median), no actions 0.9, and following the goal's
    # joints with the hand's position controllers 0.9 to 1.3.
    distance_threshold = 0.75
    camera = {"lookat": (0.0, -0.35, 0.25), "distance": 0.9, "azimuth": 45.0, "elevation": -25.0}
    _goal_actions = 50
    _hand_joints = slice(1, 28)  # without the first one, the arm's translation, which the palm's position contains

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(AdroitHandDoorEnv(), observation_size=30, render_mode=render_mode)

    def _arrange(self) -> None:
        self.model.body_pos[self._adroit.door_body_id] = (0.0, 10.0, 10.0)

    def _draw_goal(self) -> np.ndarray:
        self._to_start()
        for action in self.np_random.uniform(-1.0, 1.0, (self._goal_actions, *self.action_space.shape)):  # type: ignore[misc]
            self._advance(action)
        return self._observe()

    def _observe(self) -> np.ndarray:
        return np.concatenate((self.data.qpos[self._hand_joints], self.data.site_xpos[self._palm]), dtype=np.float32)

    def _goal_pose(self) -> np.ndarray:
        """:return: All joints' positions at the goal"""
        assert self._goal is not None
        pose = self.data.qpos.copy()
        pose[self._hand_joints] = self._goal[:27]
        pose[0] = 0.0
        there = mujoco.MjData(self.model)
        there.qpos[:] = pose
        mujoco.mj_kinematics(self.model, there)
        # The first joint slides the whole hand along its axis: as far as the palm is still off.
        pose[0] = np.dot(self._goal[27:] - there.site_xpos[self._palm], there.xaxis[0])
        return pose

    def _mark_goal(self, scene: Any) -> None:
        hand = [body for body in range(1, self.model.nbody) if self.model.body_rootid[body] == self.model.jnt_bodyid[0]]
        self._add_ghost(scene, self._goal_pose(), np.array(hand))


class AdroitPen(AdroitTask):
    """
    Bring a pen in the hand to a point. The goal is the pen's xyz, without its orientation.

    The observation is the hand's 24 joints, the pen's xyz, its six velocities and its orientation. Goals are pens' positions
    in D4RL's human demonstrations if Minari's dataset is on this machine, else draws of a Gaussian fitted to an expert's.
    """

    goal_slice = slice(24, 27)
    # The simulator's 0.075 is too large: the pen starts 0.037 (median) from its goals.
    distance_threshold = 0.02
    camera = {"lookat": (0.0, -0.2, 0.22), "distance": 0.7, "azimuth": -45.0, "elevation": -30.0}
    marker_radius = 0.015
    # Goals without the demonstrations.
    _goal_mean = np.array([0.006, -0.203, 0.232])
    _goal_std = np.array([0.026, 0.025, 0.018])
    _goal_low = np.array([-0.05, -0.25, 0.205])
    _goal_high = np.array([0.03, -0.16, 0.265])

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(AdroitHandPenEnv(), observation_size=36, render_mode=render_mode)
        self._demonstrations = demonstrated_pen_positions()
        adroit = self._adroit
        self._pen, self._top, self._bottom = adroit.obj_body_id, adroit.obj_t_site_id, adroit.obj_b_site_id
        self._pen_length = np.linalg.norm(self.data.site_xpos[self._top] - self.data.site_xpos[self._bottom])

    def _arrange(self) -> None:
        # The simulator's target is a second pen, fixed beside the hand, in the orientation to reach. Here the agent does not
        # observe it, so it must not collide with it either.
        target = self._adroit.target_obj_body_id
        geoms, sites = self.model.geom_bodyid == target, self.model.site_bodyid == target
        self.model.geom_contype[geoms] = self.model.geom_conaffinity[geoms] = 0
        self.model.geom_rgba[geoms, 3] = self.model.site_rgba[sites, 3] = 0.0

    def _draw_goal(self) -> np.ndarray:
        if self._demonstrations is not None:
            return self._demonstrations[self.np_random.integers(len(self._demonstrations))]
        return np.clip(self.np_random.normal(self._goal_mean, self._goal_std), self._goal_low, self._goal_high)

    def _observe(self) -> np.ndarray:
        data = self.data
        orientation = (data.site_xpos[self._top] - data.site_xpos[self._bottom]) / self._pen_length
        return np.concatenate((data.qpos[:-6], data.xpos[self._pen], data.qvel[-6:], orientation), dtype=np.float32)

    def _goal_points(self) -> list[np.ndarray]:
        assert self._goal is not None
        return [self._goal]

    def _mark_goal(self, scene: Any) -> None:
        super()._mark_goal(scene)
        # The pen and the fingers often hide the sphere: lines along the axes stay visible.
        for lengths in np.eye(3) * 0.06 + 0.0025:
            self._add_shape(scene, mujoco.mjtGeom.mjGEOM_BOX, lengths, self._goal_points()[0])


@cache
def demonstrated_pen_positions() -> np.ndarray | None:
    """
    Log, once per process, where goals come from. Nothing is downloaded.

    :return: The pen's positions in D4RL's human demonstrations (states, 3), or None if the dataset is not on this machine
    """
    try:
        import minari

        found = PEN_DATASET in minari.list_local_datasets()
    except ImportError:
        found = False
    if not found:
        logger.warning(
            "AdroitPen-v0 draws its goals from a Gaussian: the paper's demonstrations are not on this machine. "
            "`minari download %s` gets them",
            PEN_DATASET,
        )
        return None
    logger.info("AdroitPen-v0 draws its goals from %s", PEN_DATASET)
    episodes = minari.load_dataset(PEN_DATASET).iterate_episodes()
    return np.concatenate([np.asarray(episode.observations)[:, 24:27] for episode in episodes]).astype(np.float32)

"""Finger and Jaco Reach in dm_control, through shimmy's compatibility layer."""

import logging
from typing import Any

import numpy as np

from sb3_clearning.envs.base import missing_simulator
from sb3_clearning.envs.mujoco_task import MujocoGoalTask

try:
    from dm_control import composer
    from dm_control.manipulation.shared import registry
    from dm_control.rl import control
    from dm_control.suite import finger
    from shimmy import DmControlCompatibilityV0
except ImportError as error:
    raise missing_simulator("A dm_control task", error) from error


class DmControlTask(MujocoGoalTask):
    """
    A task of dm_control behind shimmy.

    The goal is the state after another reset: the task resets twice, and the first state is the goal.

    :param environment: the dm_control environment. It must have no time limit, after which it would reset itself
    """

    def __init__(
        self,
        environment: Any,
        observation_low: np.ndarray,
        observation_high: np.ndarray,
        action_size: int,
        render_mode: str | None = None,
    ) -> None:
        self._simulator = DmControlCompatibilityV0(environment)
        self._simulator.reset()  # the first one compiles the model
        physics = environment.physics
        model, data = physics.model.ptr, physics.data.ptr
        super().__init__(model, data, observation_low, observation_high, action_size, render_mode)
        self._latest: dict[str, np.ndarray] = {}

    def _seed_simulator(self, seed: int) -> None:
        # Gymnasium takes any seed, dm_control's generator only 32 bits.
        self._simulator.np_random = np.random.RandomState(self.np_random.integers(2**32))

    def _begin_episode(self) -> np.ndarray:
        self._latest, _ = self._simulator.reset()
        goal = self._observe()[self.goal_slice]
        self._latest, _ = self._simulator.reset()
        return goal

    def _advance(self, action: np.ndarray) -> None:
        self._latest, *_ = self._simulator.step(action)

    def _simulator_state(self) -> Any:
        return self._simulator.np_random.get_state(), super()._simulator_state(), self._latest

    def _restore_simulator(self, state: Any) -> None:
        random_state, simulation, self._latest = state
        self._simulator.np_random.set_state(random_state)
        super()._restore_simulator(simulation)


class _FingerObservations(finger.Turn):
    """
    The suite's finger task without its target. It reads the sensors by index: by name, as the suite does, takes longer than
    shimmy's whole layer.
    """

    def __init__(self, physics: Any) -> None:
        super().__init__(target_radius=0.0)
        sensors = ("proximal", "distal", "tip", "spinner", "proximal_velocity", "distal_velocity", "hinge_velocity")
        at = {name: int(physics.model.sensor(name).adr[0]) for name in (*sensors, "touchtop", "touchbottom")}
        self._joints = [at["proximal"], at["distal"]]
        self._tip, self._spinner = [at["tip"], at["tip"] + 2], [at["spinner"], at["spinner"] + 2]
        self._velocities = [at["proximal_velocity"], at["distal_velocity"], at["hinge_velocity"]]
        self._touch = [at["touchtop"], at["touchbottom"]]

    def get_observation(self, physics: Any) -> dict[str, np.ndarray]:
        """:return: The suite's position, velocity and touch in one array "state", (9,)"""
        sensors = physics.data.sensordata
        tip = sensors[self._tip] - sensors[self._spinner]
        return {
            "state": np.concatenate((sensors[self._joints], tip, sensors[self._velocities], np.log1p(sensors[self._touch])))
        }

    def get_reward(self, physics: Any) -> float:
        """:return: 0, since rewards come from the goal layer"""
        return 0.0


class Finger(DmControlTask):
    """
    Turn a free spinner with a finger of two joints. The goal is the xz position of the spinner's tip, from its hinge.

    The observation is the two joints, the tip, three velocities and two touch sensors.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    goal_slice = slice(2, 4)
    distance_threshold = 0.03  # the suite's target radius of turn_hard
    camera = {"lookat": (0.0, 0.0, 0.4), "distance": 1.2, "azimuth": 90.0, "elevation": -5.0}
    marker_radius = 0.03

    def __init__(self, render_mode: str | None = None) -> None:
        physics = finger.Physics.from_xml_string(*finger.get_model_and_assets())
        task = _FingerObservations(physics)
        environment = control.Environment(physics, task, time_limit=float("inf"), control_timestep=0.02)
        # Angles in radians, the tip in meters from the hinge, velocities, and logarithms of pressures.
        high = np.array([10.0, 10.0, 0.5, 0.5, 1e3, 1e3, 1e3, 20.0, 20.0])
        low = np.where(np.arange(9) < 7, -high, 0.0)
        super().__init__(environment, low, high, action_size=2, render_mode=render_mode)
        self.model.site("target").rgba[3] = 0.0  # this package draws its own

    def _observe(self) -> np.ndarray:
        return self._latest["state"].astype(np.float32)

    def _goal_points(self) -> list[np.ndarray]:
        assert self._goal is not None
        hinge = self.data.joint("hinge").xanchor
        return [np.array([hinge[0] + self._goal[0], hinge[1], hinge[2] + self._goal[1]])]


class _QuietKinematics(logging.Filter):
    """Drops the message of dm_control's inverse kinematics when it restarts from another pose, which is not a failure."""

    def filter(self, record: logging.LogRecord) -> bool:
        """:return: False for records of inverse kinematics"""
        return not record.getMessage().startswith("Failed to converge after")


class JacoReach(DmControlTask):
    """
    Bring a Jaco arm into a pose. The goal is the sine and cosine of its six joints; the fingers are not part of it.

    The observation is the goal's twelve numbers, the velocities of the six joints, and the positions and velocities of the
    three fingers. The actions are the joints' and the fingers' speeds, scaled from [-1, 1] to the simulator's.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}
    goal_slice = slice(0, 12)
    # About 0.25 radians over all joints together, which moves the hand by 7 cm; poses of two resets are 3.5 apart.
    distance_threshold = 0.25
    camera = {"lookat": (0.0, 0.0, 0.3), "distance": 1.6, "azimuth": 135.0, "elevation": -20.0}
    _observables = ("joints_pos", "joints_vel", "jaco_hand/joints_pos", "jaco_hand/joints_vel")

    def __init__(self, render_mode: str | None = None) -> None:
        logging.getLogger("absl").addFilter(_QUIET_KINEMATICS)
        task = registry.get_constructor("reach_site_features")()
        task.get_reward = lambda physics: 0.0  # rewards come from the goal layer
        self._keys = [f"jaco_arm/{name}" for name in self._observables]
        for name, observable in task.observables.items():
            observable.enabled = name in self._keys
        environment = composer.Environment(
            task,
            time_limit=float("inf"),
            strip_singleton_obs_buffer_dim=True,
            max_reset_attempts=10,
            # The model never changes between episodes, and compiling it takes three times as long as the reset itself.
            recompile_mjcf_every_episode=False,
        )
        high = np.concatenate([np.ones(12), np.full(6, 100.0), np.full(3, 10.0), np.full(3, 100.0)])
        super().__init__(environment, -high, high, action_size=9, render_mode=render_mode)
        actions = environment.action_spec()
        self._action_middle = (actions.maximum + actions.minimum) / 2
        self._action_scale = (actions.maximum - actions.minimum) / 2
        self._arm = [self.model.joint(joint.full_identifier).qposadr[0] for joint in task.arm.joints]
        for site in ("target_site", "tcp_spawn_area", "target_spawn_area"):
            self.model.site(site).rgba[3] = 0.0  # these belong to the simulator's own task

    def _advance(self, action: np.ndarray) -> None:
        super()._advance(self._action_middle + action * self._action_scale)

    def _observe(self) -> np.ndarray:
        return np.concatenate([self._latest[key].ravel() for key in self._keys], dtype=np.float32)

    def _mark_goal(self, scene: Any) -> None:
        # The arm in the goal's pose, with the fingers as they are.
        assert self._goal is not None
        pose = self.data.qpos.copy()
        sines, cosines = self._goal.reshape(6, 2).T
        pose[self._arm] = np.arctan2(sines, cosines)
        arm = [body for body in range(self.model.nbody) if "jaco_arm" in self.model.body(body).name]
        self._add_ghost(scene, pose, np.array(arm))


_QUIET_KINEMATICS = _QuietKinematics()

"""The U-shaped maze of D4RL, in gymnasium-robotics."""

import contextlib
import os

import numpy as np

from sb3_clearning.envs.base import missing_simulator
from sb3_clearning.envs.mujoco_task import MujocoGoalTask

try:
    import mujoco
    from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv
except ImportError as error:
    raise missing_simulator("PointUMaze-v0", error) from error


class PointUMaze(MujocoGoalTask):
    """
    Push a ball through a U-shaped corridor, the paper's `maze2d-umaze`.

    The observation is x, y and their velocities, the goal x, y. Start and goal are cells of the maze, more than half a cell
    apart, moved by up to a quarter of a cell, as gymnasium-robotics draws them.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    goal_slice = slice(0, 2)
    distance_threshold = 0.45  # that of gymnasium-robotics
    camera = {"lookat": (0.0, 0.0, 0.0), "distance": 7.5, "azimuth": 90.0, "elevation": -65.0}
    marker_radius = 0.2

    def __init__(self, render_mode: str | None = None) -> None:
        # A continuing task whose target stays: the episode continues after the goal is reached, with the same goal.
        self._simulator = self._maze = PointMazeEnv(continuing_task=True, reset_target=False)
        self._point = self._maze.point_env
        # The simulator never deletes its temporary model file.
        with contextlib.suppress(OSError):
            os.remove(self._maze.tmp_xml_file_path)
        # The walls end at 1.5; before each step the simulator clips the velocity to 5.
        high = np.array([2.5, 2.5, 10.0, 10.0])
        super().__init__(self._point.model, self._point.data, -high, high, action_size=2, render_mode=render_mode)
        # The simulator's own marker would be wrong when the user gives a goal.
        self.model.site_rgba[self._maze.target_site_id, 3] = 0.0

    def _begin_episode(self) -> np.ndarray:
        maze = self._maze
        # The maze draws from our generator, with its own functions and in the order of its reset.
        maze.np_random = self.np_random
        maze.goal = maze.add_xy_position_noise(maze.generate_target_goal())
        start = maze.add_xy_position_noise(maze.generate_reset_pos())
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = start
        mujoco.mj_forward(self.model, self.data)
        return maze.goal

    def _advance(self, action: np.ndarray) -> None:
        point = self._point
        # The simulator's own step, without its `mj_forward` over a clipped velocity: `mj_step` computes the same again.
        np.clip(self.data.qvel, -5.0, 5.0, out=self.data.qvel)
        point.do_simulation(action, point.frame_skip)

    def _observe(self) -> np.ndarray:
        return np.concatenate((self.data.qpos, self.data.qvel), dtype=np.float32)

    def _goal_points(self) -> list[np.ndarray]:
        assert self._goal is not None
        return [np.array([*self._goal, 0.2])]

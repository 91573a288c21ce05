"""A U-shaped maze without a simulator. Away from walls, the ball moves as that of `PointUMaze-v0`."""

from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_clearning.envs.base import GoalTask

#: Steps in an episode.
EPISODE_LENGTH = 300
# MuJoCo's ball: seconds in a step, kilograms, newtons at full action, newton seconds per meter, meters, meters per second.
_DT, _MASS, _FORCE, _DAMPING, _RADIUS, _TOP_SPEED = 0.01, 1000 * 4 / 3 * np.pi * 0.1**3, 100.0, 1.0, 0.1, 5.0
#: Half the side of the square that the maze is in, and the wall within it.
HALF = 1.5
WALL = np.array([[-1.5, -0.5], [0.5, 0.5]])
#: The centers of the free cells, along the corridor.
CELLS = np.array([[-1, 1], [0, 1], [1, 1], [1, 0], [1, -1], [0, -1], [-1, -1]], dtype=np.float64)


def draw_episodes(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """:return: Starts and goals (n, 2): in different cells, up to a quarter of a cell from their centers"""
    goal = rng.integers(len(CELLS), size=n)
    start = (goal + 1 + rng.integers(len(CELLS) - 1, size=n)) % len(CELLS)
    offsets = rng.uniform(-0.25, 0.25, (2, n, 2))
    return CELLS[start] + offsets[0], CELLS[goal] + offsets[1]


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """:return: The scalar products of (n, 2), (n, 1). NumPy's sum over so short an axis takes up to thirty times as long"""
    products = left * right
    return products[:, :1] + products[:, 1:]


def advance(position: np.ndarray, velocity: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    One step: MuJoCo's Euler integration with implicit damping, then walls that are hard, frictionless and do not bounce.

    :param action: (n, 2) within [-1, 1], as all are (n, 2)
    :return: Position and velocity after the step
    """
    velocity = np.minimum(np.maximum(velocity, -_TOP_SPEED), _TOP_SPEED)
    velocity = velocity + _DT * (_FORCE * action - _DAMPING * velocity) / (_MASS + _DT * _DAMPING)
    position = position + _DT * velocity

    # The square around: a coordinate that reaches it stops there.
    limit = HALF - _RADIUS
    velocity = np.where(np.abs(position) > limit, 0.0, velocity)
    position = np.minimum(np.maximum(position, -limit), limit)

    # The wall within: the ball is moved away from its nearest point, and loses the velocity towards it. In a step the center
    # moves by less than the radius, so it never gets into the wall.
    away = position - np.minimum(np.maximum(position, WALL[0]), WALL[1])
    distance = np.sqrt(_dot(away, away))
    touches = distance < _RADIUS
    if touches.any():
        normal = away / np.where(touches, distance, 1.0)
        position = np.where(touches, position + (_RADIUS - distance) * normal, position)
        inwards = np.minimum(_dot(velocity, normal), 0.0)
        velocity = np.where(touches, velocity - inwards * normal, velocity)
    return position, velocity


class PointMaze(GoalTask):
    """
    Push a ball through a U-shaped corridor, as `PointUMaze-v0`, without MuJoCo: a step of one ball and of thousands is the
    same few array operations, see :class:`BatchedPointMaze`.

    Observation, goal, threshold, forces and masses are those of `PointUMaze-v0`. MuJoCo's walls are soft, these are hard.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    goal_slice = slice(0, 2)
    distance_threshold = 0.45

    def __init__(self, render_mode: str | None = None) -> None:
        high = np.array([2.5, 2.5, 10.0, 10.0])
        super().__init__(-high, high, spaces.Box(-1.0, 1.0, (2,), dtype=np.float32), render_mode)
        self._position = self._velocity = np.zeros((1, 2))

    def _begin_episode(self) -> np.ndarray:
        self._position, goal = draw_episodes(self.np_random, 1)
        self._velocity = np.zeros((1, 2))
        return goal[0]

    def _advance(self, action: np.ndarray) -> None:
        self._position, self._velocity = advance(self._position, self._velocity, action[None])

    def _observe(self) -> np.ndarray:
        return np.concatenate((self._position[0], self._velocity[0]), dtype=np.float32)

    def _simulator_state(self) -> Any:
        return self._position, self._velocity

    def _restore_simulator(self, state: Any) -> None:
        self._position, self._velocity = state

    def _picture(self) -> np.ndarray:
        # x to the right, y upwards. Walls are gray, the ball is blue, the goal pink.
        assert self._goal is not None
        points = (np.arange(480) + 0.5) / 480 * 2 * HALF - HALF
        x, y = np.meshgrid(points, -points)
        picture = np.full((480, 480, 3), 250, dtype=np.uint8)
        picture[(x >= WALL[0, 0]) & (x <= WALL[1, 0]) & (y >= WALL[0, 1]) & (y <= WALL[1, 1])] = 120
        for center, color in ((self._goal, (220, 20, 170)), (self._position[0], (40, 80, 200))):
            picture[np.hypot(x - center[0], y - center[1]) <= _RADIUS] = color
        return picture

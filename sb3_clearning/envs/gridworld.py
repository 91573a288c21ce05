"""The paper's "continuous gridworld": 5 x 5 cells with noisy observations. Its future is known exactly."""

from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_clearning.envs.base import GoalTask

SIZE = 5
#: The four moves, in the order of the discrete actions.
MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])


def next_cell(cell: np.ndarray, move: np.ndarray) -> np.ndarray:
    """:return: Where moves (..., 2) lead from cells (..., 2) of integers from 0 to 4. At the edge of the world, nowhere"""
    return np.clip(cell + move, 0, SIZE - 1)


def cell_of(observation: np.ndarray) -> np.ndarray:
    """:return: The cells of noisy observations (..., 2), as integers (..., 2)"""
    return np.clip(np.floor(np.asarray(observation) + 0.5), 0, SIZE - 1).astype(np.int64)


def random_move(action: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """:return: Moves (..., 2) of continuous actions, probabilities with a sign, by uniform random numbers of the same shape"""
    return np.sign(action).astype(np.int64) * (uniform < np.abs(action))


def measure(cell: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """:return: Noisy observations (..., 2) of cells, by uniform random numbers of the same shape"""
    # A hair less than the whole cell, or float32 would round a few observations into the next one.
    return (cell + (uniform - 0.5) * (1 - 1e-6)).astype(np.float32)


def all_cells() -> np.ndarray:
    """:return: All cells in the order of tables over cells, (25, 2)"""
    return np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij"), axis=-1).reshape(-1, 2)


def transitions() -> np.ndarray:
    """:return: T_0 of the appendix "Analytic Future State Distribution", (25, 4, 25), a one at [cell, move, next cell]"""
    following = next_cell(all_cells()[:, None], MOVES)
    return np.eye(SIZE * SIZE)[following[..., 0] * SIZE + following[..., 1]]


def future_distribution(policy: np.ndarray, gamma: float) -> np.ndarray:
    """
    The exact discounted future state distribution, P = (1 - gamma) T_0 (I - gamma T)^-1.

    It is also the density of future observations: noise is uniform within a cell, whose area is 1.

    :param policy: (25, 4), the probability of each move in each cell
    :param gamma: the discount factor, at least 0 and less than 1
    :return: (25, 4, 25), the probability of [cell, move, future cell]
    """
    first = transitions()
    policy = np.asarray(policy)
    if policy.shape != first.shape[:2] or not np.allclose(policy.sum(axis=1), 1.0) or policy.min() < 0:
        raise ValueError(f"A policy has the shape {first.shape[:2]} and rows of probabilities, not the shape {policy.shape}")
    if not 0 <= gamma < 1:
        raise ValueError(f"gamma must be at least 0 and less than 1, not {gamma}")
    following = np.einsum("sa,sat->st", policy, first)
    return (1 - gamma) * first @ np.linalg.inv(np.eye(SIZE * SIZE) - gamma * following)


class ContinuousGridworld(GoalTask):
    """
    Walk through a world of 5 x 5 cells. In cell (i, j) the agent sees (i, j) plus uniform noise from [-0.5, 0.5]². The goal is
    an observation too. It is reached in its cell: distances are between cells.

    A continuous action is the probability of a move along each axis: 0.3 is a step forward with probability 0.3, -0.3 a step
    back with probability 0.3. So the future depends smoothly on the action, and there is a policy gradient.

    :param discrete: the paper's four moves instead of continuous actions, for the prediction experiments. `CLearning` needs
        continuous ones
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    distance_threshold = 0.5

    def __init__(self, discrete: bool = False, render_mode: str | None = None) -> None:
        self._discrete = discrete
        actions = spaces.Discrete(len(MOVES)) if discrete else spaces.Box(-1.0, 1.0, (2,), dtype=np.float32)
        super().__init__(np.full(2, -0.5), np.full(2, SIZE - 0.5), actions, render_mode)
        self._cell = np.zeros(2, dtype=np.int64)
        self._seen = np.zeros(2, dtype=np.float32)

    def distance(self, achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
        """:return: The L2 distance between the cells of observations (..., 2)"""
        return super().distance(cell_of(achieved_goal), cell_of(desired_goal))

    def _begin_episode(self) -> np.ndarray:
        goal = self._measure(self.np_random.integers(SIZE, size=2))
        self._enter(self.np_random.integers(SIZE, size=2))
        return goal

    def _valid_action(self, action: Any) -> np.ndarray:
        if not self._discrete:
            return super()._valid_action(action)
        if not self.action_space.contains(action):
            raise ValueError(f"ContinuousGridworld with discrete moves takes the actions 0 to {len(MOVES) - 1}, not {action}")
        return MOVES[action]

    def _advance(self, action: np.ndarray) -> None:
        if not self._discrete:
            action = random_move(action, self.np_random.random(2))
        self._enter(next_cell(self._cell, action))

    def _enter(self, cell: np.ndarray) -> None:
        # One measurement a step: observing twice must give the same.
        self._cell, self._seen = cell, self._measure(cell)

    def _measure(self, cell: np.ndarray) -> np.ndarray:
        return measure(cell, self.np_random.random(2))

    def _observe(self) -> np.ndarray:
        return self._seen.copy()

    def _simulator_state(self) -> Any:
        return self._cell, self._seen

    def _restore_simulator(self, state: Any) -> None:
        self._cell, self._seen = state

    def _picture(self) -> np.ndarray:
        # i to the right, j upwards. The goal's cell is pink with the goal as a dot, the agent a blue square.
        assert self._goal is not None
        size, margin = 96, 2
        picture = np.full((SIZE * size, SIZE * size, 3), 200, dtype=np.uint8)

        def paint(center: np.ndarray, half_width: float, color: tuple[int, int, int]) -> None:
            left, right = ((center[0] + 0.5 + offset) * size for offset in (-half_width, half_width))
            top, bottom = ((SIZE - 0.5 - center[1] + offset) * size for offset in (-half_width, half_width))
            rows, columns = slice(max(round(top), 0), round(bottom)), slice(max(round(left), 0), round(right))
            picture[rows, columns] = color

        for cell in all_cells():
            reached = np.array_equal(cell, cell_of(self._goal))
            paint(cell, 0.5 - margin / size, (250, 200, 240) if reached else (250, 250, 250))
        paint(self._seen, 0.14, (40, 80, 200))
        paint(self._goal, 0.07, (220, 20, 170))
        return picture

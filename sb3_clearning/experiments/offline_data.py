"""
Datasets for the offline experiment: mazes walked by a noisy controller, Sawyer's drawer and window moved by metaworld's own
controllers, and random actions of FetchReach.
"""

import warnings
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_clearning.common.collect import collect
from sb3_clearning.replay.experience import Experience

Cell = tuple[int, int]
#: Steps of an episode of the data. A trip of a point through the medium maze takes about 125 steps.
NAVIGATE_STEPS, STITCH_STEPS = 500, 60
#: Cells that a trip of the stitch data leads across.
STITCH_CELLS = 4
#: A Sawyer's controller rests while the object is so near to the goal, in meters.
AT_GOAL = 0.01


def _around(cell: Cell) -> list[Cell]:
    row, column = cell
    return [(row, column + 1), (row + 1, column), (row, column - 1), (row - 1, column)]


class Maze:
    """The cells of a PointMaze of gymnasium-robotics and the ways between them."""

    def __init__(self, env: gym.Env):
        self._maze = env.unwrapped.maze  # type: ignore[attr-defined]
        layout = self._maze.maze_map
        self.free = [(i, j) for i, row in enumerate(layout) for j, cell in enumerate(row) if cell != 1]
        self._far: dict[Cell, dict[Cell, int]] = {}

    def cell(self, position: np.ndarray) -> Cell:
        """:return: The cell of a position"""
        row, column = self._maze.cell_xy_to_rowcol(position)
        return int(row), int(column)

    def center(self, cell: Cell) -> np.ndarray:
        """:return: The position of a cell's center"""
        return self._maze.cell_rowcol_to_xy(np.array(cell))

    def distances(self, start: Cell) -> dict[Cell, int]:
        """:return: The length of the shortest way from ``start`` to each cell"""
        found, queue = {start: 0}, deque([start])
        while queue:
            cell = queue.popleft()
            for neighbor in _around(cell):
                if neighbor in self.free and neighbor not in found:
                    found[neighbor] = found[cell] + 1
                    queue.append(neighbor)
        return found

    def step_towards(self, cell: Cell, goal: Cell) -> Cell:
        """:return: The next cell on the shortest way from ``cell`` to ``goal``"""
        if goal not in self._far:
            self._far[goal] = self.distances(goal)
        far = self._far[goal]
        return min((one for one in _around(cell) if one in far), key=lambda one: far[one], default=goal)


class WaypointController:
    """Walks from cell to cell to the desired goal, with noise on its actions."""

    def __init__(self, maze: Maze, noise_std: float = 0.5, seed: int = 0):
        self.maze, self.noise_std, self._rng = maze, noise_std, np.random.default_rng(seed)

    def __call__(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        """:return: Actions ``(n_envs, 2)`` for observations of a PointMaze"""
        actions = [self._action(*row) for row in zip(obs["observation"], obs["desired_goal"], strict=True)]
        noise = self._rng.normal(0, self.noise_std, (len(actions), 2))
        return np.clip(np.array(actions) + noise, -1, 1).astype(np.float32)

    def _action(self, observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        position, velocity = observation[:2], observation[2:]
        here, there = self.maze.cell(position), self.maze.cell(goal)
        target = goal if here == there else self.maze.center(self.maze.step_towards(here, there))
        return 5 * (target - position) - velocity


class ShortTrips(gym.Wrapper):
    """Episodes start in a random cell, and their goals are a few cells away: no episode shows a long way as a whole."""

    def __init__(self, env: gym.Env, seed: int):
        super().__init__(env)
        self._maze, self._rng = Maze(env), np.random.default_rng(seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start at a random cell."""
        start = self._maze.free[self._rng.integers(len(self._maze.free))]
        near = [cell for cell, length in self._maze.distances(start).items() if 1 <= length <= STITCH_CELLS]
        goal = near[self._rng.integers(len(near))]
        return super().reset(seed=seed, options={"reset_cell": np.array(start), "goal_cell": np.array(goal)})


def make_robotics(env_id: str, **arguments: Any) -> gym.Env:
    """:return: An environment of gymnasium-robotics"""
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    return gym.make(env_id, **arguments)


def make_maze(size: str, **arguments: Any) -> gym.Env:
    """:return: A PointMaze that does not end at its goal"""
    return make_robotics(f"PointMaze_{size}-v3", continuing_task=True, **arguments)


def maze_data(size: str, kind: str, n_steps: int, seed: int) -> Experience:
    """
    Data of a noisy controller, in the manner of OGBench.

    :param size: UMaze, Medium or Large
    :param kind: "navigate": long walks from goal to goal; "stitch": short trips, so that ways have to be put together
    :return: The transitions
    """
    if kind == "navigate":
        env = make_maze(size, reset_target=True, max_episode_steps=NAVIGATE_STEPS)
    else:
        env = ShortTrips(make_maze(size, reset_target=False, max_episode_steps=STITCH_STEPS), seed)
    return collect(WaypointController(Maze(env), seed=seed), env, n_steps, seed=seed)


class SlideController:
    """
    Moves Sawyer's drawer or window to the desired goal with metaworld's controllers, with noise on its actions. Some episodes
    are of random actions alone. It has the ``predict`` of a model, since :func:`collect` tells that one where episodes start.

    :param task: Drawer or Window
    :param random_fraction: The share of episodes of random actions
    """

    def __init__(self, task: str, noise_std: float = 0.3, random_fraction: float = 0.5, seed: int = 0):
        from metaworld import policies

        # The coordinate along the rail, and who moves the object to smaller and to larger values of it. Window-open looks at
        # the handle's other side, 5 cm away.
        self._axis, self._lower, self._higher, self._other_side = {
            "Drawer": (1, policies.SawyerDrawerOpenV3Policy(), policies.SawyerDrawerCloseV3Policy(), (0.0, 0.0, 0.0)),
            "Window": (0, policies.SawyerWindowCloseV3Policy(), policies.SawyerWindowOpenV3Policy(), (-0.05, 0.0, 0.0)),
        }[task]
        self.noise_std, self.random_fraction, self._rng = noise_std, random_fraction, np.random.default_rng(seed)
        self._random = np.array(False)

    def predict(
        self, obs: dict[str, np.ndarray], state: None, episode_start: np.ndarray, deterministic: bool
    ) -> tuple[np.ndarray, None]:
        """:return: Actions ``(n_envs, 4)`` for observations of a Sawyer task, and None"""
        chosen = self._rng.random(len(episode_start)) < self.random_fraction
        self._random = np.where(episode_start, chosen, self._random)
        actions = np.array([self._action(*row) for row in zip(obs["observation"], obs["desired_goal"], strict=True)])
        actions = np.clip(actions + self._rng.normal(0, self.noise_std, actions.shape), -1, 1)
        return np.where(self._random[:, None], self._rng.uniform(-1, 1, actions.shape), actions).astype(np.float32), None

    def _action(self, observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        hand, handle = observation[:3], observation[3:]
        missing = goal[3:][self._axis] - handle[self._axis]
        if abs(missing) < AT_GOAL:
            return np.zeros(4)
        full = np.zeros(39)  # metaworld's observation, of which the controllers read the hand and the handle
        full[:3], full[4:7] = hand, handle + (self._other_side if missing > 0 else 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that actions are clipped
            return (self._higher if missing > 0 else self._lower).get_action(full)


def make_sawyer(task: str) -> gym.Env:
    """:return: A Sawyer task of this package"""
    import sb3_clearning.envs  # noqa: F401 (registers it)

    return gym.make(f"Sawyer{task}-v0")


def sawyer_data(task: str, n_steps: int, seed: int) -> Experience:
    """:return: Transitions of metaworld's controllers and of random actions, half of the episodes each"""
    return collect(SlideController(task, seed=seed), make_sawyer(task), n_steps, seed=seed)

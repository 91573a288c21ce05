"""GoalTask: the goal layer over a simulator, which all tasks share."""

import copy
import sys
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning.goal_spaces import goal_distance

Observation = dict[str, np.ndarray]


def missing_simulator(task: str, error: ImportError) -> ImportError:
    """:return: The error to raise, which names the extra to install"""
    message = f'{task} needs a simulator that cannot be imported ({error}). Install it with: pip install "sb3_clearning[envs]"'
    if error.name == "dm_control" and sys.version_info >= (3, 13):
        message = f"{task} needs dm_control, which cannot be installed with Python 3.13 or later. Use Python 3.11 or 3.12."
    return ImportError(message, name=error.name)


class GoalTask(gym.Env[Any, Any]):
    """
    A goal-conditioned task: the goal is a part of a future observation.

    A task implements `_begin_episode`, `_advance`, `_observe`, for pickling `_simulator_state` and `_restore_simulator`, and
    for rendering `_picture`. This class adds the Dict observation in float32, goals given by the user, -1/0 rewards,
    distances, seeds and pickling.

    The episode's length is the time limit of the registration. A task never terminates: in the paper, reaching the goal does
    not end the episode.

    :param render_mode: None or "rgb_array"
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 25}

    #: The coordinates of the observation that make up the goal.
    goal_slice: slice = slice(None)
    #: The coordinates of the goal that count for the distance, the reward and the success.
    scored_slice: slice = slice(None)
    #: The distance up to which a goal counts as reached.
    distance_threshold: ClassVar[float]

    def __new__(cls, *args: Any, **kwargs: Any) -> "GoalTask":
        """Remember the arguments: unpickling constructs the task again, since a simulator's handles cannot be pickled."""
        task = super().__new__(cls)
        task._made_with = (args, kwargs)
        return task

    def __init__(
        self,
        observation_low: np.ndarray,
        observation_high: np.ndarray,
        action_space: spaces.Space,
        render_mode: str | None = None,
    ) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise ValueError(f"{type(self).__name__} renders as {modes}, or not at all (None), not as {render_mode!r}")
        self.render_mode = render_mode
        self._low = np.asarray(observation_low, dtype=np.float32)
        self._high = np.asarray(observation_high, dtype=np.float32)
        self._goal_space = spaces.Box(self._low[self.goal_slice], self._high[self.goal_slice], dtype=np.float32)
        self.observation_space = spaces.Dict(
            {
                "observation": spaces.Box(self._low, self._high, dtype=np.float32),
                "achieved_goal": self._goal_space,
                "desired_goal": copy.deepcopy(self._goal_space),
            }
        )
        self.action_space = action_space
        self._goal: np.ndarray | None = None

    # What a task implements

    def _begin_episode(self) -> np.ndarray:
        """Put the simulator into an initial state, and return a random goal."""
        raise NotImplementedError

    def _advance(self, action: Any) -> None:
        """Simulate one step with a valid action."""
        raise NotImplementedError

    def _observe(self) -> np.ndarray:
        """:return: The observation of the current state, a new float32 array"""
        raise NotImplementedError

    def _picture(self) -> np.ndarray:
        """:return: The current state and the goal as an RGB image, (height, width, 3)"""
        raise NotImplementedError

    def _simulator_state(self) -> Any:
        """:return: Everything that the next steps and resets depend on, for pickle"""
        raise NotImplementedError

    def _restore_simulator(self, state: Any) -> None:
        """Restore what `_simulator_state` returned."""
        raise NotImplementedError

    def _seed_simulator(self, seed: int) -> None:
        """Seed a simulator that has more randomness than `np_random`."""

    # The goal layer

    def distance(self, achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
        """:return: The L2 distance over the scored coordinates, (...) for goals (..., goal)"""
        difference = achieved_goal[..., self.scored_slice] - desired_goal[..., self.scored_slice]
        return goal_distance(difference, np.zeros(1), self._goal_space)

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> Any:
        """:return: 0 where the goal is reached, else -1, float32. C-learning does not use it; hindsight relabelling does"""
        distance = self.distance(np.asarray(achieved_goal), np.asarray(desired_goal))
        return -(distance > self.distance_threshold).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """
        Start an episode.

        :param seed: Determines everything that follows, bit for bit
        :param options: `{"goal": array}` commands that goal instead of a random one
        :return: The observation and the info
        """
        given_goal = self._read_options(options)
        super().reset(seed=seed)
        if seed is not None:
            self._seed_simulator(seed)
        drawn_goal = self._begin_episode()
        # A random goal is always drawn, so that a given one does not change the initial state of a seed.
        self._goal = np.asarray(drawn_goal if given_goal is None else given_goal, dtype=np.float32)
        return self._outcome()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """:return: Observation, reward, terminated (never), truncated (by the time limit only), info"""
        if self._goal is None:
            raise gym.error.ResetNeeded(f"Call {type(self).__name__}.reset() before step()")
        self._advance(self._valid_action(action))
        observation, info = self._outcome()
        return observation, 0.0 if info["is_success"] else -1.0, False, False, info

    def render(self) -> Any:
        """:return: An RGB image of the current state with the goal marked, (height, width, 3); None without a render mode"""
        if self.render_mode is None:
            gym.logger.warn('Nothing is rendered: make the task with gym.make(..., render_mode="rgb_array")')
            return None
        if self._goal is None:
            raise gym.error.ResetNeeded(f"Call {type(self).__name__}.reset() before render()")
        return self._picture()

    def _outcome(self) -> tuple[Observation, dict[str, Any]]:
        state = self._observe()
        np.maximum(state, self._low, out=state)
        np.minimum(state, self._high, out=state)
        assert self._goal is not None
        achieved = state[self.goal_slice].copy()
        distance = float(self.distance(achieved, self._goal))
        observation = {"observation": state, "achieved_goal": achieved, "desired_goal": self._goal.copy()}
        return observation, {"distance": distance, "is_success": distance <= self.distance_threshold}

    def _valid_action(self, action: Any) -> np.ndarray:
        action = np.asarray(action, dtype=np.float32)
        if action.shape != self.action_space.shape:
            raise ValueError(f"{type(self).__name__} takes actions of shape {self.action_space.shape}, not {action.shape}")
        # MuJoCo silently resets the simulation at a NaN. The product is the cheapest test for one.
        if not np.isfinite(np.dot(action, action)):
            raise ValueError(f"Actions of {type(self).__name__} must be finite, not {action}")
        return np.minimum(np.maximum(action, -1.0), 1.0)

    def _read_options(self, options: dict[str, Any] | None) -> np.ndarray | None:
        if not options:
            return None
        if set(options) != {"goal"}:
            raise ValueError(f'{type(self).__name__}.reset() knows the option "goal" only, not {sorted(options)}')
        if options["goal"] is None:
            return None
        goal, space = np.array(options["goal"], dtype=np.float32), self._goal_space
        if goal.shape != space.shape:
            raise ValueError(f"A goal of {type(self).__name__} has the shape {space.shape}, not {goal.shape}")
        if not space.contains(goal):
            raise ValueError(f"The goal {goal} of {type(self).__name__} lies outside {space.low} to {space.high}")
        return goal

    # Pickling, also within an episode: a copy continues exactly where the original is

    def __getstate__(self) -> dict[str, Any]:
        return {
            "made_with": self._made_with,
            "simulator": None if self._goal is None else self._simulator_state(),
            "goal": self._goal,
            "np_random": self._np_random,
            "np_random_seed": self._np_random_seed,
            "action_space": self.action_space,
            "spec": self.spec,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        args, kwargs = self._made_with = state["made_with"]
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        self.spec, self.action_space = state["spec"], state["action_space"]
        self._np_random, self._np_random_seed = state["np_random"], state["np_random_seed"]
        if state["goal"] is not None:
            self._goal = state["goal"]
            self._restore_simulator(state["simulator"])

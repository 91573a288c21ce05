"""Tasks as one array program for any number of environments: a test bed, and a fast way to try things."""

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from sb3_clearning.checks import check_number
from sb3_clearning.envs import gridworld, point_maze
from sb3_clearning.envs.base import GoalTask, Observation


class BatchedTask(VecEnv):
    """
    Environments of one task for Stable-Baselines3, in one process and without a loop over them. Episodes are as long as the
    task's, and none terminates. Where one ends, the info has ``terminal_observation``, ``distance``, ``is_success`` and
    ``episode``; at all other steps it is empty. ``env.seed(seed)`` and a reset determine everything that follows.

    :param n_envs: Number of environments
    """

    #: The single environment with the same physics.
    task_class: ClassVar[type[GoalTask]]
    episode_length: ClassVar[int]

    def __init__(self, n_envs: int):
        check_number("n_envs", n_envs, 1, whole=True)
        self.task = self.task_class()  # type: ignore[call-arg]  # each task gives its own spaces
        super().__init__(n_envs, self.task.observation_space, self.task.action_space)
        self._rng = np.random.default_rng()
        self._goals: np.ndarray | None = None
        self._steps = 0
        self._returns = np.zeros(n_envs)
        self._started = time.time()

    # What a task implements

    def _begin_episodes(self) -> np.ndarray:
        """Put all environments into initial states, and return random goals, (n_envs, goal)."""
        raise NotImplementedError

    def _advance(self, actions: np.ndarray) -> None:
        """Simulate one step with valid actions, (n_envs, action)."""
        raise NotImplementedError

    def _observe(self) -> np.ndarray:
        """:return: The observations of the current states, a new float32 array"""
        raise NotImplementedError

    # Stable-Baselines3's vectorized environment

    def _observation(self) -> Observation:
        states = self._observe()
        space = self.task.observation_space["observation"]  # type: ignore[index]
        np.minimum(np.maximum(states, space.low, out=states), space.high, out=states)
        assert self._goals is not None
        return {
            "observation": states,
            "achieved_goal": states[:, self.task.goal_slice].copy(),
            "desired_goal": self._goals.copy(),
        }

    def _begin(self) -> Observation:
        self._goals = self._begin_episodes().astype(np.float32)
        self._steps = 0
        self._returns[:] = 0
        return self._observation()

    def reset(self) -> VecEnvObs:
        """:return: The first observations. A seed that was given before is used now"""
        if self._seeds[0] is not None:
            self._rng = np.random.default_rng(self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return self._begin()

    def step_async(self, actions: np.ndarray) -> None:
        """:param actions: (n_envs, action); beyond [-1, 1] they are clipped"""
        actions = np.asarray(actions, dtype=np.float32)
        shape = (self.num_envs, *self.action_space.shape)  # type: ignore[misc]
        if actions.shape != shape:
            raise ValueError(f"{type(self).__name__} takes actions of shape {shape}, not {actions.shape}")
        if not np.isfinite(actions).all():
            raise ValueError(f"Actions of {type(self).__name__} must be finite")
        self._actions = np.minimum(np.maximum(actions, -1.0), 1.0)

    def step_wait(self) -> VecEnvStepReturn:
        """:return: Observations, rewards, dones and infos. Where an episode ended, the observation is the next one's first"""
        if self._goals is None:
            raise gym.error.ResetNeeded(f"Call {type(self).__name__}.reset() before step()")
        self._advance(self._actions)
        self._steps += 1
        observation = self._observation()
        distance = self.task.distance(observation["achieved_goal"], observation["desired_goal"])
        success = distance <= self.task.distance_threshold
        rewards = success.astype(np.float32) - np.float32(1)
        self._returns += rewards
        if self._steps < self.episode_length:
            return observation, rewards, np.zeros(self.num_envs, dtype=bool), [{} for _ in range(self.num_envs)]
        seconds = round(time.time() - self._started, 6)
        infos = [
            {
                "terminal_observation": {key: value[env] for key, value in observation.items()},
                "TimeLimit.truncated": True,
                "distance": float(distance[env]),
                "is_success": bool(success[env]),
                "episode": {"r": float(self._returns[env]), "l": self._steps, "t": seconds},
            }
            for env in range(self.num_envs)
        ]
        return self._begin(), rewards, np.ones(self.num_envs, dtype=bool), infos

    def close(self) -> None:
        """Nothing is left to close."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """:return: The single task's attribute, once for each environment"""
        return [getattr(self.task, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Not possible: the environments are rows of arrays."""
        raise AttributeError(f"{type(self).__name__} has no attributes per environment to set, such as {attr_name!r}")

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """:return: What the single task's method returns (``compute_reward``, for HER), once for each environment"""
        result = getattr(self.task, method_name)(*args, **kwargs)
        return [result] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """:return: False for each environment"""
        return [False] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[np.ndarray | None]:
        """:return: None for each environment: the single task renders"""
        return [None] * self.num_envs


class BatchedPointMaze(BatchedTask):
    """:class:`PointMaze` for any number of environments: ``CLearning("MultiInputPolicy", BatchedPointMaze(1024))``."""

    task_class = point_maze.PointMaze
    episode_length = point_maze.EPISODE_LENGTH

    def _begin_episodes(self) -> np.ndarray:
        self._position, goals = point_maze.draw_episodes(self._rng, self.num_envs)
        self._velocity = np.zeros((self.num_envs, 2))
        return goals

    def _advance(self, actions: np.ndarray) -> None:
        self._position, self._velocity = point_maze.advance(self._position, self._velocity, actions)

    def _observe(self) -> np.ndarray:
        return np.concatenate((self._position, self._velocity), axis=1, dtype=np.float32)


class BatchedGridworld(BatchedTask):
    """`ContinuousGridworld-v0` with continuous actions, for any number of environments."""

    task_class = gridworld.ContinuousGridworld
    episode_length = 100

    def _begin_episodes(self) -> np.ndarray:
        shape = (self.num_envs, 2)
        goals = gridworld.measure(self._rng.integers(gridworld.SIZE, size=shape), self._rng.random(shape))
        self._enter(self._rng.integers(gridworld.SIZE, size=shape))
        return goals

    def _advance(self, actions: np.ndarray) -> None:
        self._enter(gridworld.next_cell(self._cell, gridworld.random_move(actions, self._rng.random(actions.shape))))

    def _enter(self, cell: np.ndarray) -> None:
        self._cell, self._seen = cell, gridworld.measure(cell, self._rng.random(cell.shape))

    def _observe(self) -> np.ndarray:
        return self._seen.copy()

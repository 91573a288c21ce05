"""NoisyGoal: goals become noisy measurements."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning.envs._goals import (
    GoalObs,
    as_learnable,
    check_goal_env,
    check_goals,
    check_threshold,
    example,
    seed_sequence,
    sparse_reward,
    widest_space,
)
from sb3_clearning.goal_spaces import goal_distance

Noise = Callable[[np.ndarray, np.random.Generator], np.ndarray] | float | np.ndarray | Sequence[float]


class NoisyGoal(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Make the goals of a goal env measurements z ~ p(z | g) (the paper's appendix "Partially-Observed Goals", "Noisy Goals").

    Achieved goals are measured at every step. The desired goal is measured once an episode (again only if the env itself
    commands another one within it), so that the agent cannot average its noise away. ``observation`` is unchanged.
    ``reset(seed=…)`` determines the noise too::

        env = NoisyGoal(gym.make("FetchReach-v4"), noise=0.01)  # a camera that is 1 cm off in each direction


        def encode(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            mean, std = vae.encode(image)
            return mean + std * rng.standard_normal(mean.shape)


        env = NoisyGoal(image_env, noise=encode)  # goals are latents of images

    The info is about the true goals: the env's ``is_success``, and ``distance`` (Euclidean if the env gives no distance).

    The reward and ``compute_reward`` are about the measurements: a buffer that relabels (HER) has nothing else, and both must
    agree. They are the env's own ``compute_reward`` if measurements have the shape of its goals.
    Measurements of another shape, or in other units, need a ``distance_threshold``: then the reward is 0 within that
    Euclidean distance of the desired measurement, else -1. Without one, a measurement of another shape leaves the true reward
    in effect, and ``compute_reward`` raises an error. C-Learning uses neither.

    :param env: A goal env: Dict of observation, achieved_goal, desired_goal
    :param noise: Standard deviation of Gaussian noise, one for all or one per entry of the goal; or a function of one goal and
        a NumPy Generator that returns its measurement. The measurements of images are images again, rounded and clipped
    :param space: Space of the measurements. None: unbounded, of the shape that the function gives when called once
    :param distance_threshold: Distance of measurements for the reward; None: the env's own reward function
    """

    def __init__(
        self, env: gym.Env, noise: Noise, space: spaces.Box | None = None, distance_threshold: float | None = None
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, noise=noise, space=space, distance_threshold=distance_threshold)
        gym.Wrapper.__init__(self, env)
        if distance_threshold is not None:
            check_threshold(distance_threshold)
        self.distance_threshold = distance_threshold
        env_spaces = check_goal_env(env.observation_space, "NoisyGoal")
        self._goal_space = goal_space = env_spaces["desired_goal"]
        self._noise = noise if callable(noise) else self._check_scale(noise, goal_space.shape)
        # With a separate generator: the space must not depend on a seed, nor later draws on this one
        measurement = as_learnable(self._draw(example(goal_space, 0.0), np.random.default_rng(0)))
        if measurement.ndim == 0 or measurement.size == 0:
            raise ValueError(f"noise must return an array with one entry or more, got the shape {measurement.shape}")
        if space is not None and space.shape != measurement.shape:
            raise ValueError(f"noise returns measurements of the shape {measurement.shape}, but the space has {space.shape}")
        self._space = widest_space(measurement) if space is None else space
        goal_like = self._space.shape == goal_space.shape and (self._space.dtype == np.uint8) == (goal_space.dtype == np.uint8)
        self._env_rewards = distance_threshold is None and goal_like and env.has_wrapper_attr("compute_reward")
        self.observation_space = spaces.Dict(
            {**env_spaces, "achieved_goal": self._space, "desired_goal": copy.deepcopy(self._space)}
        )
        self._rng = np.random.default_rng()
        self._true_goal: np.ndarray | None = None
        self._measured_goal: np.ndarray | None = None

    @staticmethod
    def _check_scale(noise: Any, goal_shape: tuple[int, ...]) -> np.ndarray:
        try:
            scale = np.asarray(noise, dtype=np.float64)
        except (TypeError, ValueError):
            scale = np.array(np.nan)
        if not (np.isfinite(scale).all() and (scale >= 0).all()):
            raise ValueError(f"noise must be a finite scale that is not negative, or a function, got {noise!r}")
        try:
            return np.broadcast_to(scale, goal_shape).copy()
        except ValueError as error:
            raise ValueError(
                f"noise has the shape {scale.shape}, which does not fit goals of the shape {goal_shape}"
            ) from error

    def _draw(self, goal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if callable(self._noise):
            return np.asarray(self._noise(goal, rng))
        measurement = goal + self._noise * rng.standard_normal(goal.shape)
        if goal.dtype == np.uint8:
            return np.clip(np.rint(measurement), 0, 255).astype(np.uint8)
        return measurement

    def _measure(self, goal: np.ndarray) -> np.ndarray:
        # A copy, so that a function may work in place
        measurement = self._draw(np.array(goal), self._rng)
        return check_goals(measurement, self._space.shape, self._space.dtype, "The measurement of noise")

    def _measured(self, obs: GoalObs) -> GoalObs:
        if self._true_goal is None or not np.array_equal(obs["desired_goal"], self._true_goal):
            self._true_goal = np.array(obs["desired_goal"])
            self._measured_goal = self._measure(self._true_goal)
        assert self._measured_goal is not None
        return {**obs, "achieved_goal": self._measure(obs["achieved_goal"]), "desired_goal": self._measured_goal.copy()}

    def _true_info(self, obs: GoalObs, info: dict[str, Any]) -> dict[str, Any]:
        if "distance" in info:
            return info
        return {**info, "distance": float(goal_distance(obs["achieved_goal"], obs["desired_goal"], self._goal_space))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[GoalObs, dict[str, Any]]:
        """Start an episode and measure its goal. The seed determines the noise, too."""
        if seed is not None:
            self._rng = np.random.default_rng(seed_sequence(seed, "NoisyGoal"))
        obs, info = self.env.reset(seed=seed, options=options)
        self._true_goal = None
        return self._measured(obs), self._true_info(obs, info)

    def step(self, action: Any) -> tuple[GoalObs, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the env and measure the achieved goal."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        measured, info = self._measured(obs), self._true_info(obs, info)
        if self._env_rewards or self.distance_threshold is not None:
            reward = float(self.compute_reward(measured["achieved_goal"], measured["desired_goal"], info))
        return measured, reward, terminated, truncated, info

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """:return: Rewards ``(…)`` of measurements ``(…, *measurement_shape)``, for HER (see the class)"""
        if self.distance_threshold is not None:
            return sparse_reward(goal_distance(achieved_goal, desired_goal, self._space) <= self.distance_threshold)
        if not self._env_rewards:
            raise ValueError(
                f"The env has no reward for measurements of the shape {self._space.shape}, "
                f"its goals have {self._goal_space.shape}: give NoisyGoal a distance_threshold"
            )
        return self.env.get_wrapper_attr("compute_reward")(achieved_goal, desired_goal, info)

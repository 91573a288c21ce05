"""Wrappers that make goals: crops of an env's observation (`GoalFromObservation`), measurements of goals (`NoisyGoal`)."""

import copy
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning.envs._goals import (
    as_learnable,
    as_learnable_space,
    check_goals,
    example,
    goal_distance,
    seed_sequence,
    sparse_reward,
    to_seed,
    widest_space,
)
from sb3_clearning.goal_spaces import crop_indices

Crop = Callable[[np.ndarray], np.ndarray] | Sequence[int] | np.ndarray | slice
GoalSampler = Callable[[np.random.Generator], np.ndarray] | str | np.ndarray | Sequence[Sequence[float]]
Noise = Callable[[np.ndarray, np.random.Generator], np.ndarray] | float | np.ndarray | Sequence[float]
GoalObs = dict[str, np.ndarray]

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")


def _check_threshold(threshold: Any) -> None:
    if not isinstance(threshold, Real) or not float(threshold) >= 0:
        raise ValueError(f"distance_threshold must not be negative, got {threshold!r}")


class GoalFromObservation(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Turn an ordinary env with a Box observation into a goal env: the goal is a crop of the observation (the paper's appendix
    "Partially-Observed Goals", C(F | s, a, g = crop(s+))).

    Observations become a dictionary of ``observation``, ``achieved_goal`` (always ``crop(observation)``) and ``desired_goal``
    (fixed within an episode), in float32, except for images, which stay uint8. The reward is ``compute_reward``'s: 0 within
    ``distance_threshold`` of the goal, else -1. Termination and truncation are the base env's. The info of every step, and of
    the reset, has ``distance`` and ``is_success``.

    ``reset(seed=…)`` determines everything, the goal too. The start is the one that the base env has with that seed.
    ``reset(options={"goal": goal})`` commands a goal; other options go to the base env::

        # Reach any pose of the cheetah, as found after 100 random actions
        env = GoalFromObservation(gym.make("HalfCheetah-v5"), goal_sampler="random_actions", n_random_actions=100)

        # Only the arm's angles count, not their velocities: indices, a slice, or a function that acts on the last axis
        env = GoalFromObservation(gym.make("Reacher-v5"), crop=[0, 1, 2, 3], distance_threshold=0.1)
        env = GoalFromObservation(gym.make("Pendulum-v1"), crop=slice(0, 2), goal_sampler=np.array([[1.0, 0.0]]))


        def angle(obs: np.ndarray) -> np.ndarray:
            return np.arctan2(obs[..., 1:2], obs[..., 0:1])


        def upper_half(rng: np.random.Generator) -> np.ndarray:
            return rng.uniform(-np.pi / 2, np.pi / 2, size=1)


        env = GoalFromObservation(gym.make("Pendulum-v1"), crop=angle, goal_sampler=upper_half, distance_threshold=0.1)

    Wrappers that count episodes (Monitor, RecordEpisodeStatistics) belong outside of this one: the samplers "reset" and
    "random_actions" run the base env between the episodes. For plain ``pickle`` the functions have to be importable; SB3's
    ``SubprocVecEnv`` takes lambdas too.

    :param env: An env with a Box observation: a vector or an image
    :param crop: What of the observation is the goal: indices, a boolean mask or a slice of a vector; a function of an array
        ``(…, n)`` that keeps the leading axes; None: the whole observation
    :param goal_sampler: Where goals come from: "reset", the state after another reset; "random_actions", the state after
        ``n_random_actions`` random ones (an episode that ends on the way is started anew, so that no goal is a state where an
        episode is over); a function of a NumPy Generator that returns a goal; or an array ``(n_goals, *goal_shape)``
    :param n_random_actions: For the sampler "random_actions"
    :param distance_threshold: Distance up to which a goal counts as reached, in ``info["is_success"]`` and in the reward. The
        distance is Euclidean, in the units of the observation; for images the root mean square difference of the pixels scaled
        to [0, 1]. The default, 0.05, is that of the Fetch tasks (5 cm). C-Learning itself reads neither: it is for
        evaluation and for HER, and should be the precision that your task needs
    """

    def __init__(
        self,
        env: gym.Env,
        crop: Crop | None = None,
        goal_sampler: GoalSampler = "reset",
        n_random_actions: int = 50,
        distance_threshold: float = 0.05,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            crop=crop,
            goal_sampler=goal_sampler,
            n_random_actions=n_random_actions,
            distance_threshold=distance_threshold,
        )
        gym.Wrapper.__init__(self, env)
        _check_threshold(distance_threshold)
        if n_random_actions < 1:
            raise ValueError(f"n_random_actions must be at least 1, got {n_random_actions}")
        self.distance_threshold = float(distance_threshold)
        self.n_random_actions = int(n_random_actions)
        state_space = as_learnable_space(self._check_observation_space(env.observation_space))
        self._crop, goal_space = self._make_crop(crop, state_space)
        self._state_space, self._goal_space = state_space, goal_space
        self.observation_space = spaces.Dict(
            {"observation": state_space, "achieved_goal": goal_space, "desired_goal": copy.deepcopy(goal_space)}
        )
        self._goal_sampler = self._check_goal_sampler(goal_sampler)
        # Random actions of our own: the env's action space is the user's to seed and to sample from
        self._random_actions = copy.deepcopy(env.action_space)
        self._goal: np.ndarray | None = None
        self._seed_goals(None)

    @staticmethod
    def _check_observation_space(space: spaces.Space) -> spaces.Box:
        if isinstance(space, spaces.Dict) and all(key in space.spaces for key in GOAL_KEYS):
            raise ValueError("The env is a goal env already: use it without GoalFromObservation")
        if not isinstance(space, spaces.Box):
            raise ValueError(
                f"GoalFromObservation needs a Box observation space, got {space}. "
                "gymnasium.wrappers.FlattenObservation makes a Box of it"
            )
        if len(space.shape) == 0:
            raise ValueError("GoalFromObservation needs a vector or an image as observation, got a scalar")
        return space

    @staticmethod
    def _make_crop(crop: Crop | None, space: spaces.Box) -> tuple[Crop | None, spaces.Box]:
        """The crop as a function, as indices or None, and the space of its goals."""
        if crop is None:
            return None, copy.deepcopy(space)
        if callable(crop):
            return crop, GoalFromObservation._infer_goal_space(crop, space)
        if len(space.shape) != 1:
            raise ValueError(f"Indices crop a vector. For an observation of the shape {space.shape} give crop a function")
        indices = crop_indices(crop, space.shape[0])
        return indices, spaces.Box(space.low[indices], space.high[indices], dtype=np.float32)

    @staticmethod
    def _infer_goal_space(crop: Callable[[np.ndarray], np.ndarray], space: spaces.Box) -> spaces.Box:
        zeros, ones = example(space, 0.0), example(space, 1.0)
        goal = np.asarray(crop(zeros.copy()))
        if goal.ndim == 0 or goal.size == 0:
            raise ValueError(f"crop must return an array with one entry or more, got the shape {goal.shape} (obs[..., :1]?)")
        if not (np.issubdtype(goal.dtype, np.number) or goal.dtype == bool):
            raise TypeError(f"crop must return numbers, got the type {goal.dtype}")
        other_shape = np.shape(crop(ones.copy()))
        if other_shape != goal.shape:
            raise ValueError(f"crop returns varying shapes, {goal.shape} and {other_shape}: all goals need the same")
        batch_shape = np.shape(crop(np.stack([zeros, ones, zeros])))
        if batch_shape != (3, *goal.shape):
            raise ValueError(
                f"crop returns the shape {batch_shape} for a batch of 3 observations, expected {(3, *goal.shape)}: "
                "it has to keep the leading axes, as in obs[..., :2] instead of obs[:2]"
            )
        return widest_space(as_learnable(goal))

    def _check_goal_sampler(self, goal_sampler: GoalSampler) -> Callable[[np.random.Generator], np.ndarray] | str | np.ndarray:
        if isinstance(goal_sampler, str):
            if goal_sampler not in ("reset", "random_actions"):
                raise ValueError(
                    f"Unknown goal_sampler {goal_sampler!r}: "
                    'give "reset", "random_actions", a function of a NumPy Generator, or an array of goals'
                )
            return goal_sampler
        if callable(goal_sampler):
            return goal_sampler
        goals = np.asarray(goal_sampler)
        if goals.ndim == 0:
            raise TypeError(f"goal_sampler must be a string, a function or an array of goals, got {goal_sampler!r}")
        if len(goals) == 0:
            raise ValueError("goal_sampler is an empty array: it needs one goal or more")
        return check_goals(goals, (len(goals), *self._goal_space.shape), self._goal_space.dtype, "The goal_sampler array")

    def _seed_goals(self, seed: int | None) -> int:
        """Seed the choice of goals; returns a seed for the env's reset that finds a goal."""
        rng, actions, env = seed_sequence(seed, "GoalFromObservation").spawn(3)
        self._rng = np.random.default_rng(rng)
        self._random_actions.seed(to_seed(actions))
        return to_seed(env)

    def crop(self, observation: np.ndarray) -> np.ndarray:
        """
        The goals that observations achieve.

        :param observation: Observations of the wrapped env ``(…, *observation_shape)``
        :return: Goals ``(…, *goal_shape)``
        """
        if self._crop is None:
            goal = observation
        elif callable(self._crop):
            goal = self._crop(observation)
        else:
            goal = observation[..., self._crop]
        return np.array(goal, dtype=self._goal_space.dtype)

    def _achieved(self, state: np.ndarray) -> np.ndarray:
        goal = self.crop(state)
        if goal.shape != self._goal_space.shape:
            raise ValueError(f"crop returned a goal of the shape {goal.shape}, but {self._goal_space.shape} at construction")
        return goal

    def _sample_goal(self, env_seed: int | None) -> np.ndarray:
        sampler = self._goal_sampler
        if isinstance(sampler, np.ndarray):
            return sampler[self._rng.integers(len(sampler))].copy()
        if callable(sampler):
            return check_goals(sampler(self._rng), self._goal_space.shape, self._goal_space.dtype, "The goal of goal_sampler")
        state, _ = self.env.reset(seed=env_seed)
        if sampler == "random_actions":
            over = False
            for _ in range(self.n_random_actions):
                if over:
                    state, _ = self.env.reset()
                state, _, terminated, truncated, _ = self.env.step(self._random_actions.sample())
                over = terminated or truncated
            # The state at a time limit is a goal as good as any; one that ends the episode is none to be sent to.
            if over and terminated:
                state, _ = self.env.reset()
        return self._achieved(np.array(state, dtype=self._state_space.dtype))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[GoalObs, dict[str, Any]]:
        """
        Start an episode with a new goal.

        :param seed: Determines the start, the goal and all that follow until the next seed
        :param options: ``{"goal": goal}`` commands a goal; the rest is for the base env
        :return: The first observation and info
        """
        # The goal's reset has a seed of its own, or the goal would be the start
        env_seed = None if seed is None else self._seed_goals(seed)
        if options is not None and "goal" in options:
            goal = check_goals(options["goal"], self._goal_space.shape, self._goal_space.dtype, 'The goal in options["goal"]')
            options = {key: value for key, value in options.items() if key != "goal"} or None
        else:
            goal = self._sample_goal(env_seed)
        state, info = self.env.reset(seed=seed, options=options)
        self._goal = goal
        obs = self._goal_obs(state)
        return obs, self._goal_info(obs, info)

    def step(self, action: Any) -> tuple[GoalObs, SupportsFloat, bool, bool, dict[str, Any]]:
        """
        Step the base env, with the reward of ``compute_reward``.

        :param action: The base env's action
        :return: Observation, reward, terminated, truncated, info
        """
        state, _, terminated, truncated, info = self.env.step(action)
        obs = self._goal_obs(state)
        info = self._goal_info(obs, info)
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], info))
        return obs, reward, terminated, truncated, info

    def _goal_obs(self, state: np.ndarray) -> GoalObs:
        if self._goal is None:
            raise gym.error.ResetNeeded("Call reset() before step()")
        state = np.array(state, dtype=self._state_space.dtype)
        return {"observation": state, "achieved_goal": self._achieved(state), "desired_goal": self._goal.copy()}

    def _goal_info(self, obs: GoalObs, info: dict[str, Any]) -> dict[str, Any]:
        distance = float(self.distance(obs["achieved_goal"], obs["desired_goal"]))
        return {**info, "distance": distance, "is_success": distance <= self.distance_threshold}

    def distance(self, achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
        """
        Distance between goals, as in ``info["distance"]``.

        :param achieved_goal: Goals ``(…, *goal_shape)``
        :param desired_goal: Goals ``(…, *goal_shape)``
        :return: Distances ``(…)``
        """
        return goal_distance(achieved_goal, desired_goal, self._goal_space)

    def is_success(self, achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
        """
        Whether goals are reached: within ``distance_threshold``.

        :param achieved_goal: Goals ``(…, *goal_shape)``
        :param desired_goal: Goals ``(…, *goal_shape)``
        :return: Booleans ``(…)``
        """
        return self.distance(achieved_goal, desired_goal) <= self.distance_threshold

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """
        The sparse reward for HER: 0 where the goal is reached, else -1.

        :param achieved_goal: Goals ``(…, *goal_shape)``
        :param desired_goal: Goals ``(…, *goal_shape)``
        :param info: Not read
        :return: Rewards ``(…)``
        """
        return sparse_reward(self.is_success(achieved_goal, desired_goal))


class NoisyGoal(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Make the goals of a goal env measurements z ~ p(z | g) (the paper's appendix "Partially-Observed Goals", "Noisy Goals").

    Achieved goals are measured at every step. The desired goal is measured once an episode (again only if the env itself
    commands another one on the way), so that the agent cannot average its noise away. The state in ``observation`` is left as
    it is. ``reset(seed=…)`` determines the noise too::

        env = NoisyGoal(gym.make("FetchReach-v4"), noise=0.01)  # a camera that is 1 cm off in each direction


        def encode(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            mean, std = vae.encode(image)
            return mean + std * rng.standard_normal(mean.shape)


        env = NoisyGoal(image_env, noise=encode)  # goals are latents of images

    The info is that of the true goals: ``is_success`` as the env says, and ``distance`` (Euclidean where the env gives none).

    The reward and ``compute_reward`` are of the measurements, since a buffer that relabels (HER) knows nothing else, and since
    they have to agree with each other. They are the env's own ``compute_reward`` if measurements have the shape of its goals.
    Measurements of another shape, or in other units, need a ``distance_threshold``: then the reward is 0 within that
    Euclidean distance of the desired measurement, else -1. Without one, a measurement of another shape leaves the true reward
    in place, and ``compute_reward`` raises an error: C-Learning reads neither.

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
            _check_threshold(distance_threshold)
        self.distance_threshold = distance_threshold
        env_spaces = self._check_goal_env(env.observation_space)
        self._goal_space = goal_space = env_spaces["desired_goal"]
        self._noise = noise if callable(noise) else self._check_scale(noise, goal_space.shape)
        # With a generator of its own: the space must not depend on a seed, nor later draws on this one
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
    def _check_goal_env(space: spaces.Space) -> dict[str, Any]:
        if not isinstance(space, spaces.Dict) or not all(key in space.spaces for key in GOAL_KEYS):
            raise ValueError(
                f"NoisyGoal needs a goal env with {', '.join(GOAL_KEYS)}; GoalFromObservation makes one. Got {space}"
            )
        for key in GOAL_KEYS[1:]:
            if not isinstance(space[key], spaces.Box):
                raise ValueError(f"NoisyGoal needs Box goals, but {key} is {space[key]}")
        return dict(space.spaces)

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
        """
        Start an episode and measure its goal.

        :param seed: Determines the noise, and what it determines in the env
        :param options: The env's options
        :return: The first observation and info
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed_sequence(seed, "NoisyGoal"))
        obs, info = self.env.reset(seed=seed, options=options)
        self._true_goal = None
        return self._measured(obs), self._true_info(obs, info)

    def step(self, action: Any) -> tuple[GoalObs, SupportsFloat, bool, bool, dict[str, Any]]:
        """
        Step the env and measure the achieved goal.

        :param action: The env's action
        :return: Observation, reward, terminated, truncated, info
        """
        obs, reward, terminated, truncated, info = self.env.step(action)
        measured, info = self._measured(obs), self._true_info(obs, info)
        if self._env_rewards or self.distance_threshold is not None:
            reward = float(self.compute_reward(measured["achieved_goal"], measured["desired_goal"], info))
        return measured, reward, terminated, truncated, info

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """
        The reward of measurements, for HER (see the class).

        :param achieved_goal: Measurements ``(…, *measurement_shape)``
        :param desired_goal: Measurements ``(…, *measurement_shape)``
        :param info: For the env's own ``compute_reward``
        :return: Rewards ``(…)``
        """
        if self.distance_threshold is not None:
            return sparse_reward(goal_distance(achieved_goal, desired_goal, self._space) <= self.distance_threshold)
        if not self._env_rewards:
            raise ValueError(
                f"The env has no reward for measurements of the shape {self._space.shape}, "
                f"its goals have {self._goal_space.shape}: give NoisyGoal a distance_threshold"
            )
        return self.env.get_wrapper_attr("compute_reward")(achieved_goal, desired_goal, info)

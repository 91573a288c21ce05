"""GoalFromObservation: turns an ordinary environment into a goal environment, whose goals are crops of its observation."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning.envs._goals import (
    GoalFunction,
    GoalObs,
    ReachedWithinThreshold,
    as_learnable,
    as_learnable_space,
    check_commanded_goal,
    check_goal_array,
    check_goal_function,
    check_goals,
    check_threshold,
    example,
    seed_sequence,
    to_seed,
    widest_space,
    without_goal,
)
from sb3_clearning.goal_spaces import GOAL_KEYS, StateCrop, crop_indices

GoalSource = GoalFunction | str | np.ndarray | Sequence[Sequence[float]]


class GoalFromObservation(ReachedWithinThreshold, gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Turn an ordinary env into a goal env: the goal is a crop of the observation (the paper's appendix "Partially-Observed
    Goals", C(F | s, a, g = crop(s+))).

    Observations become a dict of ``observation``, ``achieved_goal`` (always ``crop(observation)``) and ``desired_goal``
    (fixed within an episode), in float32, except for images, which stay uint8. If they are a Dict already, the key that
    ``crop`` names becomes ``observation``, and the other keys stay. The reward is ``compute_reward``'s: 0 within
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

        # A Dict of a camera and joints: the goal is the first two joints. The policy sees the camera, too
        env = GoalFromObservation(robot, crop={"joints": [0, 1]})

    Put wrappers that count episodes (Monitor, RecordEpisodeStatistics) around this one: the samplers "reset" and
    "random_actions" run the base env between the episodes. For plain ``pickle`` the functions have to be importable; SB3's
    ``SubprocVecEnv`` takes lambdas too.

    :param env: An env with a Box observation, a vector or an image, or with a Dict of them
    :param crop: The part of the observation that is the goal: indices, a boolean mask or a slice of a vector; a function of
        an array ``(…, n)`` that keeps the leading axes; None: the whole observation. Of a Dict: ``{key: crop}``, or a function
        of the dict of arrays, if it has the key ``observation``
    :param goal_sampler: Where goals come from: "reset", the state after another reset; "random_actions", the state after
        ``n_random_actions`` random ones (an episode that ends on the way is restarted, so that no goal is a terminal state);
        a function of a NumPy Generator that returns a goal; or an array ``(n_goals, *goal_shape)``
    :param n_random_actions: For the sampler "random_actions"
    :param distance_threshold: Distance up to which a goal counts as reached, in ``info["is_success"]`` and in the reward. The
        distance is Euclidean, in the units of the observation; for images the root mean square difference of the pixels scaled
        to [0, 1]. The default, 0.05, is that of the Fetch tasks (5 cm). C-Learning itself uses neither: they are for
        evaluation and for HER. Choose the precision that your task needs
    """

    def __init__(
        self,
        env: gym.Env,
        crop: StateCrop = None,
        goal_sampler: GoalSource = "reset",
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
        check_threshold(distance_threshold)
        if n_random_actions < 1:
            raise ValueError(f"n_random_actions must be at least 1, got {n_random_actions}")
        self.distance_threshold = float(distance_threshold)
        self.n_random_actions = int(n_random_actions)
        parts = self._check_observation_space(env.observation_space)
        self._of_dict = isinstance(env.observation_space, spaces.Dict) and callable(crop)
        self._key, crop = self._goal_key(crop, env.observation_space)
        self._state_spaces = {
            "observation" if key == self._key else key: as_learnable_space(part) for key, part in parts.items()
        }
        self._crop, self._goal_space = self._make_crop(crop)
        goals = {"achieved_goal": self._goal_space, "desired_goal": copy.deepcopy(self._goal_space)}
        self.observation_space = spaces.Dict({**self._state_spaces, **goals})
        self._goal_sampler = self._check_goal_sampler(goal_sampler)
        # A copy: the env's action space is the user's to seed and to sample from
        self._random_actions = copy.deepcopy(env.action_space)
        self._goal: np.ndarray | None = None
        self._seed_goals(None)

    @staticmethod
    def _check_observation_space(space: spaces.Space) -> dict[str, spaces.Box]:
        """The Boxes of an observation, by their keys."""
        parts: Any = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
        if all(key in parts for key in GOAL_KEYS):
            raise ValueError("The env is a goal env already: use it without GoalFromObservation")
        added = [key for key in GOAL_KEYS[1:] if key in parts]
        if added:
            raise ValueError(
                f"The env's observation has the keys {added}, which GoalFromObservation adds: rename them in the env"
            )
        for key, part in parts.items():
            if not isinstance(part, spaces.Box):
                where = f" in the key `{key}`" if isinstance(space, spaces.Dict) else ""
                raise ValueError(
                    f"GoalFromObservation needs a Box observation space, got {part}{where}. "
                    "gymnasium.wrappers.FlattenObservation makes a Box of the whole observation"
                )
            if len(part.shape) == 0:
                raise ValueError(f"GoalFromObservation needs vectors or images as observations, got a scalar in `{key}`")
        return parts

    @staticmethod
    def _goal_key(crop: Any, space: spaces.Space) -> tuple[str, Any]:
        """The key of the env's observation that becomes `observation`, and the crop without it."""
        if not isinstance(space, spaces.Dict):
            if isinstance(crop, Mapping):
                raise ValueError(
                    f"crop={crop!r} names a key, but the env's observation is no Dict: {space}. Give the crop alone"
                )
            return "observation", crop
        keys = list(space.spaces)
        if callable(crop):
            if "observation" not in keys:
                raise ValueError(
                    f"The env's observation has the keys {keys}, and none is `observation`. Name the one that the goal is a "
                    'function of: crop={"key": function}'
                )
            return "observation", crop
        if not isinstance(crop, Mapping) or len(crop) != 1 or next(iter(crop)) not in keys:
            raise ValueError(
                f'The observation is a Dict: say which of its keys {keys} the goal is in, as in crop={{"key": [0, 1]}} or '
                f'crop={{"key": None}}, got crop={crop!r}'
            )
        [(key, part)] = crop.items()
        if key != "observation" and "observation" in keys:
            raise ValueError(
                f"`{key}` would become `observation`, a key that the env has as well. Give crop a function of the dict, as in "
                f'lambda obs: obs["{key}"][..., :2]'
            )
        return key, part

    def _make_crop(self, crop: Any) -> tuple[Any, spaces.Box]:
        """The crop as a function, as indices or None, and the space of its goals."""
        space = self._state_spaces["observation"]
        if crop is None:
            return None, copy.deepcopy(space)
        if callable(crop):
            return crop, self._infer_goal_space(crop)
        if len(space.shape) != 1:
            raise ValueError(f"Indices crop a vector. For an observation of the shape {space.shape} give crop a function")
        indices = crop_indices(crop, space.shape[0])
        return indices, spaces.Box(space.low[indices], space.high[indices], dtype=np.float32)

    def _infer_goal_space(self, crop: Callable[[Any], np.ndarray]) -> spaces.Box:
        zeros, ones = ({key: example(space, v) for key, space in self._state_spaces.items()} for v in (0.0, 1.0))
        batch = {key: np.stack([zeros[key], ones[key], zeros[key]]) for key in zeros}
        goal = np.asarray(crop(self._croppable(zeros)))
        if goal.ndim == 0 or goal.size == 0:
            raise ValueError(f"crop must return an array with one entry or more, got the shape {goal.shape} (obs[..., :1]?)")
        if not (np.issubdtype(goal.dtype, np.number) or goal.dtype == bool):
            raise TypeError(f"crop must return numbers, got the type {goal.dtype}")
        other_shape = np.shape(crop(self._croppable(ones)))
        if other_shape != goal.shape:
            raise ValueError(f"crop returns varying shapes, {goal.shape} and {other_shape}: all goals need the same")
        batch_shape = np.shape(crop(self._croppable(batch)))
        if batch_shape != (3, *goal.shape):
            raise ValueError(
                f"crop returns the shape {batch_shape} for a batch of 3 observations, expected {(3, *goal.shape)}: "
                "it has to keep the leading axes, as in obs[..., :2] instead of obs[:2]"
            )
        return widest_space(as_learnable(goal))

    def _croppable(self, states: GoalObs) -> Any:
        """What the crop is of: the dict, or one of its keys."""
        return dict(states) if self._of_dict else states["observation"]

    def _check_goal_sampler(self, goal_sampler: GoalSource) -> GoalFunction | str | np.ndarray:
        if isinstance(goal_sampler, str):
            if goal_sampler not in ("reset", "random_actions"):
                raise ValueError(
                    f"Unknown goal_sampler {goal_sampler!r}: "
                    'give "reset", "random_actions", a function of a NumPy Generator, or an array of goals'
                )
            return goal_sampler
        if callable(goal_sampler):
            return check_goal_function(goal_sampler, "goal_sampler")
        if np.ndim(goal_sampler) == 0:
            raise TypeError(f"goal_sampler must be a string, a function or an array of goals, got {goal_sampler!r}")
        return check_goal_array(goal_sampler, self._goal_space, "goal_sampler")

    def _seed_goals(self, seed: int | None) -> int:
        """Seed the choice of goals, and return a seed for the env's reset that finds a goal."""
        rng, actions, env = seed_sequence(seed, "GoalFromObservation").spawn(3)
        self._rng = np.random.default_rng(rng)
        self._random_actions.seed(to_seed(actions))
        return to_seed(env)

    def crop(self, observation: np.ndarray | GoalObs) -> np.ndarray:
        """
        :param observation: Observations ``(…, *observation_shape)``, as under the key ``observation``; a dict of arrays if the
            goal is a function of a dict
        :return: The goals that they achieve, ``(…, *goal_shape)``
        """
        goal: Any = observation
        if callable(self._crop):
            goal = self._crop(observation)
        elif self._crop is not None:
            goal = goal[..., self._crop]
        return np.array(goal, dtype=self._goal_space.dtype)

    def _parts(self, state: Any) -> GoalObs:
        """A copy of the base env's observation in the types that networks read, by the keys of the result."""
        states = state if isinstance(state, Mapping) else {self._key: state}
        return {
            key: np.array(states[self._key if key == "observation" else key], dtype=space.dtype)
            for key, space in self._state_spaces.items()
        }

    def _achieved(self, state: GoalObs) -> np.ndarray:
        goal = self.crop(self._croppable(state))
        if goal.shape != self._goal_space.shape:
            raise ValueError(f"crop returned a goal of the shape {goal.shape}, but {self._goal_space.shape} at construction")
        return goal

    def _sample_goal(self, env_seed: int | None) -> np.ndarray:
        sampler = self._goal_sampler
        if isinstance(sampler, np.ndarray):
            return sampler[self._rng.integers(len(sampler))].copy()
        if callable(sampler):
            # Bounds are not checked: the tail of a Gaussian should not stop training.
            return check_goals(sampler(self._rng), self._goal_space.shape, self._goal_space.dtype, "The goal of goal_sampler")
        state, _ = self.env.reset(seed=env_seed)
        if sampler == "random_actions":
            over = False
            for _ in range(self.n_random_actions):
                if over:
                    state, _ = self.env.reset()
                state, _, terminated, truncated, _ = self.env.step(self._random_actions.sample())
                over = terminated or truncated
            # The state at a time limit is a valid goal, a terminal one is not.
            if over and terminated:
                state, _ = self.env.reset()
        return self._achieved(self._parts(state))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[GoalObs, dict[str, Any]]:
        """
        Start an episode with a new goal.

        :param seed: Determines the start, the goal and all that follow until the next seed
        :param options: ``{"goal": goal}`` commands a goal; the rest is for the base env
        :return: The first observation and info
        """
        # The goal's reset has another seed, or the goal would be the start
        env_seed = None if seed is None else self._seed_goals(seed)
        if options is not None and "goal" in options:
            goal = check_commanded_goal(options["goal"], self._goal_space)
        else:
            goal = self._sample_goal(env_seed)
        state, info = self.env.reset(seed=seed, options=without_goal(options))
        self._goal = goal
        obs = self._goal_obs(state)
        return obs, self._goal_info(obs, info)

    def step(self, action: Any) -> tuple[GoalObs, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the base env, with the reward of ``compute_reward``."""
        state, _, terminated, truncated, info = self.env.step(action)
        obs = self._goal_obs(state)
        info = self._goal_info(obs, info)
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], info))
        return obs, reward, terminated, truncated, info

    def _goal_obs(self, state: Any) -> GoalObs:
        if self._goal is None:
            raise gym.error.ResetNeeded("Call reset() before step()")
        parts = self._parts(state)
        return {**parts, "achieved_goal": self._achieved(parts), "desired_goal": self._goal.copy()}

    def _goal_info(self, obs: GoalObs, info: dict[str, Any]) -> dict[str, Any]:
        distance = float(self.distance(obs["achieved_goal"], obs["desired_goal"]))
        return {**info, "distance": distance, "is_success": distance <= self.distance_threshold}

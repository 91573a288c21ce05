"""VecGoalFromObservation: goals for vectorized environments with flat observations, without a loop over environments."""

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from sb3_clearning.envs._goals import (
    GoalObs,
    ReachedWithinThreshold,
    as_learnable_space,
    check_goal_array,
    check_goals,
    check_threshold,
    example,
    seed_sequence,
    widest_space,
)
from sb3_clearning.false_ends import equal_rows, states_are_false
from sb3_clearning.goal_spaces import Crop, crop_indices

#: Draws that many goals, ``(n, *goal_shape)``.
BatchedGoalFunction = Callable[[np.random.Generator, int], np.ndarray]
#: Bounds from which on an action space counts as unbounded: IsaacLab's wrapper gives ±100 to one without bounds.
_NO_BOUND = 100
_OWN_METHODS = ("distance", "is_success", "compute_reward")


def _as_array(value: Any) -> Any:
    """:return: A tensor as a NumPy array, of the same memory if it is on the CPU; all else as it is"""
    return value.detach().cpu().numpy() if isinstance(value, th.Tensor) else value


class VecGoalFromObservation(ReachedWithinThreshold, VecEnvWrapper):
    """
    :class:`GoalFromObservation` for vectorized environments with flat observations, as the wrappers of IsaacLab and ManiSkill
    for Stable-Baselines3 are. All environments are computed at once::

        env = VecGoalFromObservation(Sb3VecEnvWrapper(isaac_env, action_low=-1, action_high=1), crop=slice(0, 3))
        model = CLearning("MultiInputPolicy", env)

    Observations become a dict of ``observation``, ``achieved_goal`` and ``desired_goal`` in float32. The reward is
    ``compute_reward``'s: 0 within ``distance_threshold`` of the goal, else -1. Where an episode ended, the info has
    ``distance`` and ``is_success``, and a final observation that is false (:mod:`sb3_clearning.false_ends`) is taken away.
    ``env.seed(seed)`` seeds the goals, too.

    :param venv: A vectorized environment with vectors as observations, NumPy arrays or tensors
    :param crop: The part of the observation that is the goal: indices, a boolean mask or a slice; a function of an array
        ``(…, n)`` that keeps the leading axes; None: the whole observation
    :param goal_sampler: Where goals come from: "reset", the first state of another environment's newest episode; a function
        of a NumPy Generator and a number n that returns goals ``(n, *goal_shape)``; or an array ``(n_goals, *goal_shape)``
    :param distance_threshold: Distance up to which a goal counts as reached, see :class:`GoalFromObservation`
    """

    def __init__(
        self,
        venv: VecEnv,
        crop: Crop = None,
        goal_sampler: BatchedGoalFunction | str | np.ndarray | Sequence[Sequence[float]] = "reset",
        distance_threshold: float = 0.05,
    ) -> None:
        if not isinstance(venv, VecEnv):
            raise TypeError(f"VecGoalFromObservation wraps a VecEnv; for a single env use GoalFromObservation. Got {venv!r}")
        check_threshold(distance_threshold)
        self._state_space = self._check_spaces(venv)
        self._crop, self._goal_space = self._make_crop(crop)
        self.distance_threshold = float(distance_threshold)
        parts = {"observation": self._state_space, "achieved_goal": self._goal_space}
        super().__init__(venv, spaces.Dict({**parts, "desired_goal": copy.deepcopy(self._goal_space)}))
        self._goal_sampler = self._check_goal_sampler(goal_sampler)
        self._rng = np.random.default_rng()
        self._obs: GoalObs | None = None

    @staticmethod
    def _check_spaces(venv: VecEnv) -> spaces.Box:
        observations, actions = venv.observation_space, venv.action_space
        if not isinstance(observations, spaces.Box) or len(observations.shape) != 1:
            raise ValueError(
                f"VecGoalFromObservation needs vectors as observations, got {observations}. Flatten them in the simulator: in "
                '`gym.make(..., obs_mode="state")` of ManiSkill, or with `concatenate_terms = True` in IsaacLab'
            )
        if isinstance(actions, spaces.Box) and not (
            np.abs(actions.low).max() < _NO_BOUND and np.abs(actions.high).max() < _NO_BOUND
        ):
            raise ValueError(
                f"The actions have no useful bounds: {actions}. Exploration fills the whole range. IsaacLab's wrapper "
                "gives ±100 to actions without bounds. Set them: `Sb3VecEnvWrapper(env, action_low=-1.0, action_high=1.0)` in "
                'IsaacLab, `clip_actions` in mjlab, a normalized `control_mode` such as "pd_joint_delta_pos" in ManiSkill'
            )
        return as_learnable_space(observations)

    def _make_crop(self, crop: Any) -> tuple[Any, spaces.Box]:
        """The crop as a function, as indices or None, and the space of its goals."""
        space = self._state_space
        if crop is None:
            return None, copy.deepcopy(space)
        if not callable(crop):
            indices = crop_indices(crop, space.shape[0])
            return indices, spaces.Box(space.low[indices], space.high[indices], dtype=np.float32)
        goals = np.asarray(crop(np.stack([example(space, value) for value in (0.0, 1.0, 0.0)])))
        if goals.ndim != 2 or len(goals) != 3 or not np.issubdtype(goals.dtype, np.number):
            raise ValueError(
                f"crop must return goals (3, n) for a batch of 3 observations, as obs[..., :2] does, not {goals.dtype} of the "
                f"shape {goals.shape}"
            )
        return crop, widest_space(goals[0].astype(np.float32))

    def _check_goal_sampler(self, goal_sampler: Any) -> BatchedGoalFunction | np.ndarray | None:
        if isinstance(goal_sampler, str):
            if goal_sampler != "reset":
                raise ValueError(
                    f'Unknown goal_sampler {goal_sampler!r}: give "reset", a function of a NumPy Generator and a number of '
                    "goals, or an array of goals"
                )
            if self.num_envs == 1:
                raise ValueError('goal_sampler="reset" takes goals of other environments, and there is one only')
            return None
        if callable(goal_sampler):
            try:
                inspect.signature(goal_sampler).bind(np.random.default_rng(), 1)
            except TypeError as error:
                raise TypeError(f"goal_sampler must be a function of a NumPy Generator and a number: {error}") from error
            except ValueError:  # a C function has no signature
                pass
            return goal_sampler
        if np.ndim(goal_sampler) == 0:
            raise TypeError(f"goal_sampler must be a string, a function or an array of goals, got {goal_sampler!r}")
        return check_goal_array(goal_sampler, self._goal_space, "goal_sampler")

    def crop(self, observation: np.ndarray) -> np.ndarray:
        """:return: The goals ``(…, *goal_shape)`` that observations ``(…, n)`` achieve"""
        goal = observation
        if callable(self._crop):
            goal = self._crop(observation)
        elif self._crop is not None:
            goal = observation[..., self._crop]
        return np.array(goal, dtype=np.float32)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the environments, and the goals."""
        self._rng = np.random.default_rng(seed_sequence(seed, "VecGoalFromObservation"))
        return self.venv.seed(seed)

    def reset(self) -> GoalObs:
        """:return: The first observations, with new goals"""
        states = self._states(self.venv.reset())
        achieved = self.crop(states)
        self._starts = achieved.copy()
        goals = self._sample_goals(np.arange(self.num_envs))
        self._obs = {"observation": states, "achieved_goal": achieved, "desired_goal": goals}
        return dict(self._obs)

    def _states(self, states: Any) -> np.ndarray:
        """:return: A copy in float32: a simulator may write its next states to the same memory"""
        array = np.array(_as_array(states), dtype=np.float32)
        if array.shape != (self.num_envs, *self._state_space.shape):
            raise ValueError(
                f"{self.num_envs} environments gave observations of the shape {array.shape}, expected "
                f"{(self.num_envs, *self._state_space.shape)}"
            )
        return array

    def _sample_goals(self, envs: np.ndarray) -> np.ndarray:
        """:return: New goals for environments, given by index"""
        sampler, n = self._goal_sampler, len(envs)
        if sampler is None:
            return self._starts[(envs + self._rng.integers(1, self.num_envs, n)) % self.num_envs]
        if isinstance(sampler, np.ndarray):
            return sampler[self._rng.integers(len(sampler), size=n)]
        # Bounds are not checked: the tail of a Gaussian should not stop training.
        goals = sampler(self._rng, n)
        return check_goals(goals, (n, *self._goal_space.shape), np.float32, f"The goals of goal_sampler for {n} environments")

    def step_wait(self) -> VecEnvStepReturn:
        """:return: Observations, rewards, dones and infos. Where an episode ended, the observation is the next one's first"""
        if self._obs is None:
            raise gym.error.ResetNeeded("Call VecGoalFromObservation.reset() before step()")
        given, _, done, infos = self.venv.step_wait()
        states, dones = self._states(given), np.asarray(done, dtype=bool)
        # A goal is what the last observation of an episode achieves; where that is unknown, the one before it.
        reached, goals = self.crop(states), self._obs["desired_goal"]
        achieved = reached
        ended = np.flatnonzero(dones)
        if len(ended):
            infos, goals = [*infos], goals.copy()
            finals, false = self._final_states(given, states, ended, infos)
            reached = reached.copy()
            reached[ended] = np.where(false[:, None], self._obs["achieved_goal"][ended], self.crop(finals))
        rewards = self.compute_reward(reached, goals, None)
        if len(ended):
            self._end(ended, finals, false, reached, infos)
            self._starts[ended] = achieved[ended]
            goals[ended] = self._sample_goals(ended)
        self._obs = {"observation": states, "achieved_goal": achieved, "desired_goal": goals}
        return dict(self._obs), rewards, dones, infos

    def _final_states(
        self, given: Any, states: np.ndarray, ended: np.ndarray, infos: list[dict[str, Any]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        :param given: The observations as the simulator gave them
        :param states: Their copy
        :return: The final states ``(n, …)`` of the environments that ended, and whether they are false or missing
        """
        assert self._obs is not None
        each = [_as_array(infos[env].get("terminal_observation")) for env in ended.tolist()]
        memory = _as_array(given)
        # A row of the array that has the new observations was overwritten by them.
        false = np.array([one is None or np.may_share_memory(one, memory) for one in each])
        finals = states[ended]
        known = np.flatnonzero(~false)
        if len(known):
            finals[known] = np.stack([each[i] for i in known.tolist()])
            before, first, final = ({"observation": a} for a in (self._obs["observation"][ended], states[ended], finals))
            false |= equal_rows(final, first) & states_are_false(before, first)
        return finals, false

    def _end(
        self, ended: np.ndarray, finals: np.ndarray, false: np.ndarray, reached: np.ndarray, infos: list[dict[str, Any]]
    ) -> None:
        """Complete the infos of the environments that ended."""
        assert self._obs is not None
        goals = self._obs["desired_goal"][ended]
        distances = self.distance(reached[ended], goals)
        for i, env in enumerate(ended.tolist()):
            info = {key: value for key, value in infos[env].items() if key != "terminal_observation"}
            info.update(distance=float(distances[i]), is_success=bool(distances[i] <= self.distance_threshold))
            if not false[i]:
                final = {"observation": finals[i], "achieved_goal": reached[env], "desired_goal": goals[i]}
                info["terminal_observation"] = final
            infos[env] = info

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """Call a method of the environments. ``compute_reward``, which HER calls, is this wrapper's own."""
        if method_name in _OWN_METHODS:
            return [getattr(self, method_name)(*args, **kwargs)] * len(list(self._get_indices(indices)))
        return self.venv.env_method(method_name, *args, indices=indices, **kwargs)

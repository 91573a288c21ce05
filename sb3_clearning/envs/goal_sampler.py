"""GoalSampler: commanded goals of the user's choice, for any goal environment."""

from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer

from sb3_clearning.envs._goals import (
    GoalFunction,
    GoalObs,
    check_commanded_goal,
    check_goal_array,
    check_goal_env,
    check_goal_function,
    check_goals,
    check_within_bounds,
    seed_sequence,
    without_goal,
)

#: A Minari dataset is of type Any: the package is optional.
Goals = GoalFunction | np.ndarray | Sequence[Sequence[float]] | DictReplayBuffer | Any | None
#: What an env's info says about its goal. At a reset it is about the goal that the env drew itself.
_ABOUT_THE_GOAL = ("is_success", "success", "distance")


class GoalSampler(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Choose the goals that a goal env commands::

        def on_the_table(rng: np.random.Generator) -> np.ndarray:
            return np.array([*rng.uniform(-0.1, 0.1, size=2), 0.02])


        env = GoalSampler(gym.make("PandaPush-v3"), on_the_table)
        env.reset(options={"goal": [0.05, 0.05, 0.02]})  # this goal, once

    The env itself pursues the goal: its observation, reward, success, termination and picture are about it. A goal is
    commanded by ``reset(options={"goal": goal})`` where the env takes that (all envs and wrappers of this package do), else by
    its attribute ``goal`` (gymnasium-robotics) or ``task.goal`` (panda-gym), else by your ``set_goal``. If the env then shows
    another goal, an error says so. ``reset(seed=…)`` determines the goals, too.

    :param env: A goal env with Box goals
    :param sampler: Where goals come from: a function of a NumPy Generator that returns a goal; an array
        ``(n_goals, *goal_shape)``; a Minari dataset or a replay buffer, whose achieved goals are drawn; None: the env itself.
        While a replay buffer is empty, the env's own goals are used. In the processes of a ``SubprocVecEnv`` a buffer would be
        a copy: pass arrays there
    :param set_goal: A function of the env (unwrapped) and a goal, called after a reset, for an env that takes goals in another
        way
    """

    def __init__(self, env: gym.Env, sampler: Goals = None, set_goal: Callable[[Any, np.ndarray], None] | None = None) -> None:
        # A copy of a replay buffer would be large, and would not follow it.
        gym.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=True, sampler=sampler, set_goal=set_goal)
        gym.Wrapper.__init__(self, env)
        self._goal_space = check_goal_env(env.observation_space, "GoalSampler")["desired_goal"]
        if set_goal is not None and not callable(set_goal):
            raise TypeError(f"set_goal must be a function of the env and a goal, got {set_goal!r}")
        self._set_goal = set_goal
        self._goal: np.ndarray | None = None
        self._rng = np.random.default_rng()
        self.set_sampler(sampler)

    def set_sampler(self, sampler: Goals) -> None:
        """Draw goals from elsewhere, from the next reset on. For a VecEnv: ``venv.env_method("set_sampler", sampler)``."""
        space = self._goal_space
        if isinstance(sampler, DictReplayBuffer):
            shape = sampler.observation_space["achieved_goal"].shape
            if shape != space.shape:
                raise ValueError(f"The replay buffer's goals have the shape {shape}, those of the env {space.shape}")
        elif hasattr(sampler, "iterate_episodes"):
            sampler = check_goal_array(_achieved_goals(sampler), space, "the Minari dataset's achieved goals")
        elif callable(sampler):
            check_goal_function(sampler, "sampler")
        elif sampler is not None:
            if isinstance(sampler, str) or np.ndim(sampler) == 0:
                raise TypeError(
                    "sampler must be a function of a NumPy Generator, an array of goals, a Minari dataset "
                    f"(minari.load_dataset(name)), a replay buffer with Dict observations, or None, got {sampler!r}"
                )
            sampler = check_goal_array(sampler, space, "sampler")
        self._sampler = sampler

    def _draw(self) -> np.ndarray | None:
        """:return: A goal, or None for the env's own"""
        sampler, space = self._sampler, self._goal_space
        if isinstance(sampler, np.ndarray):
            return sampler[self._rng.integers(len(sampler))].copy()
        if isinstance(sampler, DictReplayBuffer):
            if sampler.size() == 0:
                return None
            step, env = self._rng.integers(sampler.size()), self._rng.integers(sampler.n_envs)
            goal: Any = np.array(sampler.observations["achieved_goal"][step, env])
        elif sampler is None:
            return None
        else:
            goal = sampler(self._rng)
        return check_within_bounds(check_goals(goal, space.shape, space.dtype, "The goal of sampler"), space, "of sampler")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[GoalObs, dict[str, Any]]:
        """
        Start an episode with a goal of the sampler.

        :param seed: Determines the start, the goal and all that follow until the next seed
        :param options: ``{"goal": goal}`` commands a goal; the rest is for the env
        :return: The first observation and info. An env that cannot be asked about a goal before its first step has no success
            in the info
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed_sequence(seed, "GoalSampler"))
        commanded = options is not None and "goal" in options
        goal = check_commanded_goal(options["goal"], self._goal_space) if commanded else self._draw()  # type: ignore[index]
        options = without_goal(options)
        self._goal = goal
        if goal is None:
            return self.env.reset(seed=seed, options=options)
        by_option = {} if self._set_goal else {"goal": goal.copy()}
        obs, info = self.env.reset(seed=seed, options={**(options or {}), **by_option} or None)
        if by_option and np.array_equal(obs["desired_goal"], goal):
            return obs, info
        (self._set_goal or _set_goal_attribute)(self.env.unwrapped, goal.copy())
        info = {key: value for key, value in info.items() if key not in _ABOUT_THE_GOAL}
        return {**obs, "desired_goal": goal.copy()}, info

    def step(self, action: Any) -> tuple[GoalObs, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the env, and make sure that it pursues the commanded goal."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._goal is not None and not np.array_equal(obs["desired_goal"], self._goal):
            if not np.allclose(obs["desired_goal"], self._goal, rtol=1e-4, atol=1e-5):  # an angle by way of its cosine
                raise ValueError(
                    f"The env pursues the goal {obs['desired_goal']}, but {self._goal} was commanded. If it takes goals in "
                    "another way, pass set_goal=function of (env, goal). If it changes goals within an episode, turn that off "
                    "(PointMaze: reset_target=False)"
                )
            obs = {**obs, "desired_goal": self._goal.copy()}
        return obs, reward, terminated, truncated, info


def _achieved_goals(dataset: Any) -> np.ndarray:
    """:return: All achieved goals of a Minari dataset, ``(n, *goal_shape)``"""
    found = []
    for episode in dataset.iterate_episodes():
        if not isinstance(episode.observations, dict) or "achieved_goal" not in episode.observations:
            raise ValueError("The Minari dataset's observations have no achieved_goal: pass the goals as an array")
        found.append(episode.observations["achieved_goal"])
    return np.concatenate(found) if found else np.array([])


def _set_goal_attribute(env: Any, goal: np.ndarray) -> None:
    """Command a goal to an env of gymnasium-robotics, of panda-gym, or another one with an attribute ``goal``."""
    holder = next(
        (one for one in (getattr(env, "task", None), env) if isinstance(getattr(one, "goal", None), np.ndarray)), None
    )
    if holder is None:
        raise TypeError(
            f'{type(env).__name__} takes no goal by reset(options={{"goal": goal}}), and has no attribute `goal` that is an '
            "array: pass set_goal=function of (env, goal)"
        )
    holder.goal = goal.astype(holder.goal.dtype)
    # The marker of the picture. Fetch draws it from `goal`.
    if hasattr(env, "update_target_site_pos"):
        env.update_target_site_pos()
    elif holder is not env and goal.shape == (3,) and hasattr(env, "sim"):
        env.sim.set_base_pose("target", goal, np.array([0.0, 0.0, 0.0, 1.0]))

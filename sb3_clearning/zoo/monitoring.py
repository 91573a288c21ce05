"""Success rate and final distance in monitor.csv and in rl-zoo3's evaluations."""

import os
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor

from sb3_clearning.common.eval_callback import GoalEvalCallback
from sb3_clearning.goal_spaces import goal_distance


class GoalInfo(gym.Wrapper):
    """Adds ``distance`` to the info of every step of a goal env, and ``is_success`` where the simulator says ``success``."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """:return: The first observation and its info"""
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, self._complete(obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """:return: The env's step, with the added info"""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, self._complete(obs, info)

    @staticmethod
    def _complete(obs: dict[str, np.ndarray], info: dict[str, Any]) -> dict[str, Any]:
        if "distance" not in info:
            info["distance"] = float(goal_distance(obs["achieved_goal"][None], obs["desired_goal"][None])[0])
        if "is_success" not in info and "success" in info:
            info["is_success"] = info["success"]
        return info


class InsideMonitor:
    """
    Applies the wrappers of a configuration, and :class:`GoalInfo`, inside the Monitor that SB3 puts around the bare env. A
    wrapper such as GoalFromObservation makes the rewards, which are what evaluations and studies have to see.
    """

    def __init__(self, wrapper: Callable[[gym.Env], gym.Env] | None):
        self.wrapper = wrapper

    def __call__(self, monitor: Monitor) -> Monitor:
        """:return: The same Monitor, around the wrapped env"""
        monitor.env = GoalInfo(monitor.env if self.wrapper is None else self.wrapper(monitor.env))
        return monitor


def goal_evaluation(callback: EvalCallback) -> GoalEvalCallback:
    """:return: The same evaluation, which must not have started, with distances, and with the best model by success"""
    return GoalEvalCallback(
        callback.eval_env,
        eval_freq=callback.eval_freq,
        n_eval_episodes=callback.n_eval_episodes,
        log_path=None if callback.log_path is None else os.path.dirname(callback.log_path),
        best_model_save_path=callback.best_model_save_path,
        callback_on_new_best=callback.callback_on_new_best,
        callback_after_eval=callback.callback,
        verbose=callback.verbose,
    )

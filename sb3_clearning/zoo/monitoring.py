"""Success rate and final distance in monitor.csv and in rl-zoo3's evaluations."""

import os
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor

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


class GoalEvalCallback(EvalCallback):
    """
    SB3's evaluation with two more measures: the final distances (``distances`` in evaluations.npz, ``eval/final_distance`` in
    the logs), and whether an episode had success after any step (``successes_any_time``, ``eval/success_any_time``).
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        self._distances: list[float] = []
        self._any_time: list[bool] = []
        self._reached: dict[int, bool] = {}  # per env, in the current episode
        self.evaluations_distances: list[list[float]] = []
        self.evaluations_any_time: list[list[bool]] = []

    @classmethod
    def from_eval_callback(cls, callback: EvalCallback) -> "GoalEvalCallback":
        """:return: The same evaluation, which must not have started, with our measures"""
        return cls(
            callback.eval_env,
            callback_on_new_best=callback.callback_on_new_best,
            callback_after_eval=callback.callback,
            n_eval_episodes=callback.n_eval_episodes,
            eval_freq=callback.eval_freq,
            log_path=None if callback.log_path is None else os.path.dirname(callback.log_path),
            best_model_save_path=callback.best_model_save_path,
            deterministic=callback.deterministic,
            render=callback.render,
            verbose=callback.verbose,
            warn=callback.warn,
        )

    def _log_success_callback(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        super()._log_success_callback(locals_, globals_)
        info, index = locals_["info"], locals_["i"]
        if "is_success" in info:
            self._reached[index] = self._reached.get(index, False) or bool(info["is_success"])
        if not locals_["done"]:
            return
        # Running means: SB3 dumps the log before `_on_step` returns, with the value of the last episode.
        if index in self._reached:
            self._any_time.append(self._reached.pop(index))
            self.logger.record("eval/success_any_time", float(np.mean(self._any_time)))
        if "distance" in info:
            self._distances.append(float(info["distance"]))
            self.logger.record("eval/final_distance", float(np.mean(self._distances)))

    def _on_step(self) -> bool:
        evaluates = self.eval_freq > 0 and self.n_calls % self.eval_freq == 0
        self._distances, self._any_time, self._reached = [], [], {}
        keep_training = super()._on_step()
        if evaluates and self._distances:
            if self.verbose >= 1:
                print(f"Final distance: {np.mean(self._distances):.4f}")
            self._save_measured()
        return keep_training

    def _save_measured(self) -> None:
        self.evaluations_distances.append(self._distances)
        if self._any_time:
            self.evaluations_any_time.append(self._any_time)
        if self.log_path is not None:
            path = f"{self.log_path}.npz"
            with np.load(path) as saved:
                arrays = dict(saved)
            if self.evaluations_any_time:
                arrays["successes_any_time"] = np.array(self.evaluations_any_time)
            np.savez(path, **arrays, distances=self.evaluations_distances)

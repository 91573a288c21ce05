"""Success rate and final distance, for monitor.csv and for the evaluations of rl-zoo3's plots."""

import os
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import EvalCallback

from sb3_clearning.goal_spaces import goal_distance


class GoalInfo(gym.Wrapper):
    """
    Gives the info of every step of a goal env a ``distance`` and, as ``is_success``, what its simulator may call ``success``.

    :param env: a goal env
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """
        :param seed: for the env
        :param options: for the env
        :return: the env's observation, and its info with ours
        """
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, self._complete(obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """
        :param action: for the env
        :return: what the env returned, with our info
        """
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, self._complete(obs, info)

    @staticmethod
    def _complete(obs: dict[str, np.ndarray], info: dict[str, Any]) -> dict[str, Any]:
        if "distance" not in info:
            info["distance"] = float(goal_distance(obs["achieved_goal"][None], obs["desired_goal"][None])[0])
        if "is_success" not in info and "success" in info:
            info["is_success"] = info["success"]
        return info


class GoalColumns(tuple[str, ...]):
    """The info keywords of a Monitor for one of our algorithms: they mark the envs that :class:`GoalEnvMaker` has to make."""


class GoalEnvMaker:
    """
    Makes an env with its wrappers and our info, so that the Monitor that goes around it sees goals, their rewards and infos.

    :param make: makes the bare env
    :param wrapper_class: wraps it, or None
    """

    def __init__(self, make: Callable[..., gym.Env], wrapper_class: Callable[[gym.Env], gym.Env] | None):
        self.make = make
        self.wrapper_class = wrapper_class

    def __call__(self, **kwargs: Any) -> gym.Env:
        """
        :param kwargs: for the env
        :return: the env
        """
        env = self.make(**kwargs)
        return GoalInfo(env if self.wrapper_class is None else self.wrapper_class(env))


class GoalEvalCallback(EvalCallback):
    """
    SB3's evaluation with two more measures. The final distances: ``distances`` in evaluations.npz, ``eval/final_distance`` in
    the logs. Whether an episode had success after any of its steps: ``successes_any_time`` and ``eval/success_any_time``.

    :param arguments: EvalCallback's arguments
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        self._distances: list[float] = []
        self._any_time: list[bool] = []
        self._reached: dict[int, bool] = {}  # by the env's index, in the episode so far
        self.evaluations_distances: list[list[float]] = []
        self.evaluations_any_time: list[list[bool]] = []

    @classmethod
    def in_place_of(cls, callback: EvalCallback) -> "GoalEvalCallback":
        """
        :param callback: an evaluation that has not begun
        :return: the same evaluation, with distances
        """
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
        # The means so far: SB3 writes the log before `_on_step` returns, and what counts is the value at the last episode.
        if index in self._reached:
            self._any_time.append(self._reached.pop(index))
            self.logger.record("eval/success_any_time", float(np.mean(self._any_time)))
        if "distance" in info:
            self._distances.append(float(info["distance"]))
            self.logger.record("eval/final_distance", float(np.mean(self._distances)))

    def _on_step(self) -> bool:
        evaluates = self.eval_freq > 0 and self.n_calls % self.eval_freq == 0
        self._distances, self._any_time, self._reached = [], [], {}
        go_on = super()._on_step()
        if evaluates and self._distances:
            if self.verbose >= 1:
                print(f"Final distance: {np.mean(self._distances):.4f}")
            self._save_measured()
        return go_on

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

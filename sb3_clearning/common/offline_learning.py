"""Learning from the replay buffer alone, without steps in the environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback, ProgressBarCallback
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from sb3_clearning.checks import check_callback, check_number, check_steps
from sb3_clearning.runs.model_state import check_finite_weights
from sb3_clearning.runs.resumable_td3 import ResumableTD3
from sb3_clearning.runs.vec_normalize import normalized_keys


class OfflineProgressBar(ProgressBarCallback):
    """A progress bar over gradient steps."""

    def _on_step(self) -> bool:
        self.pbar.update(1)
        return True


class SpacesOnly(VecEnv):
    """Spaces where SB3 asks for environments. Its state is zero, and it takes no step."""

    def reset(self) -> dict[str, np.ndarray]:
        """:return: Zeros"""
        assert isinstance(self.observation_space, spaces.Dict)
        return {key: np.zeros((1, *(space.shape or ())), space.dtype) for key, space in self.observation_space.items()}

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """:return: None: there is no environment to ask"""
        return [None]

    def step_async(self, actions: np.ndarray) -> None:
        """No steps are taken offline."""
        raise NotImplementedError()

    step_wait = set_attr = env_method = env_is_wrapped = step_async  # type: ignore[assignment]

    def close(self) -> None:
        """Nothing is open."""


class OfflineLearning(ResumableTD3):
    """The part of :class:`GoalAlgorithm` that learns offline."""

    def learn_offline(
        self,
        gradient_steps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1000,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """
        Learn from the replay buffer alone, without a step in the environment. Steps are gradient steps: callbacks are called
        after each, and learning rate schedules run over them. Afterwards ``learning_starts`` is 0: a ``learn`` that follows
        begins with the learned policy, not with random actions.

        :param log_interval: The number of gradient steps between two logs
        :param tb_log_name: The name of the run for TensorBoard, the algorithm's by default
        :param reset_num_timesteps: Whether the step counter restarts at 0
        :return: The model
        """
        gradient_steps = check_steps("gradient_steps", gradient_steps)
        check_number("log_interval", log_interval, 1, whole=True)
        check_callback(callback)
        if self.replay_buffer.size() == 0:
            raise ValueError(
                "The replay buffer is empty: fill it before `learn_offline`, with `model.replay_buffer.load_dataset(dataset)` "
                "or `model.load_replay_buffer(path)`."
            )
        self._remember_normalization()
        with self._session.call(self, offline=True), self._stand_in_env():
            if progress_bar:
                own = callback if isinstance(callback, list) else [callback]
                converted = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in own]
                callback = [*converted, OfflineProgressBar()]
            total, running = self._setup_learn(
                gradient_steps, callback, reset_num_timesteps, tb_log_name or f"{type(self).__name__}_offline"
            )
            self._fit_normalization()
            running.on_training_start({**locals(), "total_timesteps": total}, globals())
            while self.num_timesteps < total:
                self._update_current_progress_remaining(self.num_timesteps, total)
                self.train(gradient_steps=1, batch_size=self.batch_size)
                self.num_timesteps += 1
                self.n_offline_updates += 1
                running.update_locals(locals())
                if not running.on_step():
                    break
                if self.num_timesteps % log_interval == 0:
                    self.dump_logs()
            check_finite_weights(self)  # no action has shown it, and perhaps no log
            self.learning_starts = 0
            running.on_training_end()
            return self

    @contextmanager
    def _stand_in_env(self) -> Iterator[None]:
        """SB3's setup resets the environment. A model without one gets a stand-in while it learns offline."""
        if self.env is not None:
            yield
            return
        self.env = SpacesOnly(1, self.observation_space, self.action_space)
        try:
            yield
        finally:
            self.env = self._last_obs = None

    def _fit_normalization(self) -> None:
        """
        A VecNormalize learns from steps, and no step is taken. One that has seen only a reset gets its statistics from the
        buffer. Goals are states: commanded ones get those of the achieved ones.
        """
        env = self._vec_normalize_env
        if env is None or not env.training:
            return
        for key in normalized_keys(env):
            statistics = env.obs_rms[key]
            if statistics.count < env.num_envs + 1:
                source = "achieved_goal" if key == "desired_goal" else key
                states = self.replay_buffer.observations[source][: self.replay_buffer.size()]
                env.obs_rms[key] = RunningMeanStd(shape=statistics.mean.shape)
                env.obs_rms[key].update(states.reshape(-1, *statistics.mean.shape))

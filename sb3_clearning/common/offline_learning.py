"""Learning from the replay buffer alone, without steps in the environment."""

from typing import TypeVar

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback, ProgressBarCallback
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.type_aliases import MaybeCallback

from sb3_clearning.checks import check_callback, check_number, check_steps
from sb3_clearning.runs.model_state import check_finite_weights
from sb3_clearning.runs.snapshot import RunState, normalized_keys

SelfOfflineLearning = TypeVar("SelfOfflineLearning", bound="OfflineLearning")


class OfflineProgressBar(ProgressBarCallback):
    """A progress bar over gradient steps."""

    def _on_step(self) -> bool:
        self.pbar.update(1)
        return True


def _with_callback(callback: MaybeCallback, added: BaseCallback) -> CallbackList:
    """:return: The user's callbacks, if any, and one more"""
    if callback is None:
        own: list[BaseCallback] = []
    elif isinstance(callback, BaseCallback):
        own = [callback]
    else:
        own = callback if isinstance(callback, list) else [ConvertCallback(callback)]
    return CallbackList([*own, added])


class OfflineLearning(RunState):
    """The part of :class:`GoalAlgorithm` that learns offline."""

    def learn_offline(
        self: SelfOfflineLearning,
        gradient_steps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1000,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfOfflineLearning:
        """
        Learn from the replay buffer alone, without a step in the environment. Steps are gradient steps: callbacks are called
        after each, and learning rate schedules run over them.

        :param gradient_steps: The number of gradient steps
        :param callback: Callback(s) called after every gradient step
        :param log_interval: The number of gradient steps between two logs
        :param tb_log_name: The name of the run for TensorBoard, the algorithm's by default
        :param reset_num_timesteps: Whether the step counter restarts at 0
        :param progress_bar: Whether to show a progress bar
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
        if self.env is None:
            raise ValueError(
                "The model has no environment, and needs its spaces: pass `env` to `load`, or call `model.set_env(env)` "
                "first. No step is taken in it."
            )
        with self._session.call(self, offline=True):
            if progress_bar:
                callback = _with_callback(callback, OfflineProgressBar())
            total, running = self._setup_learn(
                gradient_steps, callback, reset_num_timesteps, tb_log_name or f"{type(self).__name__}_offline"
            )
            self._fit_normalization()
            running.on_training_start({**locals(), "total_timesteps": total}, globals())
            while self.num_timesteps < total:
                self._update_current_progress_remaining(self.num_timesteps, total)
                self.train(gradient_steps=1, batch_size=self.batch_size)
                self.num_timesteps += 1
                running.update_locals(locals())
                if not running.on_step():
                    break
                if self.num_timesteps % log_interval == 0:
                    self.dump_logs()
            check_finite_weights(self)  # no action has shown it, and perhaps no log
            running.on_training_end()
            return self

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

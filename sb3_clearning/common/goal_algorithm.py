"""What C-learning and the Q-learning baselines share: a TD3 for goal environments that reads no reward."""

import math
import pathlib
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch as th
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback

from sb3_clearning.checks import check_callback, check_number, check_steps
from sb3_clearning.common.arguments import constructor_arguments
from sb3_clearning.common.collecting import GoalCollecting
from sb3_clearning.common.distances import DistanceTracker
from sb3_clearning.common.fast_update import PlainUpdate
from sb3_clearning.common.input_scaling import fit_extractors, is_due
from sb3_clearning.common.metrics import TensorMeans
from sb3_clearning.common.noise import PinkUniformActions
from sb3_clearning.common.offline_learning import OfflineLearning
from sb3_clearning.common.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.goal_spaces import check_action_space, check_goal_space
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer
from sb3_clearning.runs.model_files import ModelFiles
from sb3_clearning.runs.session import LearnCall, RunSession
from sb3_clearning.runs.snapshot import normalized_keys

SelfGoalAlgorithm = TypeVar("SelfGoalAlgorithm", bound="GoalAlgorithm")

#: The logs are averaged over every so many updates: measuring costs a few per cent of an update.
MEASURE_EVERY = 10

#: Transitions that are sampled at once at the most, if several gradient steps follow each other.
SAMPLE_AHEAD = 8192


class GoalAlgorithm(GoalCollecting, OfflineLearning, ModelFiles):
    """
    A TD3 for goal environments, with exploration by default, a :class:`GoalReplayBuffer`, the distances to the goal in its
    logs and training on offline data. Subclasses say how the goals are relabelled and what an update is.

    :param policy: The policy model to use ("MultiInputPolicy")
    :param env: The goal environment to learn from (if registered in Gymnasium, can be str)
    :param action_noise: The noise added to actions: "auto" (pink, none for a stochastic actor), "gaussian", "pink", None,
        or an ActionNoise
    :param noise_std: The standard deviation of the "gaussian" or "pink" noise, for actions within [-1, 1]
    :param warmup_noise: The random actions before ``learning_starts``: "uniform", or "pink" (uniform and temporally
        correlated)
    :param pre_tanh_penalty: The actor's loss has this times the mean square of what its tanh is taken of, so that actions at
        their bounds keep a gradient
    :param td3_arguments: TD3's other arguments
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MultiInputPolicy": CLearningPolicy}
    policy: CLearningPolicy
    critic: ClassifierCritic  # type: ignore[assignment]
    critic_target: ClassifierCritic  # type: ignore[assignment]
    replay_buffer: GoalReplayBuffer
    n_steps: float  # type: ignore[assignment]  # float("inf") is allowed
    #: Whether the update reads the batches' returns.
    _needs_returns: ClassVar[bool] = False

    def __init__(
        self,
        policy: str | type[CLearningPolicy],
        env: GymEnv | str | None,
        action_noise: ActionNoise | str | None = "auto",
        noise_std: float = 0.3,
        warmup_noise: str = "pink",
        pre_tanh_penalty: float = 1e-3,
        _init_setup_model: bool = True,
        **td3_arguments: Any,
    ):
        if env is not None:  # load() passes None
            env = maybe_make_env(env, td3_arguments.get("verbose", 0))
            # Before SB3's own checks: these errors say what to do.
            check_goal_space(env.observation_space)
            check_action_space(env.action_space)
        if policy in ("MlpPolicy", "CnnPolicy"):
            raise ValueError(f"You must use `MultiInputPolicy` when working with a goal environment's Dict, not {policy}.")
        super().__init__(policy, env, _init_setup_model=False, **td3_arguments)  # type: ignore[arg-type]
        self.action_noise = action_noise  # type: ignore[assignment]
        self.noise_std = noise_std
        self.warmup_noise = warmup_noise
        self.pre_tanh_penalty = pre_tanh_penalty
        # States are stored once in any case, and SB3 would look for arrays that this buffer does not have.
        self.optimize_memory_usage = False
        if _init_setup_model:
            self._setup_model()

    def _check_arguments(self) -> None:
        """Raise an error for arguments that cannot work, at construction or after loading."""
        if self.n_steps != math.inf:
            check_number("n_steps", self.n_steps, 1, whole=True, hint=' (float("inf"): to the end of the recorded episode)')
        check_number("gamma", self.gamma, 0, 1, open_ends="high")
        if self.replay_buffer_class is None:
            self.replay_buffer_class = GoalReplayBuffer
        if not (isinstance(self.replay_buffer_class, type) and issubclass(self.replay_buffer_class, GoalReplayBuffer)):
            name = getattr(self.replay_buffer_class, "__name__", repr(self.replay_buffer_class))
            raise ValueError(
                f"`replay_buffer_class` must be GoalReplayBuffer or a subclass of it, not {name}: goals are relabelled "
                "without rewards. Leave the argument out."
            )
        unknown = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"} & set(self.replay_buffer_kwargs)
        if unknown:
            raise ValueError(
                f"{sorted(unknown)} in `replay_buffer_kwargs` are HerReplayBuffer's: here `lambda_` and `gamma` of CLearning, "
                "or `relabel` of GoalTD3, say how goals are relabelled. Leave them out."
            )
        if self.warmup_noise not in ("uniform", "pink"):
            raise ValueError(f'`warmup_noise` must be "uniform" or "pink", not {self.warmup_noise!r}.')
        check_number("policy_delay", self.policy_delay, 1, whole=True)
        check_number("batch_size", self.batch_size, 2, whole=True, hint=" (a positive and a random goal)")
        check_number("buffer_size", self.buffer_size, 1, whole=True)
        check_number("learning_starts", self.learning_starts, 0)
        check_number("gradient_steps", self.gradient_steps, -1, whole=True)
        check_number("tau", self.tau, 0, 1)
        check_number("target_policy_noise", self.target_policy_noise, 0)
        check_number("target_noise_clip", self.target_noise_clip, 0)
        check_number("noise_std", self.noise_std, 0, open_ends="high")
        check_number("pre_tanh_penalty", self.pre_tanh_penalty, 0, hint=" (0: none)")
        check_number("stats_window_size", self._stats_window_size, 1, whole=True)
        if not isinstance(self.tensorboard_log, (str, pathlib.Path, type(None))):
            raise ValueError(f"`tensorboard_log` must be a folder's path or None, not {self.tensorboard_log!r}.")
        if not callable(self.learning_rate):
            check_number("learning_rate", self.learning_rate, 0, open_ends="high")  # rl-zoo3 evaluates with 0
        if self.seed is not None:
            check_number("seed", self.seed, 0, 2**32 - 1, whole=True)

    def _setup_model(self) -> None:
        self._check_arguments()
        # SB3 knows n steps only from its own buffer for returns of rewards, and warns of any other.
        n_steps, self.n_steps = self.n_steps, 1
        super()._setup_model()
        self.n_steps = n_steps
        check_number("train_freq", self.train_freq.frequency, 1, whole=True)  # type: ignore[union-attr]
        self._resolve_action_noise()
        self._warmup = PinkUniformActions(self.n_envs, self.replay_buffer.action_dim)
        self._metrics = TensorMeans()
        self._distances = DistanceTracker(self.n_envs, self._stats_window_size)
        self._critic_parameters: list[th.Tensor] = list(self.critic.parameters())
        self._actor_parameters: list[th.Tensor] = list(self.actor.parameters())
        # Each once: a shared features extractor is in both, and would follow twice as fast.
        sources = [*self._critic_parameters, *self._actor_parameters]
        targets: list[th.Tensor] = [*self.critic_target.parameters(), *self.actor_target.parameters()]
        self._source_parameters = list(dict.fromkeys(sources))
        self._target_parameters = list(dict.fromkeys(targets))
        self._plain = self._make_plain()
        self._session = RunSession()

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        with self._session.begin(self, LearnCall(total_timesteps, reset_num_timesteps)) as call:
            return super()._setup_learn(call.total_timesteps, callback, call.reset_num_timesteps, tb_log_name, progress_bar)

    def dump_logs(self) -> None:
        """Write the distances to the goal, the training metrics and SB3's own log values."""
        for name, mean in self._distances.means().items():
            self.logger.record(f"rollout/distance_{name}", mean)
        self._metrics.record(self.logger)
        super().dump_logs()

    # -- training ------------------------------------------------------------------------------------------------------

    def relabelling(self) -> dict[str, float]:
        """:return: For each kind of goal its share of a batch"""
        raise NotImplementedError()

    def _update(self, batch: GoalBatch) -> None:
        """One gradient step on a batch."""
        self._update_critic(batch)
        if self._n_updates % self.policy_delay == 0:
            self._update_actor(batch)
            self._update_targets()

    def _update_critic(self, batch: GoalBatch) -> None:
        """The critics' gradient step."""
        raise NotImplementedError()

    def _update_actor(self, batch: GoalBatch) -> None:
        """The actor's gradient step."""
        raise NotImplementedError()

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """
        Sample the replay buffer and do the updates.

        :param gradient_steps: Number of updates
        :param batch_size: Size of each batch
        """
        check_number("gradient_steps", gradient_steps, 0, whole=True)
        check_number("batch_size", batch_size, 2, whole=True)
        self._prepare_training()
        n_transitions = self.replay_buffer.total_added * self.n_envs
        if is_due(self.policy, n_transitions):
            fit_extractors(self.policy, self._raw_states(), n_transitions, self.replay_buffer.n_episodes)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        ahead = max(SAMPLE_AHEAD // batch_size, 1)
        for done in range(0, gradient_steps, ahead):
            batches = self.replay_buffer.sample_goals(
                batch_size,
                self.relabelling(),
                gamma=self.gamma,
                absorbing=self._absorbing(),
                env=self._vec_normalize_env,
                n_batches=min(ahead, gradient_steps - done),
                n_steps=self.n_steps,
                returns=self._needs_returns,
            )
            for batch in batches:
                self._n_updates += 1
                self._update(batch)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _raw_states(self) -> dict[str, np.ndarray]:
        """:return: Stored states, without the keys that a VecNormalize normalizes"""
        normalized = normalized_keys(self._vec_normalize_env)
        goals = {"achieved_goal", "desired_goal"}
        if normalized & goals:
            normalized |= goals  # they are scaled alike
        return {key: values for key, values in self.replay_buffer.float_states().items() if key not in normalized}

    def _make_plain(self) -> PlainUpdate | None:
        """:return: The fast path of the update, None if there is none or if the networks are not plain"""
        return None

    def _prepare_training(self) -> None:
        """Called before the updates that follow each other."""
        if self._plain is None:
            self.policy.set_training_mode(True)  # plain networks act the same in both modes
        elif not self._plain.is_current():
            self._plain = self._make_plain()

    def _act(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        if self._plain is None or not self._plain.actor.is_current():
            return super()._act(obs)
        return self._plain.act(obs).reshape(-1, *self.action_space.shape)  # type: ignore[misc]

    def _absorbing(self) -> bool:
        return False

    def _discounts(self, batch: GoalBatch, part: slice = slice(None)) -> float | th.Tensor:
        """:return: gamma^m of a part of the batch; gamma with one step"""
        return self.gamma if batch.discounts is None else batch.discounts[part]

    def _measures(self, name: str) -> bool:
        """:return: Whether the logged metric includes this update; the first one since a log is always included"""
        return self._n_updates % MEASURE_EVERY == 0 or name not in self._metrics

    def _next_actions(self, next_obs: dict[str, th.Tensor]) -> th.Tensor:
        """:return: The actions to bootstrap from: the policy's own samples, or the target actor's with clipped noise"""
        if self.policy.stochastic_actor:
            return self.actor(next_obs)
        actions = self.actor_target(next_obs)
        noise = th.randn_like(actions).mul_(self.target_policy_noise).clamp_(-self.target_noise_clip, self.target_noise_clip)
        return (actions + noise).clamp_(-1, 1)

    def _actors_outputs(self, batch: GoalBatch) -> tuple[th.Tensor, th.Tensor]:
        """:return: The critics' outputs for the actor's actions, ``(n_critics, batch)``, and what its tanh was taken of"""
        actions, pre_tanh = self.policy.actions_and_pre_tanh(batch.observations)
        with th.no_grad():
            features = self.critic.extract_features(batch.observations, self.critic.features_extractor)
        return self.critic.logits(th.cat([features, actions], dim=1)), pre_tanh

    def _descend_actor(self, loss: th.Tensor, pre_tanh: th.Tensor) -> None:
        """A step of the actor alone: critics get no gradients, and frozen parameters none either."""
        loss = loss + self.pre_tanh_penalty * pre_tanh.square().mean()
        self.actor.optimizer.zero_grad()
        loss.backward(inputs=[parameter for parameter in self._actor_parameters if parameter.requires_grad])
        self.actor.optimizer.step()

    def _update_targets(self) -> None:
        """Polyak averaging of all targets, in one kernel."""
        with th.no_grad():
            th._foreach_lerp_(self._target_parameters, self._source_parameters, self.tau)
            # Running statistics are copied, see SB3's issue 996
            for target, source in (
                (self.critic_batch_norm_stats_target, self.critic_batch_norm_stats),
                (self.actor_batch_norm_stats_target, self.actor_batch_norm_stats),
            ):
                if target:
                    th._foreach_copy_(target, source)

    def learn(
        self: SelfGoalAlgorithm,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfGoalAlgorithm:
        """
        Collect experience in the environment and learn from it.

        :param total_timesteps: The number of environment steps
        :param callback: Callback(s) called at every step
        :param log_interval: The number of episodes between two logs
        :param tb_log_name: The name of the run for TensorBoard, the algorithm's by default
        :param reset_num_timesteps: Whether the step counter restarts at 0
        :param progress_bar: Whether to show a progress bar
        :return: The model
        """
        check_steps("total_timesteps", total_timesteps)
        check_callback(callback)
        if log_interval is not None:
            check_number("log_interval", log_interval, 0, whole=True, hint=" (0 or None: no logs)")
        with self._session.call(self, offline=False):
            return super().learn(
                total_timesteps,
                callback,
                log_interval or None,  # type: ignore[arg-type]  # SB3 divides by it
                tb_log_name or type(self).__name__,
                reset_num_timesteps,
                progress_bar,
            )

    # -- saving --------------------------------------------------------------------------------------------------------

    def constructor_arguments(self) -> dict[str, Any]:
        """:return: The arguments of the constructor as they are now, without policy and env"""
        return constructor_arguments(self)

    def _excluded_save_params(self) -> list[str]:
        own = ["_session", "_plain", "_metrics", "_distances", "_warmup"]
        own += ["_critic_parameters", "_actor_parameters", "_source_parameters", "_target_parameters"]
        return [*super()._excluded_save_params(), *own]


def split_observations(obs: dict[str, th.Tensor], part: slice) -> dict[str, th.Tensor]:
    """
    :param obs: Observations of a batch
    :param part: A part of the batch
    :return: That part of the observations
    """
    return {key: value[part] for key, value in obs.items()}

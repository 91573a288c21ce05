"""GoalAlgorithm: what CLearning and GoalTD3 share, a TD3 for goal environments that reads no reward."""

import math
import pathlib
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.checks import check_callback, check_number, check_steps
from sb3_clearning.common.arguments import argument_names, constructor_arguments
from sb3_clearning.common.distances import DistanceTracker
from sb3_clearning.common.exploration import GoalExploration
from sb3_clearning.common.fast_updater import FastUpdater
from sb3_clearning.common.input_scaling import fit_extractors, refit_is_due
from sb3_clearning.common.metrics import TensorMeans
from sb3_clearning.common.noise import PinkUniformActions
from sb3_clearning.common.offline_learning import OfflineLearning
from sb3_clearning.common.onnx_policy import onnx_bytes
from sb3_clearning.common.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.common.updater import Updater
from sb3_clearning.files.array_file import write_whole
from sb3_clearning.goal_spaces import check_action_space, check_goal_space
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer, check_samples_on_device
from sb3_clearning.runs.model_files import ModelFiles
from sb3_clearning.runs.model_state import check_finite_weights
from sb3_clearning.runs.run_session import RunSession
from sb3_clearning.runs.vec_normalize import check_normalization, check_normalization_is_outermost, normalized_keys

#: Most transitions that are sampled at once, for several gradient steps.
SAMPLE_AHEAD = 8192


class GoalAlgorithm(GoalExploration, OfflineLearning, ModelFiles):
    """
    A TD3 for goal environments: exploration by default, a :class:`GoalReplayBuffer`, distances to the goal in the logs, and
    offline training. Subclasses define the relabelling and the :class:`Updater`. The arguments are theirs.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MultiInputPolicy": CLearningPolicy}
    policy: CLearningPolicy
    critic: ClassifierCritic  # type: ignore[assignment]
    critic_target: ClassifierCritic  # type: ignore[assignment]
    replay_buffer: GoalReplayBuffer
    n_steps: float  # type: ignore[assignment]  # float("inf") is allowed
    #: Defines the update. A subclass with a custom update sets its updater here.
    updater_class: ClassVar[type[Updater]]
    #: A faster updater with the same results, used where it supports the model.
    fast_updater_class: ClassVar[type[FastUpdater]]
    _updater: Updater
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
        bc_coef: float = 0.0,
        _init_setup_model: bool = True,
        **td3_arguments: Any,
    ):
        if env is not None:  # load() passes None
            env = maybe_make_env(env, td3_arguments.get("verbose", 0))
            # Before SB3's checks, whose errors do not say what to do.
            check_goal_space(env.observation_space)
            check_action_space(env.action_space)
        if policy in ("MlpPolicy", "CnnPolicy"):
            raise ValueError(f"You must use `MultiInputPolicy` when working with a goal environment's Dict, not {policy}.")
        if isinstance(policy, type) and not issubclass(policy, CLearningPolicy):
            raise ValueError(
                f'`policy` must be "MultiInputPolicy", CLearningPolicy or a subclass of it, not {policy.__module__}.'
                f"{policy.__name__}: that one has no classifiers."
            )
        super().__init__(policy, env, _init_setup_model=False, **td3_arguments)  # type: ignore[arg-type]
        self.action_noise = action_noise  # type: ignore[assignment]
        self.noise_std = noise_std
        self.warmup_noise = warmup_noise
        self.pre_tanh_penalty = pre_tanh_penalty
        self.bc_coef = bc_coef
        # States are always stored once, and SB3 would look for arrays that this buffer does not have.
        self.optimize_memory_usage = False
        if _init_setup_model:
            self._setup_model()

    def _check_arguments(self) -> None:
        """Raise an error for invalid arguments, at construction or after loading."""
        if getattr(self, "observation_space", None) is None:
            raise ValueError("`env` is None, and so the spaces are unknown. Pass an environment, or use `load`.")
        for name, value in constructor_arguments(self).items():
            # NumPy's scalars, for example: files hold plain numbers.
            if name in vars(self) and isinstance(value, Real) and type(value) not in (bool, int, float):
                setattr(self, name, int(value) if isinstance(value, Integral) else float(value))
        if self.n_steps != math.inf:
            if isinstance(self.n_steps, float) and self.n_steps.is_integer():
                self.n_steps = int(self.n_steps)
            check_number("n_steps", self.n_steps, 1, whole=True, hint=' (float("inf"): to the end of the recorded episode)')
        check_number("gamma", self.gamma, 0, 1, open_ends="high")
        check_normalization_is_outermost(self)
        self._check_replay_buffer_arguments()
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
        check_number("bc_coef", self.bc_coef, 0, hint=" (0: no behavior cloning)")
        check_number("stats_window_size", self._stats_window_size, 1, whole=True)
        if not isinstance(self.tensorboard_log, (str, pathlib.Path, type(None))):
            raise ValueError(f"`tensorboard_log` must be a folder's path or None, not {self.tensorboard_log!r}.")
        if not callable(self.learning_rate):
            check_number("learning_rate", self.learning_rate, 0, open_ends="high")  # rl-zoo3 evaluates with 0
        if self.seed is not None:
            check_number("seed", self.seed, 0, 2**32 - 1, whole=True)

    def _check_replay_buffer_arguments(self) -> None:
        if self.replay_buffer_class is None:
            self.replay_buffer_class = GoalReplayBuffer
        if not (isinstance(self.replay_buffer_class, type) and issubclass(self.replay_buffer_class, GoalReplayBuffer)):
            name = getattr(self.replay_buffer_class, "__name__", repr(self.replay_buffer_class))
            raise ValueError(
                f"`replay_buffer_class` must be GoalReplayBuffer or a subclass of it, not {name}: goals are relabelled "
                "without rewards. Leave the argument out."
            )
        kwargs = dict(self.replay_buffer_kwargs)
        if not kwargs.pop("handle_timeout_termination", True):
            raise ValueError(
                "`handle_timeout_termination` in `replay_buffer_kwargs` must be True: a GoalReplayBuffer always distinguishes "
                "timeouts from terminations."
            )
        self.replay_buffer_kwargs = kwargs
        unknown = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"} & set(kwargs)
        if unknown:
            raise ValueError(
                f"{sorted(unknown)} in `replay_buffer_kwargs` are HerReplayBuffer's: here `lambda_` and `gamma` of CLearning, "
                "or `relabel` of GoalTD3, say how goals are relabelled. Leave them out."
            )
        if kwargs.get("buffer_device") is not None:
            check_samples_on_device(self._vec_normalize_env is not None, self._needs_returns and self.n_steps > 1)

    def _check_not_from(self, algorithm: str, arguments: set[str]) -> None:
        """Raise an error if the model was loaded from a file of another algorithm, which has other arguments."""
        if arguments <= vars(self).keys():
            raise ValueError(f"The file was saved by {algorithm}: load it with `{algorithm}.load`.")

    def _setup_model(self) -> None:
        self._check_arguments()
        # SB3 knows n steps only from its buffer for returns of rewards, and warns about any other.
        n_steps, self.n_steps = self.n_steps, 1
        super()._setup_model()
        self.n_steps = n_steps
        check_number("train_freq", self.train_freq.frequency, 1, whole=True)  # type: ignore[union-attr]
        self._resolve_action_noise()
        self._warmup = PinkUniformActions(self.n_envs, self.replay_buffer.action_dim)
        self._metrics = TensorMeans()
        self._distances = DistanceTracker(self.n_envs, self._stats_window_size)
        fast = self.fast_updater_class.try_build(self, self._metrics)
        self._updater = fast or self.updater_class(self, self._metrics)
        self._session = RunSession()

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        self._vectorize_noise()
        with self._session.begin(self, total_timesteps, reset_num_timesteps) as (total, reset):
            return super()._setup_learn(total, callback, reset, tb_log_name, progress_bar)

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

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """Sample the replay buffer and do the updates."""
        check_number("gradient_steps", gradient_steps, 0, whole=True)
        check_number("batch_size", batch_size, 2, whole=True)
        updater = self._updater.select()
        n_transitions = self.replay_buffer.total_added * self.n_envs
        if refit_is_due(self.policy, n_transitions):
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
                updater.update(batch, self._n_updates)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _raw_states(self) -> dict[str, np.ndarray]:
        """:return: Stored states, without the keys that a VecNormalize normalizes"""
        normalized = normalized_keys(self._vec_normalize_env)
        goals = {"achieved_goal", "desired_goal"}
        if normalized & goals:
            normalized |= goals  # they are scaled alike
        return {key: values for key, values in self.replay_buffer.float_states().items() if key not in normalized}

    def _act(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        actions = self._updater.act(obs)
        return super()._act(obs) if actions is None else actions.reshape(-1, *self.action_space.shape)  # type: ignore[misc]

    def _absorbing(self) -> bool:
        return False

    @property
    def cloning_weight(self) -> float:
        """
        Offline it is ``bc_coef``. Online, the share of updates that were offline is left of it: without any cloning the actor
        leaves the data at once, before the environment has corrected the critics.

        :return: The weight of behavior cloning in the actor's loss
        """
        if self._session.offline:
            return self.bc_coef
        return self.bc_coef * self.n_offline_updates / max(self._n_updates, 1)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """
        Collect experience in the environment and learn from it.

        :param log_interval: The number of episodes between two logs. Episodes of more than 1,000 steps are also logged after
            every 1,000 of them, whether they end or not; None: no logs
        :param tb_log_name: The name of the run for TensorBoard, the algorithm's by default
        :param reset_num_timesteps: Whether the step counter restarts at 0
        :return: The model
        """
        total_timesteps = check_steps("total_timesteps", total_timesteps)
        check_callback(callback)
        if self.env is None:
            raise ValueError("The model has no environment: call `model.set_env(env)` before `learn`, or use `learn_offline`.")
        if log_interval is not None:
            check_number("log_interval", log_interval, 0, whole=True, hint=" (0 or None: no logs)")
        self._distances.logs_pieces = bool(log_interval)
        self._remember_normalization()
        with self._session.call(self, offline=False):
            return super().learn(
                total_timesteps,
                callback,
                log_interval or None,  # type: ignore[arg-type]  # SB3 divides by it
                tb_log_name or type(self).__name__,
                reset_num_timesteps,
                progress_bar,
            )

    def export_policy(self, path: str | pathlib.Path, vec_normalize: VecNormalize | None = None) -> None:
        """
        Write the policy as one ONNX file: raw observations in, actions in the environment's units out. A robot needs
        onnxruntime to run it, and nothing of this package. The file is compared with :meth:`predict` before it is written.

        :param path: The file, usually ``….onnx``; it is written atomically
        :param vec_normalize: The VecNormalize that observations were normalized with, if the model has no environment;
            by default that of the model's environment
        """
        if not isinstance(path, (str, pathlib.Path)) or not str(path):
            raise ValueError(f"`path` must be a file's path such as 'policy.onnx', not {path!r}.")
        path = pathlib.Path(path)
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"`path` must be a file in a folder that exists, not {str(path)!r}.")
        if vec_normalize is not None and not isinstance(vec_normalize, VecNormalize):
            raise ValueError(f"`vec_normalize` must be a VecNormalize or None, not {type(vec_normalize).__name__}.")
        vec_normalize = vec_normalize or self.get_vec_normalize_env()
        check_normalization(self, vec_normalize)
        check_finite_weights(self)
        write_whole(path, onnx_bytes(self, vec_normalize))

    @classmethod
    def argument_names(cls) -> list[str]:
        """:return: The names of the constructor's arguments, without policy and env"""
        return argument_names(cls)

    def constructor_arguments(self) -> dict[str, Any]:
        """:return: The arguments of the constructor as they are now, without policy and env"""
        return constructor_arguments(self)

    def _excluded_save_params(self) -> list[str]:
        own = ["_session", "_updater", "_metrics", "_distances", "_warmup"]
        return [*super()._excluded_save_params(), *own]

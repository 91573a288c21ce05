"""
The state of a run between two steps, beyond the model and its buffer: counters, random states, noises, the normalization, the
logs, and the environments.

An environment cannot be saved in general. So a run with checkpoints resets the environments at each of them, with a seed that
is in the checkpoint; a resumed run resets them with the same seed and so reproduces their state. A checkpoint between two
such resets holds the actions since the last one, and a resumed run replays them.
"""

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from stable_baselines3 import TD3

from sb3_clearning.checks import check_observations
from sb3_clearning.files.array_file import UnreadableFileError, under_prefix
from sb3_clearning.files.json_values import are_numbers, is_count
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer
from sb3_clearning.runs.checkpoint_folder import Checkpoint
from sb3_clearning.runs.random_states import restore_random_states, snapshot_random_states
from sb3_clearning.runs.run_session import EpisodeLog, RunSession
from sb3_clearning.runs.vec_normalize import (
    changed_normalization,
    normalized_keys,
    restore_normalization,
    snapshot_normalization,
)

if TYPE_CHECKING:
    from sb3_clearning.common.distances import DistanceTracker
    from sb3_clearning.common.metrics import TensorMeans
    from sb3_clearning.common.noise import ModelNoises
    from sb3_clearning.common.policies import CLearningPolicy

_OBS = ("last_obs", "last_original_obs")
_COUNTERS = ("num_timesteps", "_episode_num", "_n_updates", "_total_timesteps")
#: Counters that a checkpoint holds only if they are not 0: earlier versions do not know them.
_MORE_COUNTERS = ("n_offline_updates",)


class ResumableTD3(TD3):
    """Base class of :class:`GoalAlgorithm`: saves and restores everything but weights and buffer."""

    policy: "CLearningPolicy"
    replay_buffer: GoalReplayBuffer
    _session: RunSession
    _distances: "DistanceTracker"
    _metrics: "TensorMeans"
    #: How many of the updates were made by ``learn_offline``. Saved with the model.
    n_offline_updates: int = 0
    #: Whether a VecNormalize normalized the observations of the last training. Saved with the model.
    learned_normalized: bool = False

    @property
    def session(self) -> RunSession:
        """:return: The session that manages this run"""
        return self._session

    @property
    def progress(self) -> tuple[int, int]:
        """:return: The numbers of steps and of updates"""
        return self.num_timesteps, self._n_updates

    @property
    def needs_reset(self) -> bool:
        """:return: Whether the environments have to be reset before the next step"""
        return self._last_obs is None

    @classmethod
    def argument_names(cls) -> list[str]:
        """:return: The names of the constructor's arguments, without policy and env"""
        raise NotImplementedError

    def constructor_arguments(self) -> dict[str, Any]:
        """:return: The arguments of the constructor as they are now, without policy and env"""
        raise NotImplementedError

    def noises(self) -> "ModelNoises":
        """:return: The noises of exploration"""
        raise NotImplementedError

    # -- episodes ----------------------------------------------------------------------------------------------------------

    def _remember_normalization(self) -> None:
        """Note whether this training normalizes observations. Warn if earlier updates did otherwise."""
        wrong = changed_normalization(self.learned_normalized, self._vec_normalize_env) if self._n_updates > 0 else None
        if wrong:
            warnings.warn(f"The model {wrong} As it is, the networks see other numbers than before.", stacklevel=3)
        self.learned_normalized = bool(normalized_keys(self._vec_normalize_env))

    def end_episodes(self) -> None:
        """Truncate the episodes in progress: the environments are about to be reset."""
        self.replay_buffer.truncate_last_trajectory()
        self._distances.restart()

    def leave_environments(self) -> None:
        """Let others reset the environments, between two calls of ``learn``. The next one begins with a reset."""
        if self._session.collecting:
            raise ValueError("`env` is in use for training, and an evaluation would cut its episodes: make another one.")
        self.end_episodes()
        self._last_obs = None

    def begin_episodes(self, seed: int, reset: bool = True) -> None:
        """Truncate the episodes in progress and begin new ones. Without ``reset`` only a run resumed from here resets them."""
        self.end_episodes()
        self.noises().reset()
        self._session.episodes = EpisodeLog(seed)
        self._last_obs = None
        if reset:
            self._reset_envs(seed)
            self.check_last_observations()

    def _reset_envs(self, seed: int) -> None:
        assert self.env is not None
        self.env.seed(seed)
        self._observe(self.env.reset())

    def _observe(self, obs: Any) -> None:
        self._last_obs = obs
        if self._vec_normalize_env is not None:
            self._last_original_obs = self._vec_normalize_env.get_original_obs()

    def _raw_observations(self) -> dict[str, np.ndarray]:
        """:return: The last observations before normalization. VecNormalize may clip inf, but the buffer gets these"""
        obs = self._last_obs if self._vec_normalize_env is None else self._last_original_obs
        assert isinstance(obs, dict)
        return obs

    def check_last_observations(self) -> None:
        """Raise an error for NaN or inf in the environments' last observations."""
        check_observations(self._raw_observations())

    def replay_environments(self, checkpoint: Checkpoint) -> bool:
        """Bring the environments back by the same seed and actions. Return whether that worked; if not, new episodes begin."""
        assert self.env is not None
        seed, arrays, normalize = checkpoint.content["seed"], checkpoint.arrays, self._vec_normalize_env
        expected = {name: {key: value.copy() for key, value in under_prefix(arrays, f"{name}/").items()} for name in _OBS}
        if normalize is not None and not expected["last_obs"]:
            restore_normalization(normalize, arrays)  # the reset updates the statistics
        self._reset_envs(seed)
        self._session.episodes = EpisodeLog(seed, arrays.get("replay", ()))
        for action in self._session.episodes.actions:
            self._observe(self.env.step(action.copy())[0])
        if not expected["last_obs"]:
            return True
        found = self._raw_observations()
        wanted = expected["last_obs" if normalize is None else "last_original_obs"]
        if normalize is not None:
            restore_normalization(normalize, arrays)
        if found.keys() == wanted.keys() and all(np.array_equal(found[key], wanted[key]) for key in found):
            self._last_obs = expected["last_obs"]
            return True
        warnings.warn(
            "The environment could not be restored: after `reset(seed=…)` and the same actions its observations differ, so "
            "the seed does not govern its randomness. The run continues with new episodes, but not to the same weights as an "
            "uninterrupted one.",
            stacklevel=2,
        )
        self.begin_episodes(seed)
        return False

    # -- snapshot ----------------------------------------------------------------------------------------------------------

    def snapshot_run(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """:return: The JSON part of the run's state, and its arrays"""
        random, arrays = snapshot_random_states(self.action_space)
        distances, distance_arrays = self._distances.snapshot()
        arrays.update(distance_arrays)
        infos = [
            {key: float(value) for key, value in info.items() if isinstance(value, (int, float, np.number))}
            for info in self.ep_info_buffer or ()
        ]
        content: dict[str, Any] = {
            "online": not self._session.offline,
            "counters": {
                **{name: getattr(self, name) for name in _COUNTERS},
                **{name: getattr(self, name) for name in _MORE_COUNTERS if getattr(self, name)},
                "_call_started_at": self._session.call_started_at,
            },
            "random": random,
            "logs": {
                "episodes": [{key: value for key, value in info.items() if np.isfinite(value)} for info in infos],
                "successes": [float(success) for success in self.ep_success_buffer or ()],
                "distances": distances,
                "metrics": self._metrics.snapshot(),
            },
            "noise": {},
            "seed": None,
        }
        if content["online"]:
            episodes = self._session.episodes
            assert episodes is not None
            content["seed"] = episodes.seed
            if episodes.actions:
                arrays["replay"] = np.stack(episodes.actions)
            for name, obs in (("last_obs", self._last_obs), ("last_original_obs", self._last_original_obs)):
                if isinstance(obs, dict) and self._last_obs is not None:
                    arrays.update({f"{name}/{key}": np.asarray(value) for key, value in obs.items()})
            content["noise"] = self.noises().snapshot(arrays)
        if self._vec_normalize_env is not None:
            arrays.update(snapshot_normalization(self._vec_normalize_env))
        return content, arrays

    def restore_run(self, checkpoint: Checkpoint) -> None:
        """Restore counters, logs and the normalization. The rest is checked, and restored when learning starts."""
        content, arrays = checkpoint.content, checkpoint.arrays
        online, seed, counters, logs = (content[name] for name in ("online", "seed", "counters", "logs"))
        if type(online) is not bool or not (is_count(seed, 2**32) if online else seed is None):
            raise UnreadableFileError(f"Invalid environment seed in checkpoint: {str(seed)[:50]}.")
        if not isinstance(content["noise"], dict) or not isinstance(content["random"], dict):
            raise UnreadableFileError("The states of noises or random generators are missing in the checkpoint.")
        self._check_environments(arrays)
        names = {*_COUNTERS, "_call_started_at"}
        if set(counters) - set(_MORE_COUNTERS) != names or not all(is_count(value, 2**62) for value in counters.values()):
            raise UnreadableFileError(f"Invalid counters in checkpoint: {str(counters)[:200]}.")
        infos, successes = logs["episodes"], logs["successes"]
        if not are_numbers(successes) or not all(are_numbers(info.values()) and {"r", "l"} <= set(info) for info in infos):
            raise UnreadableFileError("Invalid logs of episodes in checkpoint.")
        for name in (*_COUNTERS, *_MORE_COUNTERS):
            setattr(self, name, counters.get(name, 0))
        self._session.call_started_at = counters["_call_started_at"]
        self.ep_info_buffer = deque(infos, maxlen=self._stats_window_size)
        self.ep_success_buffer = deque(successes, maxlen=self._stats_window_size)
        self._distances.restore(logs["distances"], arrays)
        self._metrics.restore(logs["metrics"], self.device)
        if self._vec_normalize_env is not None:
            restore_normalization(self._vec_normalize_env, arrays)

    def _check_environments(self, arrays: dict[str, np.ndarray]) -> None:
        """Raise an error unless the actions to replay and the last observations are of this model's spaces."""
        assert self.action_space.shape is not None
        assert isinstance(self.observation_space, spaces.Dict)
        replay, shape = arrays.get("replay"), (self.n_envs, *self.action_space.shape)
        if replay is not None and (replay.shape[1:] != shape or replay.dtype.kind != "f" or not np.isfinite(replay).all()):
            raise UnreadableFileError("The checkpoint's actions since the last reset do not fit the action space.")
        shapes = {key: (self.n_envs, *(space.shape or ())) for key, space in self.observation_space.items()}
        for name in _OBS:
            found = {key: array.shape for key, array in under_prefix(arrays, f"{name}/").items()}
            if found and found != shapes:
                raise UnreadableFileError("The checkpoint's last observations do not fit the observation space.")

    def restore_generators(self, checkpoint: Checkpoint, noises: bool) -> None:
        """:param noises: Whether to restore the noises, too; else new episodes have begun"""
        if noises:
            self.noises().restore(checkpoint.content["noise"], checkpoint.arrays)
        restore_random_states(self.action_space, checkpoint.content["random"], checkpoint.arrays)

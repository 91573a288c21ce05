"""Acting in the environment and storing its steps."""

import itertools
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise, VectorizedActionNoise
from stable_baselines3.common.type_aliases import RolloutReturn, TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.utils import should_collect_more_steps
from stable_baselines3.common.vec_env import VecEnv

from sb3_clearning.checks import check_finite, check_observations
from sb3_clearning.common.noise import ModelNoises, PinkUniformActions, named_noise, noise_argument, vectorized_noise
from sb3_clearning.common.policies import CLearningPolicy
from sb3_clearning.false_ends import ends_are_false, equal_rows
from sb3_clearning.goal_spaces import goal_distance
from sb3_clearning.runs.model_state import DivergedError
from sb3_clearning.runs.resumable_td3 import ResumableTD3


class GoalExploration(ResumableTD3):
    """The part of :class:`GoalAlgorithm` that explores."""

    policy: CLearningPolicy
    noise_std: float
    warmup_noise: str
    _warmup: PinkUniformActions

    def _resolve_action_noise(self) -> None:
        """Make the named noise. After loading, too: ``noise_std`` may have been replaced."""
        name = noise_argument(self.action_noise)
        if isinstance(name, VectorizedActionNoise) and name.n_envs != self.n_envs:
            # Saved with another number of environments. `_vectorize_noise` does it again.
            self.action_noise = name.base_noise
        elif name == "auto":
            name = None if self.policy.stochastic_actor else "pink"
        if name is None:
            self.action_noise = None
        elif isinstance(name, str) and name in ("gaussian", "pink"):
            assert self.action_space.shape is not None
            self.action_noise = named_noise(name, self.noise_std * np.ones(self.action_space.shape))
        elif not isinstance(name, ActionNoise):
            raise ValueError(f'`action_noise` must be "auto", "gaussian", "pink", None or an ActionNoise, not {name!r}.')

    def _vectorize_noise(self) -> None:
        """Give all environments noise. SB3 would make a copy for each, and call them one after the other."""
        if self.action_noise is not None:
            self.action_noise = vectorized_noise(self.action_noise, self.n_envs)

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        train_freq: TrainFreq,
        replay_buffer: ReplayBuffer,
        action_noise: ActionNoise | None = None,
        learning_starts: int = 0,
        log_interval: int | None = None,
    ) -> RolloutReturn:
        """
        Collect experience, as SB3 does. Only environments whose episode ended are looped over, and a step logs once at most:
        with thousands of environments, SB3's loops take longer than the policy.
        """
        self.policy.set_training_mode(False)
        if env.num_envs > 1 and train_freq.unit != TrainFrequencyUnit.STEP:
            raise ValueError("`train_freq` in episodes needs a single environment: give it in steps.")
        num_collected_steps = num_collected_episodes = 0
        callback.on_rollout_start()
        complete = False
        try:
            while should_collect_more_steps(train_freq, num_collected_steps, num_collected_episodes):
                actions, buffer_actions = self._sample_action(learning_starts, action_noise, env.num_envs)
                new_obs, rewards, dones, infos = env.step(actions)
                self.num_timesteps += env.num_envs
                num_collected_steps += 1
                callback.update_locals(locals())
                if not callback.on_step():
                    return RolloutReturn(num_collected_steps * env.num_envs, num_collected_episodes, False)
                self._update_info_buffer(infos, dones)
                self._store_transition(replay_buffer, buffer_actions, new_obs, rewards, dones, infos)  # type: ignore[arg-type]
                self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
                self._on_step()
                ended = np.flatnonzero(dones).tolist()
                if ended:
                    num_collected_episodes += len(ended)
                    self._end_episodes(ended, action_noise, log_interval)
            callback.on_rollout_end()
            complete = True
            return RolloutReturn(num_collected_steps * env.num_envs, num_collected_episodes, True)
        finally:
            if not complete:
                # A callback or an error ended it after a step that was not stored, and the environment may be in another
                # episode. The next call resets it, so that no future goal is of another episode.
                self._last_obs = None

    def _end_episodes(self, envs: list[int], action_noise: ActionNoise | None, log_interval: int | None) -> None:
        """Count episodes that ended, start their noise again, and log if ``log_interval`` episodes are complete."""
        before, self._episode_num = self._episode_num, self._episode_num + len(envs)
        if isinstance(action_noise, VectorizedActionNoise):
            action_noise.reset(envs)
        elif action_noise is not None:
            action_noise.reset()
        if log_interval is not None and self._episode_num // log_interval > before // log_interval:
            self.dump_logs()

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        if dones is not None and dones.any():
            ended = np.flatnonzero(dones).tolist()
            super()._update_info_buffer([infos[env] for env in ended], np.ones(len(ended), dtype=bool))

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.num_timesteps >= learning_starts:
            scaled = self._act(self._last_obs)  # type: ignore[arg-type]
            if action_noise is not None:
                scaled = np.clip(scaled + action_noise(), -1, 1)
            if not np.isfinite(scaled).all():
                raise DivergedError("The actor returned an action that is not finite")
        # Random actions fill the whole range already: no noise on top.
        elif self.warmup_noise == "pink":
            scaled = self._warmup().reshape(n_envs, *self.action_space.shape)  # type: ignore[misc]
        else:
            scaled = self.policy.scale_action(self._uniform_actions(n_envs))
        return self.policy.unscale_action(scaled), scaled

    def _uniform_actions(self, n_envs: int) -> np.ndarray:
        """:return: The numbers that ``n_envs`` calls of ``action_space.sample()`` draw"""
        space = self.action_space
        assert isinstance(space, spaces.Box)
        return space.np_random.uniform(space.low, space.high, (n_envs, *space.shape)).astype(space.dtype)

    def _act(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        """:return: The policy's actions for exploration, within [-1, 1] and without noise"""
        return self.policy.scale_action(self.predict(obs, deterministic=False)[0])

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """
        The policy's action for an observation of one environment or of several, which names the goal. The policy has no
        memory: ``state`` and ``episode_start`` are ignored.

        :param deterministic: Whether to leave out the randomness of a stochastic actor
        :return: The action, and None
        """
        assert isinstance(self.observation_space, spaces.Dict)
        if not isinstance(observation, tuple):  # SB3 has its own error for Gymnasium's pair of `reset`
            missing = set(self.observation_space.spaces) - (set(observation) if isinstance(observation, dict) else set())
            if missing:
                raise ValueError(
                    f"An observation is a dict with the keys {list(self.observation_space.spaces)}; {sorted(missing)} are "
                    "missing. `desired_goal` is the goal to reach."
                )
            used = {key: observation[key] for key in self.observation_space.spaces}
            check_finite(used, "The observation has NaN or inf in its key `{key}`.")
        return super().predict(observation, state, episode_start, deterministic)

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store a step of every environment: actions within [-1, 1], and observations before normalization."""
        normalize = self._vec_normalize_env
        obs = self._raw_observations()
        next_obs = new_obs if normalize is None else normalize.get_original_obs()
        assert isinstance(next_obs, dict)
        check_observations(next_obs)
        first_obs, known = next_obs, infos
        false_ends = np.zeros(0, dtype=np.int64)
        if dones.any():
            ended = np.flatnonzero(dones)
            next_obs, false_ends = self._with_final_observations(obs, new_obs, next_obs, ended, infos)  # type: ignore[arg-type]
            for env in false_ends.tolist():  # the buffer's word for an unknown final observation
                known = [*infos] if known is infos else known
                known[env] = {**infos[env], "terminal_observation": None}
            self._warmup.reset(ended.tolist())

        after = goal_distance(next_obs["achieved_goal"], obs["desired_goal"])
        before = after
        if len(false_ends) or self._distances.starting():
            before = goal_distance(obs["achieved_goal"], obs["desired_goal"])
            after[false_ends] = before[false_ends]
        pieces = self._distances.pieces(dones)
        self._distances.step(before, after, dones | pieces)
        replay_buffer.add(obs, next_obs, buffer_action, reward, dones, known)  # type: ignore[arg-type]

        self._last_obs = new_obs
        if normalize is not None:
            self._last_original_obs = first_obs
        if pieces.any():
            self._log_pieces([infos[env] for env in np.flatnonzero(pieces)])

    def _with_final_observations(
        self,
        obs: dict[str, np.ndarray],
        new_obs: dict[str, np.ndarray],
        next_obs: dict[str, np.ndarray],
        ended: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """
        :param new_obs: As the environment gave them
        :param next_obs: The same before normalization
        :param ended: The environments whose episodes ended
        :return: ``next_obs`` with the final observations where they are given, and the environments where they are false
        """
        given = [infos[env].get("terminal_observation") for env in ended.tolist()]
        has = np.array([one is not None for one in given])
        envs, given = ended[has], [one for one in given if one is not None]
        missing = ended[~has]
        if not len(envs):
            return next_obs, missing
        final: Any = {
            key: np.stack([np.asarray(one[key]) for one in given]).reshape(len(envs), *value.shape[1:])
            for key, value in new_obs.items()
        }
        check_observations(final)
        equal = equal_rows(final, {key: value[envs] for key, value in new_obs.items()})
        if equal.any():
            where = envs[equal]
            false = ends_are_false(*({key: value[where] for key, value in one.items()} for one in (obs, next_obs)))
            # Whatever its values: a row of the array that has the new observations was overwritten by them.
            views = [
                np.may_share_memory(np.asarray(one["observation"]), new_obs["observation"])
                for one in itertools.compress(given, equal)
            ]
            missing = np.concatenate([missing, where[false | views]])
        if self._vec_normalize_env is not None:
            final = self._vec_normalize_env.unnormalize_obs(final)
        next_obs = {key: value.copy() for key, value in next_obs.items()}
        for key, value in next_obs.items():
            value[envs] = final[key]
        return next_obs, missing

    def _log_pieces(self, infos: list[dict[str, Any]]) -> None:
        """Log long episodes before they end. SB3 logs at the end of episodes only."""
        assert self.ep_success_buffer is not None
        self.ep_success_buffer.extend(info["is_success"] for info in infos if "is_success" in info)
        if self._distances.logs_pieces:
            self.dump_logs()

    def noises(self) -> ModelNoises:
        """:return: The noises, for checkpoints"""
        return ModelNoises(self._warmup, self.action_noise)

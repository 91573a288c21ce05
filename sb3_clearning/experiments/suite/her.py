"""SB3's TD3 and SAC, and SB3-contrib's TQC, with the HerReplayBuffer: the columns that have the reward function."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sb3_contrib import TQC
from stable_baselines3 import SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import GymEnv

from sb3_clearning.common.input_scaling import fit_extractors, refit_is_due
from sb3_clearning.common.noise import PinkActionNoise, PinkUniformActions
from sb3_clearning.common.standardizing_extractor import StandardizingExtractor


def _with_extractor(standardize: bool = True, **policy_kwargs: Any) -> dict[str, Any]:
    """:return: The arguments of SB3's policy for those of ours"""
    return {"features_extractor_class": StandardizingExtractor, **policy_kwargs} if standardize else policy_kwargs


class _Her(OffPolicyAlgorithm):
    """
    The HerReplayBuffer, which reads ``compute_reward``, with our warm-up and inputs, as CLearning and GoalTD3 have them by
    default: pink actions in the warm-up, and standardized observations. Without them a comparison would be one of warm-ups and
    scales.

    :param policy_kwargs: The policy's arguments, and ``standardize`` as for CLearning
    """

    def __init__(
        self,
        policy: str,
        env: GymEnv | str | None,
        replay_buffer_kwargs: Mapping[str, Any] | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        _init_setup_model: bool = True,
        **arguments: Any,
    ):
        super().__init__(
            policy,
            env,  # type: ignore[arg-type]
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs=dict(replay_buffer_kwargs or {}),
            policy_kwargs=_with_extractor(**(policy_kwargs or {})),
            _init_setup_model=False,  # type: ignore[call-arg]
            **{key: value for key, value in arguments.items() if not key.startswith("replay_buffer")},
        )
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        self._warmup = PinkUniformActions(self.n_envs, get_action_dim(self.action_space))

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Do the updates. Before them, take the statistics that observations are standardized with, where that is due."""
        assert isinstance(self.replay_buffer, HerReplayBuffer)
        n_steps = self.replay_buffer.size()
        if refit_is_due(self.policy, n_steps * self.n_envs):
            states = {key: array[:n_steps] for key, array in self.replay_buffer.observations.items()}
            flat = {key: array.reshape(-1, array.shape[-1]) for key, array in states.items()}
            fit_extractors(self.policy, flat, n_steps * self.n_envs)
        super().train(gradient_steps, batch_size)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_warmup"]

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.num_timesteps >= learning_starts:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        scaled = self._warmup().reshape(n_envs, *self.action_space.shape)  # type: ignore[misc]
        return self.policy.unscale_action(scaled), scaled

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        if dones.any():
            self._warmup.reset(np.flatnonzero(dones).tolist())


class HerTD3(_Her, TD3):
    """
    Stable-Baselines3's TD3 with the HerReplayBuffer. It explores with pink noise, as CLearning does.

    :param noise_std: The standard deviation of the noise, for actions within [-1, 1]
    """

    def __init__(self, *arguments: Any, noise_std: float = 0.3, **named_arguments: Any):
        self.noise_std = noise_std
        super().__init__(*arguments, **named_arguments)

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.action_noise is None:  # a loaded model has its own
            self.action_noise = PinkActionNoise(self.noise_std * np.ones(get_action_dim(self.action_space)))


class HerSAC(_Her, SAC):
    """Stable-Baselines3's SAC with the HerReplayBuffer. It explores with its own stochastic actor."""


class HerTQC(_Her, TQC):
    """SB3-contrib's TQC with the HerReplayBuffer. It explores with its own stochastic actor."""

"""GoalTD3: the paper's Q-learning baselines on the same buffer, networks and loop as CLearning."""

from collections.abc import Mapping
from typing import Any

import torch as th
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from sb3_clearning.checks import is_number
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.common.policies import CLearningPolicy
from sb3_clearning.goal_td3.fast_updater import FastQUpdater
from sb3_clearning.goal_td3.updater import QUpdater
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer, goal_slices

#: The baselines of the paper's comparison, by name.
RELABELLING: dict[str, dict[str, float]] = {
    "none": {"original": 1.0},  # TD3 without relabelling
    "next": {"next": 0.5, "random": 0.5},  # Lin et al., 2019
    "her": {"final": 1.0},  # hindsight experience replay, final states
    "her_half": {"final": 0.5, "original": 0.5},
}


class GoalTD3(GoalAlgorithm):
    r"""
    Goal-conditioned Q-learning without a reward function: the reward is 1, and the episode ends, where the goal is the next
    state. With next and random goals and ``q_loss="bce"`` this is Eq. "q-learning-loss" of the paper. Arguments that are not
    named here are those of :class:`CLearning`.

    :param n_steps: n of the n-step targets, up to ``float("inf")``. "next" goals are then one of the next n states
    :param relabel: The goals of a batch: one of the names in ``RELABELLING`` ("none", "next", "her", "her_half"), or shares of
        "original", "next", "final", "future", "random" and "commanded" goals that add up to 1
    :param q_loss: "mse", or "bce" with Q as the logistic function of the network's output
    """

    updater_class, fast_updater_class = QUpdater, FastQUpdater
    _updater: QUpdater
    _needs_returns = True

    def __init__(
        self,
        policy: str | type[CLearningPolicy],
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 1000,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | str | None = "auto",
        replay_buffer_class: type[GoalReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: float = 1,
        policy_delay: int = 1,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        relabel: str | Mapping[str, float] = "next",
        q_loss: str = "mse",
        noise_std: float = 0.3,
        warmup_noise: str = "pink",
        pre_tanh_penalty: float = 1e-3,
        bc_coef: float = 0.0,
        _init_setup_model: bool = True,
    ):
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            batch_size=batch_size,
            tau=tau,
            gamma=gamma,
            train_freq=train_freq,
            gradient_steps=gradient_steps,
            action_noise=action_noise,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            policy_delay=policy_delay,
            target_policy_noise=target_policy_noise,
            target_noise_clip=target_noise_clip,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            noise_std=noise_std,
            warmup_noise=warmup_noise,
            pre_tanh_penalty=pre_tanh_penalty,
            bc_coef=bc_coef,
            _init_setup_model=False,
        )
        self.relabel = relabel
        self.q_loss = q_loss
        if _init_setup_model:
            self._setup_model()

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self._check_not_from("CLearning", {"lambda_", "actor_loss"})
        if isinstance(self.relabel, Mapping):
            named = all(is_number(share) for share in self.relabel.values())
        else:
            named = isinstance(self.relabel, str) and self.relabel in RELABELLING
        if not named:
            raise ValueError(
                f"`relabel` must be one of {tuple(RELABELLING)}, or shares of goals like {RELABELLING['next']}, not "
                f"{self.relabel!r}."
            )
        goal_slices(self.relabelling(), self.batch_size)  # its errors say what is wrong with the shares
        if self.q_loss not in ("mse", "bce"):
            raise ValueError(f'`q_loss` must be "mse" or "bce", not {self.q_loss!r}.')

    def relabelling(self) -> dict[str, float]:
        """:return: For each kind of goal its share of a batch"""
        return RELABELLING[self.relabel] if isinstance(self.relabel, str) else dict(self.relabel)

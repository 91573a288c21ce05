"""Updater: the gradient step on a batch, as autograd computes it."""

from typing import TYPE_CHECKING

import numpy as np
import torch as th

from sb3_clearning.common.metrics import TensorMeans
from sb3_clearning.replay.batch import GoalBatch

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm

#: Only every tenth update is measured: measuring costs a few per cent of an update.
MEASURE_EVERY = 10


class Updater:
    """
    What the updates of all algorithms share. Networks and optimizers are read from the model at every step, as SB3's TD3 does:
    they may be replaced at any time.

    To change an algorithm's update, subclass its updater and name it as the algorithm's ``updater_class``.
    """

    model: "GoalAlgorithm"

    def __init__(self, model: "GoalAlgorithm", metrics: TensorMeans):
        self.model, self.metrics = model, metrics
        self._n_updates = 0

    def select(self) -> "Updater":
        """Prepare a series of updates, and return the updater that does them."""
        self.model.policy.set_training_mode(True)
        return self

    def act(self, obs: dict[str, np.ndarray]) -> np.ndarray | None:
        """:return: The actor's actions ``(n_envs, action_dim)`` within [-1, 1]; None: the caller must use ``model.predict``"""

    def update(self, batch: GoalBatch, n_updates: int) -> None:
        """One gradient step. ``n_updates`` counts it already."""
        self._n_updates = n_updates
        self.update_critic(batch)
        if n_updates % self.model.policy_delay == 0:
            self.update_actor(batch)
            self.update_targets()

    def update_critic(self, batch: GoalBatch) -> None:
        """The critics' gradient step."""
        raise NotImplementedError()

    def update_actor(self, batch: GoalBatch) -> None:
        """The actor's gradient step."""
        raise NotImplementedError()

    @th.no_grad()
    def update_targets(self) -> None:
        """Polyak averaging of all targets, in one kernel."""
        model = self.model
        # A shared features extractor belongs to both networks and must not be averaged twice.
        sources: list[th.Tensor] = list(dict.fromkeys([*model.critic.parameters(), *model.actor.parameters()]))
        targets: list[th.Tensor] = list(dict.fromkeys([*model.critic_target.parameters(), *model.actor_target.parameters()]))
        th._foreach_lerp_(targets, sources, model.tau)
        # Running statistics are copied, see SB3's issue 996
        for target, source in (
            (model.critic_batch_norm_stats_target, model.critic_batch_norm_stats),
            (model.actor_batch_norm_stats_target, model.actor_batch_norm_stats),
        ):
            if target:
                th._foreach_copy_(target, source)

    def next_actions(self, next_obs: dict[str, th.Tensor]) -> th.Tensor:
        """:return: The actions to bootstrap from: the stochastic policy's samples, or the target actor's with clipped noise"""
        model = self.model
        if model.policy.stochastic_actor:
            return model.actor(next_obs)
        actions = model.actor_target(next_obs)
        return (actions + self._smoothing_noise(actions)).clamp_(-1, 1)

    def _smoothing_noise(self, actions: th.Tensor) -> th.Tensor:
        limit = self.model.target_noise_clip
        return th.randn_like(actions).mul_(self.model.target_policy_noise).clamp_(-limit, limit)

    @th.no_grad()
    def next_outputs(self, batch: GoalBatch, part: slice = slice(None)) -> th.Tensor:
        """:return: The target critics' outputs for the next states and actions of a part, ``(n_critics, part)``"""
        next_obs = {key: value[part] for key, value in batch.next_observations.items()}
        return self.model.critic_target(next_obs, self.next_actions(next_obs))

    def discounts(self, batch: GoalBatch, part: slice = slice(None)) -> float | th.Tensor:
        """:return: gamma^m of a part of the batch; gamma with one step"""
        return self.model.gamma if batch.discounts is None else batch.discounts[part]

    def actor_outputs(self, batch: GoalBatch) -> tuple[th.Tensor, th.Tensor]:
        """:return: The critics' outputs for the actor's actions, ``(n_critics, batch)``, and the actor's regularization"""
        critic = self.model.critic
        actions, pre_tanh = self.model.policy.actions_and_pre_tanh(batch.observations)
        with th.no_grad():
            features = critic.extract_features(batch.observations, critic.features_extractor)
        regularization = self.model.pre_tanh_penalty * pre_tanh.square().mean()
        if self.model.cloning_weight > 0:
            regularization = regularization + self.model.cloning_weight * self.cloning_loss(batch, actions)
        return critic.logits(th.cat([features, actions], dim=1)), regularization

    def cloning_loss(self, batch: GoalBatch, actions: th.Tensor) -> th.Tensor:
        """:return: Behavior cloning's loss: mean squared distance to the data's actions, or their negative log-likelihood"""
        if self.model.policy.stochastic_actor:
            return -self.model.policy.log_prob(batch.observations, batch.actions).mean()
        return (actions - batch.actions).square().mean()

    def descend_critic(self, loss: th.Tensor) -> None:
        """A step of the critics for their loss, a scalar."""
        optimizer = self.model.critic.optimizer
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def descend_actor(self, loss: th.Tensor) -> None:
        """A step of the actor alone, for a scalar loss: neither critics nor frozen parameters get gradients."""
        actor = self.model.actor
        actor.optimizer.zero_grad()
        trained = [parameter for parameter in actor.parameters() if parameter.requires_grad]
        if trained:
            loss.backward(inputs=trained)
        actor.optimizer.step()

    def measures(self, name: str) -> bool:
        """:return: Whether to measure this update: every ``MEASURE_EVERY``-th, and the first one after metrics were logged"""
        return self._n_updates % MEASURE_EVERY == 0 or name not in self.metrics

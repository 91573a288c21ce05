"""GoalTD3's update: n-step targets, the critics' loss, the actor's."""

from typing import TYPE_CHECKING

import torch as th
from torch.nn import functional as F

from sb3_clearning.common.updater import Updater
from sb3_clearning.losses import cross_entropy
from sb3_clearning.replay.batch import GoalBatch

if TYPE_CHECKING:
    from sb3_clearning.goal_td3.goal_td3 import GoalTD3


class QUpdater(Updater):
    """Goal-conditioned Q-learning, with the reward 1 where the goal is reached."""

    model: "GoalTD3"

    def update_critic(self, batch: GoalBatch) -> None:
        """Descend the sum of the critics' losses."""
        targets = self.targets(batch)
        outputs = self.critic_step(batch, targets)
        if self.measures("train/critic_loss"):
            self.metrics.add(
                {
                    "train/critic_loss": self.critic_loss(outputs, targets),
                    "train/q_mean": self.values(outputs).mean(),
                    "train/reached": (batch.returns > 0).float().mean(),
                }
            )

    @th.no_grad()
    def targets(self, batch: GoalBatch) -> th.Tensor:
        """
        :return: The n-step targets, ``(batch,)``: gamma^(k-1) where the goal is the state k <= m steps ahead, else
            gamma^m Q(s_{t+m}, a', g). With one step that is 1 where the goal is the next state, else gamma Q(s', a', g)
        """
        values = self.values(self.next_outputs(batch)).amin(dim=0)
        missed = (batch.returns == 0).to(values.dtype)
        return batch.returns + missed * self.discounts(batch) * values

    def values(self, outputs: th.Tensor) -> th.Tensor:
        """:return: Q of the networks' outputs"""
        return outputs.sigmoid() if self.model.q_loss == "bce" else outputs

    def critic_step(self, batch: GoalBatch, targets: th.Tensor) -> th.Tensor:
        """:return: The outputs before the step, ``(n_critics, batch)``"""
        outputs = self.model.critic(batch.observations, batch.actions)
        self.descend_critic(self.critic_loss(outputs, targets))
        return outputs.detach()

    def critic_loss(self, outputs: th.Tensor, targets: th.Tensor) -> th.Tensor:
        """:return: The sum over the critics of the mean loss, for outputs ``(n_critics, batch)`` and targets ``(batch,)``"""
        if self.model.q_loss == "mse":
            return F.mse_loss(outputs, targets.expand_as(outputs), reduction="none").mean(dim=1).sum()
        return cross_entropy(outputs, targets).mean(dim=1).sum()

    def update_actor(self, batch: GoalBatch) -> None:
        """Ascend the first critic's Q, as TD3 does."""
        outputs = self.actor_step(batch)
        if self.measures("train/actor_loss"):
            self.metrics.add({"train/actor_loss": -self.values(outputs).mean()})

    def actor_step(self, batch: GoalBatch) -> th.Tensor:
        """:return: The first critic's outputs for the actor's actions before the step, ``(batch,)``"""
        outputs, regularization = self.actor_outputs(batch)
        self.descend_actor(-self.values(outputs[0]).mean() + regularization)
        return outputs[0].detach()

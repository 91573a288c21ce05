"""GoalTD3's update with its gradients written out."""

import torch as th

from sb3_clearning.common.fast_updater import FastUpdater
from sb3_clearning.goal_td3.updater import QUpdater
from sb3_clearning.replay.batch import GoalBatch


class FastQUpdater(FastUpdater, QUpdater):
    """The numbers of :class:`QUpdater`, faster."""

    definition = QUpdater

    @th.no_grad()
    def critic_step(self, batch: GoalBatch, targets: th.Tensor) -> th.Tensor:
        """:return: The outputs before the step, ``(n_critics, batch)``"""
        activations = self._critic_forward(batch)
        outputs = activations[-1].squeeze(-1)
        # (Q - y)^2 has the gradient 2 (Q - y), the cross entropy Q - y with respect to the logit.
        scale = 2 if self.model.q_loss == "mse" else 1
        self._critic_backward(activations, (self.values(outputs) - targets) * (scale / len(targets)))
        return outputs

    @th.no_grad()
    def actor_step(self, batch: GoalBatch) -> th.Tensor:
        """:return: The first critic's outputs for the actor's actions before the step, ``(batch,)``"""
        activations, actions, (_, *hidden, outputs) = self._actor_forward(batch, n=1)
        gradient = th.full_like(outputs[0], -1 / len(actions))
        if self.model.q_loss == "bce":
            probabilities = outputs[0].sigmoid()
            gradient *= probabilities * (1 - probabilities)
        columns = slice(self.n_features, None)
        action_gradient = self.critic.input_gradient(0, [layer[0] for layer in hidden], gradient, columns)
        self._actor_backward(batch, activations, actions, action_gradient)
        return outputs[0, :, 0]

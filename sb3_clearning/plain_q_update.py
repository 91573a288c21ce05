"""GoalTD3's update for plain networks."""

from typing import TYPE_CHECKING

import torch as th

from sb3_clearning.goal_batch import GoalBatch
from sb3_clearning.plain_update import PlainUpdate

if TYPE_CHECKING:
    from sb3_clearning.baselines import GoalTD3


class PlainQUpdate(PlainUpdate):
    """
    One update of a GoalTD3 model with plain networks.

    :param model: The model
    """

    stands_for = (*PlainUpdate.stands_for, "_targets", "_values", "_critic_loss")
    model: "GoalTD3"

    @th.no_grad()
    def update_critic(self, batch: GoalBatch, targets: th.Tensor) -> th.Tensor:
        """
        Descend the critics' loss.

        :param batch: The batch
        :param targets: ``(batch,)``
        :return: The outputs before the step, ``(n_critics, batch)``
        """
        features = self._features(self._observations(batch), self.model.critic)
        activations = self.critic.forward(th.cat([features, batch.actions], dim=1))
        outputs = activations[-1].squeeze(-1)
        # (Q - y)^2 has the gradient 2 (Q - y), the cross entropy Q - y with respect to the logit.
        scale = 2 if self.model.q_loss == "mse" else 1
        self._descend_critic(activations, (self.model._values(outputs) - targets) * (scale / len(targets)))
        return outputs

    @th.no_grad()
    def update_actor(self, batch: GoalBatch) -> th.Tensor:
        """
        Ascend the first critic's Q.

        :param batch: The batch
        :return: The first critic's outputs for the actor's actions, ``(batch,)``
        """
        model = self.model
        features, critic_features = self._features_of_both(self._observations(batch), model.actor, model.critic)
        activations = self.actor.forward(features)
        actions = activations[-1][0].tanh()
        _, *hidden, outputs = self.critic.forward(th.cat([critic_features, actions], dim=1), n=1)
        gradient = th.full_like(outputs[0], -1 / len(actions))
        if self.model.q_loss == "bce":
            probabilities = outputs[0].sigmoid()
            gradient *= probabilities * (1 - probabilities)
        columns = slice(self.n_features, None)
        action_gradient = self.critic.input_gradient(0, [layer[0] for layer in hidden], gradient, columns)
        self._descend_actor(activations, actions, action_gradient)
        return outputs[0, :, 0]

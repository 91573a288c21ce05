"""CLearning's update for plain networks."""

from typing import TYPE_CHECKING

import torch as th

from sb3_clearning.goal_batch import GoalBatch
from sb3_clearning.losses import importance_weight
from sb3_clearning.plain_update import PlainUpdate

if TYPE_CHECKING:
    from sb3_clearning.clearning import CLearning


class PlainClassifierUpdate(PlainUpdate):
    """
    One update of a CLearning model with plain networks.

    :param model: The model
    """

    stands_for = (*PlainUpdate.stands_for, "_labels_and_weights", "_importance_weights", "_actor_objective")
    model: "CLearning"

    @th.no_grad()
    def importance_weights(self, batch: GoalBatch, part: slice) -> th.Tensor:
        """
        :param batch: The batch
        :param part: Its part with random goals
        :return: w(s', a', g) of the random goals
        """
        return importance_weight(self.next_outputs(batch, part).amin(dim=0), self.model.importance_weight_limit)

    @th.no_grad()
    def update_classifier(self, batch: GoalBatch, labels: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """
        Descend the classifier loss.

        :param batch: The batch
        :param labels: ``(batch,)``
        :param weights: ``(batch,)``
        :return: The logits before the step, ``(n_critics, batch)``
        """
        features = self._features(self._observations(batch), self.model.critic)
        activations = self.critic.forward(th.cat([features, batch.actions], dim=1))
        probabilities = activations[-1].squeeze(-1).sigmoid()
        gradient = (probabilities - labels).mul_(weights)  # of the cross entropy with respect to the logits
        if self.model.classifier_loss == "mse":
            gradient *= 2 * probabilities * (1 - probabilities)
        self._descend_critic(activations, gradient)
        return activations[-1].squeeze(-1)

    @th.no_grad()
    def update_actor(self, batch: GoalBatch) -> th.Tensor:
        """
        Ascend the policy objective.

        :param batch: The batch
        :return: The smallest logits of the actor's actions, ``(batch,)``
        """
        model = self.model
        features, critic_features = self._features_of_both(self._observations(batch), model.actor, model.critic)
        activations = self.actor.forward(features)
        actions = activations[-1][0].tanh()
        critic_activations = self.critic.forward(th.cat([critic_features, actions], dim=1))
        logits, smallest = critic_activations[-1].squeeze(-1).min(dim=0)
        gradient = self._objective_gradient(logits) / -len(logits)
        action_gradient = self._through_smallest(critic_activations, smallest, gradient.unsqueeze(-1))
        self._descend_actor(activations, actions, action_gradient)
        return logits

    def _objective_gradient(self, logits: th.Tensor) -> th.Tensor:
        """
        :param logits: ``(batch,)``
        :return: The gradient of each one's objective with respect to it
        """
        if self.model.actor_loss == "log_ratio":
            return th.ones_like(logits)
        probabilities = logits.sigmoid()  # log C has the gradient 1 - C, C has C (1 - C)
        return (1 - probabilities) * probabilities if self.model.actor_loss == "prob" else 1 - probabilities

    def _through_smallest(self, activations: list[th.Tensor], smallest: th.Tensor, gradient: th.Tensor) -> th.Tensor:
        """
        Each transition's gradient goes back through its smallest classifier only, which is half of the arithmetic of going
        through both.

        :param activations: What the classifiers' forward pass returned
        :param smallest: ``(batch,)``, for each transition the index of its smallest classifier
        :param gradient: The loss's gradient with respect to the smallest logits, ``(batch, 1)``
        :return: The gradient with respect to the actions, ``(batch, action_dim)``
        """
        columns = slice(self.n_features, None)
        result = gradient.new_empty(len(gradient), activations[0].shape[2] - self.n_features)
        for network in range(self.critic.n):
            rows = (smallest == network).nonzero().squeeze(1)
            own = [activation[network].index_select(0, rows) for activation in activations[1:-1]]
            part = self.critic.input_gradient(network, own, gradient.index_select(0, rows), columns)
            result.index_copy_(0, rows, part)
        return result

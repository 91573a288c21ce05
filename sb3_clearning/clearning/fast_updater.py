"""C-learning's update with its gradients written out."""

import torch as th

from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.fast_updater import FastUpdater
from sb3_clearning.replay.batch import GoalBatch


class FastClassifierUpdater(FastUpdater, ClassifierUpdater):
    """The numbers of :class:`ClassifierUpdater`, faster."""

    definition = ClassifierUpdater

    def _matches_autograd(self) -> bool:
        return self.model.action_rate_penalty == 0 and super()._matches_autograd()

    @th.no_grad()
    def classifier_step(self, batch: GoalBatch, labels: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """:return: The logits before the step, ``(n_critics, batch)``"""
        activations = self._critic_forward(batch)
        probabilities = activations[-1].squeeze(-1).sigmoid()
        gradient = (probabilities - labels).mul_(weights)  # of the cross entropy with respect to the logits
        if self.model.classifier_loss == "mse":
            gradient *= 2 * probabilities * (1 - probabilities)
        self._critic_backward(activations, gradient)
        return activations[-1].squeeze(-1)

    @th.no_grad()
    def actor_step(self, batch: GoalBatch) -> th.Tensor:
        """:return: The smallest logits of the actor's actions before the step, ``(batch,)``"""
        activations, actions, critic_activations = self._actor_forward(batch)
        logits, smallest = critic_activations[-1].squeeze(-1).min(dim=0)
        gradient = self._objective_gradient(logits) / -len(logits)
        action_gradient = self._through_smallest(critic_activations, smallest, gradient.unsqueeze(-1))
        self._actor_backward(batch, activations, actions, action_gradient)
        return logits

    def _objective_gradient(self, logits: th.Tensor) -> th.Tensor:
        """:return: The gradient of each one's objective with respect to its logit, ``(batch,)``"""
        if self.model.actor_loss == "log_ratio":
            return th.ones_like(logits)
        probabilities = logits.sigmoid()  # log C has the gradient 1 - C, C has C (1 - C)
        return (1 - probabilities) * probabilities if self.model.actor_loss == "prob" else 1 - probabilities

    def _through_smallest(self, activations: list[th.Tensor], smallest: th.Tensor, gradient: th.Tensor) -> th.Tensor:
        """
        Each transition's gradient goes back through its smallest classifier only: half of the arithmetic of both.

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

"""CLearning's update for plain networks: the same numbers as with autograd, at the speed of the matrix products."""

from typing import TYPE_CHECKING

import numpy as np
import torch as th
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from stable_baselines3.td3.policies import Actor
from torch import nn

from sb3_clearning.goal_batch import GoalBatch
from sb3_clearning.losses import importance_weight
from sb3_clearning.plain_mlp import PlainAdam, PlainMLP
from sb3_clearning.policies import BatchedLinear, ClassifierCritic
from sb3_clearning.standardizing_extractor import StandardizingExtractor

if TYPE_CHECKING:
    from sb3_clearning.clearning import CLearning


def _only_flattens(extractor: BaseFeaturesExtractor) -> bool:
    """:return: Whether the features are the observation's keys one after the other, perhaps standardized"""
    if type(extractor) is not CombinedExtractor and type(extractor) is not StandardizingExtractor:
        return False
    return all(type(part) is nn.Flatten for part in extractor.extractors.values())


def _layers(network: nn.Module) -> list | None:
    """:return: The linear layers of an actor or of classifiers, if these are plain ReLU networks on the observation itself"""
    if type(network) not in (Actor, ClassifierCritic) or not _only_flattens(network.features_extractor):  # type: ignore[arg-type]
        return None
    if isinstance(network, ClassifierCritic):
        return PlainMLP.layers_of(network.classifiers, BatchedLinear)
    assert isinstance(network, Actor)
    modules = list(network.mu)
    if type(modules[-1]) is not nn.Tanh:
        return None
    return PlainMLP.layers_of(nn.Sequential(*modules[:-1]), nn.Linear)


class PlainUpdate:
    """
    One update of a CLearning model with plain ReLU networks, a deterministic actor and fused Adams.

    :param model: The model
    """

    def __init__(self, model: "CLearning"):
        self.model = model
        networks = (model.actor, model.actor_target, model.critic, model.critic_target)
        # What `applies` has found to be plain.
        self._networks = tuple(PlainMLP(_layers(network) or []) for network in networks)
        self.actor, self.actor_target, self.critic, self.critic_target = self._networks
        self.actor_adam, self.critic_adam = PlainAdam(model.actor.optimizer), PlainAdam(model.critic.optimizer)  # type: ignore[arg-type]
        self.n_features = model.actor.features_dim
        extractor = model.actor.features_extractor
        self._extractor = extractor if isinstance(extractor, StandardizingExtractor) else None

    def _features(self, rows: th.Tensor) -> th.Tensor:
        """:return: What the networks see of observations ``(batch, n_features)``: all four have the same statistics"""
        return rows if self._extractor is None else self._extractor.standardize(rows)

    def is_current(self) -> bool:
        """:return: Whether the parameters and optimizers are still those that this was made of"""
        optimizers = (self.actor_adam.optimizer, self.critic_adam.optimizer)
        return optimizers == (self.model.actor.optimizer, self.model.critic.optimizer) and all(
            network.is_current() for network in self._networks
        )

    @staticmethod
    def applies(model: "CLearning") -> bool:
        """
        :param model: A model
        :return: Whether its networks and optimizers are plain and its update is not a subclass's own
        """
        from sb3_clearning.clearning import CLearning

        own = (
            "_update",
            "_update_actor",
            "_update_classifier",
            "_labels_and_weights",
            "_importance_weights",
            "_update_targets",
        )
        return (
            all(getattr(type(model), name) is getattr(CLearning, name) for name in own)
            and model.replay_buffer.only_floats
            and all(_layers(network) for network in (model.actor, model.actor_target, model.critic, model.critic_target))
            and all(PlainAdam.applies(network.optimizer) for network in (model.actor, model.critic))
            and all(parameter.requires_grad for parameter in model.policy.parameters())
        )

    def _seen(self, batch: GoalBatch) -> th.Tensor:
        """:return: What the networks see of a batch's observations"""
        assert batch.inputs is not None
        return self._features(batch.inputs[:, : self.n_features])

    @th.no_grad()
    def act(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        """
        The actor's actions, past the checks and conversions of ``predict``: half a millisecond at every environment step.

        :param obs: ``(n_envs, …)`` per key, as the environments return them
        :return: ``(n_envs, action_dim)``, within [-1, 1]
        """
        keys = self.model.replay_buffer.observation_space.spaces
        features = np.concatenate([obs[key].reshape(len(obs[key]), -1) for key in keys], axis=1, dtype=np.float32)
        rows = self._features(th.as_tensor(features, device=self.model.device))
        return self.actor.forward(rows)[-1][0].tanh().cpu().numpy()

    @th.no_grad()
    def importance_weights(self, batch: GoalBatch, part: slice) -> th.Tensor:
        """
        :param batch: The batch
        :param part: Its part with random goals
        :return: w(s', a', g) of the random goals
        """
        assert batch.next_inputs is not None
        model, features = self.model, self._features(batch.next_inputs[part])
        actions = self.actor_target.forward(features)[-1][0].tanh_()
        noise = (
            th.randn_like(actions).mul_(model.target_policy_noise).clamp_(-model.target_noise_clip, model.target_noise_clip)
        )
        actions = actions.add_(noise).clamp_(-1, 1)
        logits = self.critic_target.forward(th.cat([features, actions], dim=1))[-1].squeeze(-1).amin(dim=0)
        return importance_weight(logits, model.importance_weight_limit)

    @th.no_grad()
    def update_classifier(self, batch: GoalBatch, labels: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """
        Descend the classifier loss.

        :param batch: The batch
        :param labels: ``(batch,)``
        :param weights: ``(batch,)``
        :return: The logits before the step, ``(n_critics, batch)``
        """
        activations = self.critic.forward(th.cat([self._seen(batch), batch.actions], dim=1))
        probabilities = activations[-1].squeeze(-1).sigmoid()
        gradient = (probabilities - labels).mul_(weights)  # of the cross entropy with respect to the logits
        if self.model.classifier_loss == "mse":
            gradient *= 2 * probabilities * (1 - probabilities)
        self.critic.backward(activations, gradient.unsqueeze(-1))
        self.critic_adam.step()
        return activations[-1].squeeze(-1)

    @th.no_grad()
    def update_actor(self, batch: GoalBatch) -> th.Tensor:
        """
        Ascend the policy objective.

        :param batch: The batch
        :return: The smallest logits of the actor's actions, ``(batch,)``
        """
        features = self._seen(batch)
        activations = self.actor.forward(features)
        pre_tanh = activations[-1][0]
        actions = pre_tanh.tanh()
        critic_activations = self.critic.forward(th.cat([features, actions], dim=1))
        logits, smallest = critic_activations[-1].squeeze(-1).min(dim=0)
        # -log C has the gradient C - 1 with respect to the logit, -C has -C (1 - C).
        gradient = logits.sigmoid() - 1
        if self.model.actor_loss == "prob":
            gradient *= logits.sigmoid()
        gradient /= len(logits)
        action_gradient = self._through_smallest(critic_activations, smallest, gradient.unsqueeze(-1))
        action_gradient *= 1 - actions.square()  # through the tanh
        action_gradient.add_(pre_tanh, alpha=2 * self.model.pre_tanh_penalty / pre_tanh.numel())
        self.actor.backward(activations, action_gradient.unsqueeze(0))
        self.actor_adam.step()
        return logits

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

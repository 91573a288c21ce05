"""Updates of plain networks: the same numbers as with autograd, at the speed of the matrix products."""

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch as th
from stable_baselines3.common.policies import BaseModel
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from stable_baselines3.td3.policies import Actor
from torch import nn

from sb3_clearning.goal_batch import GoalBatch
from sb3_clearning.plain_mlp import PlainAdam, PlainMLP
from sb3_clearning.policies import BatchedLinear, ClassifierCritic
from sb3_clearning.standardizing_extractor import StandardizingExtractor

if TYPE_CHECKING:
    from sb3_clearning.goal_algorithm import GoalAlgorithm


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
    What the updates of models with plain ReLU networks, a deterministic actor and fused Adams share.

    :param model: The model
    """

    #: The algorithm's methods whose work this does: a subclass that has its own takes the general path.
    stands_for: ClassVar[tuple[str, ...]] = (
        "_update",
        "_update_actor",
        "_update_critic",
        "_update_targets",
        "_next_actions",
        "_actors_outputs",
        "_descend_actor",
    )
    model: "GoalAlgorithm"

    def __init__(self, model: "GoalAlgorithm"):
        networks = (model.actor, model.actor_target, model.critic, model.critic_target)
        # What `applies` has found to be plain.
        self._networks = tuple(PlainMLP(_layers(network) or []) for network in networks)
        self.actor, self.actor_target, self.critic, self.critic_target = self._networks
        self.actor_adam, self.critic_adam = PlainAdam(model.actor.optimizer), PlainAdam(model.critic.optimizer)  # type: ignore[arg-type]
        self.n_features = model.actor.features_dim
        self.model = model

    @classmethod
    def of(cls, model: "GoalAlgorithm", algorithm: type["GoalAlgorithm"]) -> Self | None:
        """
        :param model: A model
        :param algorithm: The class whose update this is
        :return: The model's update, None if that has to take the general path
        """
        return cls(model) if cls.applies(model, algorithm) else None

    @classmethod
    def applies(cls, model: "GoalAlgorithm", algorithm: type["GoalAlgorithm"]) -> bool:
        """
        :param model: A model
        :param algorithm: The class whose update this is
        :return: Whether its networks and optimizers are plain and its update is not a subclass's own
        """
        return (
            all(getattr(type(model), name) is getattr(algorithm, name) for name in cls.stands_for)
            and model.replay_buffer.only_floats
            and all(_layers(network) for network in (model.actor, model.actor_target, model.critic, model.critic_target))
            and all(PlainAdam.applies(network.optimizer) for network in (model.actor, model.critic))
            and all(parameter.requires_grad for parameter in model.policy.parameters())
        )

    def is_current(self) -> bool:
        """:return: Whether the parameters and optimizers are still those that this was made of, and as they were"""
        optimizers = (self.actor_adam.optimizer, self.critic_adam.optimizer)
        return optimizers == (self.model.actor.optimizer, self.model.critic.optimizer) and all(
            network.is_current() for network in self._networks
        )

    @staticmethod
    def _features(rows: th.Tensor, network: BaseModel) -> th.Tensor:
        """:return: What a network sees of observations ``(batch, n_features)``"""
        extractor = network.features_extractor
        return extractor.standardize(rows) if isinstance(extractor, StandardizingExtractor) else rows

    def _features_of_both(self, rows: th.Tensor, actor: BaseModel, critic: BaseModel) -> tuple[th.Tensor, th.Tensor]:
        """:return: What an actor and critics see of observations: as a rule the same, and then computed once"""
        features, one, two = self._features(rows, actor), actor.features_extractor, critic.features_extractor
        if isinstance(one, StandardizingExtractor) and isinstance(two, StandardizingExtractor) and one.sees_the_same_as(two):
            return features, features
        return features, self._features(rows, critic)

    def _observations(self, batch: GoalBatch) -> th.Tensor:
        """:return: A batch's observations, ``(batch, n_features)``"""
        assert batch.inputs is not None
        return batch.inputs[:, : self.n_features]

    @th.no_grad()
    def act(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        """
        The actor's actions, past the checks and conversions of ``predict``: half a millisecond at every environment step.

        :param obs: ``(n_envs, …)`` per key, as the environments return them
        :return: ``(n_envs, action_dim)``, within [-1, 1]
        """
        keys = self.model.replay_buffer.observation_space.spaces
        features = np.concatenate([obs[key].reshape(len(obs[key]), -1) for key in keys], axis=1, dtype=np.float32)
        rows = self._features(th.as_tensor(features, device=self.model.device), self.model.actor)
        return self.actor.forward(rows)[-1][0].tanh().cpu().numpy()

    @th.no_grad()
    def next_outputs(self, batch: GoalBatch, part: slice) -> th.Tensor:
        """
        :param batch: The batch
        :param part: Which part of it
        :return: The target critics' outputs for the next states and the target actor's noisy actions, ``(n_critics, part)``
        """
        assert batch.next_inputs is not None
        model = self.model
        features, critic_features = self._features_of_both(batch.next_inputs[part], model.actor_target, model.critic_target)
        actions = self.actor_target.forward(features)[-1][0].tanh_()
        noise = (
            th.randn_like(actions).mul_(model.target_policy_noise).clamp_(-model.target_noise_clip, model.target_noise_clip)
        )
        actions = actions.add_(noise).clamp_(-1, 1)
        return self.critic_target.forward(th.cat([critic_features, actions], dim=1))[-1].squeeze(-1)

    def _descend_critic(self, activations: list[th.Tensor], gradient: th.Tensor) -> None:
        """
        :param activations: What the critics' forward pass returned
        :param gradient: The loss's gradient with respect to their outputs, ``(n_critics, batch)``
        """
        self.critic.backward(activations, gradient.unsqueeze(-1))
        self.critic_adam.step()

    def _descend_actor(self, activations: list[th.Tensor], actions: th.Tensor, gradient: th.Tensor) -> None:
        """
        :param activations: What the actor's forward pass returned
        :param actions: Their tanh
        :param gradient: The loss's gradient with respect to the actions, which is overwritten
        """
        pre_tanh = activations[-1][0]
        gradient *= 1 - actions.square()  # through the tanh
        gradient.add_(pre_tanh, alpha=2 * self.model.pre_tanh_penalty / pre_tanh.numel())
        self.actor.backward(activations, gradient.unsqueeze(0))
        self.actor_adam.step()

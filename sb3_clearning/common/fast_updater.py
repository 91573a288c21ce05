"""FastUpdater: updates with hand-written gradients, numerically equivalent to autograd."""

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch as th
from stable_baselines3.common.policies import BaseModel
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from stable_baselines3.td3.policies import Actor
from torch import nn

from sb3_clearning.common.exploration import GoalExploration
from sb3_clearning.common.fast_mlp import FastAdam, FastMLP
from sb3_clearning.common.metrics import TensorMeans
from sb3_clearning.common.network_guard import NetworkGuard, has_default_step
from sb3_clearning.common.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.common.standardizing_extractor import StandardizingExtractor
from sb3_clearning.common.updater import Updater
from sb3_clearning.layers import BatchedLinear
from sb3_clearning.replay.batch import GoalBatch

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm


def _only_flattens(extractor: BaseFeaturesExtractor) -> bool:
    """:return: Whether the features are the observation's keys one after the other, perhaps standardized"""
    if type(extractor) is not CombinedExtractor and type(extractor) is not StandardizingExtractor:
        return False
    return all(type(part) is nn.Flatten for part in extractor.extractors.values())


def _layers(network: nn.Module) -> list | None:
    """:return: The linear layers of an actor or critics, if these are plain ReLU networks on the observation itself"""
    if type(network) not in (Actor, ClassifierCritic) or not _only_flattens(network.features_extractor):  # type: ignore[arg-type]
        return None
    if isinstance(network, ClassifierCritic):
        return FastMLP.layers_of(network.classifiers, BatchedLinear)
    assert isinstance(network, Actor)
    if type(network.mu) is not nn.Sequential or len(network.mu) == 0 or type(network.mu[-1]) is not nn.Tanh:
        return None
    return FastMLP.layers_of(nn.Sequential(*list(network.mu)[:-1]), nn.Linear)


def _networks(model: "GoalAlgorithm") -> tuple[nn.Module, ...]:
    return model.actor, model.actor_target, model.critic, model.critic_target


class FastUpdater(Updater):
    """
    What the fast updaters share: ReLU networks on flat observations, a deterministic actor and fused Adams, with the gradients
    written out. Falls back to the autograd updater whenever the result could differ; see :meth:`select`.
    """

    #: The autograd updater with the same results.
    definition: ClassVar[type[Updater]]

    def __init__(self, model: "GoalAlgorithm", metrics: TensorMeans):
        super().__init__(model, metrics)
        self._autograd = self.definition(model, metrics)
        self._bind()

    @classmethod
    def try_build(cls, model: "GoalAlgorithm", metrics: TensorMeans) -> Self | None:
        """:return: The model's fast updater, or None if its update needs autograd"""
        return cls(model, metrics) if cls.supports(model) else None

    @classmethod
    def supports(cls, model: "GoalAlgorithm") -> bool:
        """:return: Whether the model's updater, policy, networks and optimizers are of the supported types"""
        return (
            type(model).updater_class is cls.definition
            and type(model.policy) is CLearningPolicy
            and model.replay_buffer.only_floats
            and all(_layers(network) for network in _networks(model))
            and all(FastAdam.supports(network.optimizer) for network in (model.actor, model.critic))
        )

    def _bind(self) -> None:
        """Create views of the current parameters."""
        model, networks = self.model, _networks(self.model)
        self._policy, self._networks = model.policy, networks
        self._guard, self._actor_guard = NetworkGuard(*networks), NetworkGuard(model.actor)
        self.actor, self.actor_target, self.critic, self.critic_target = (
            FastMLP(_layers(network) or []) for network in networks
        )
        actor, actor_target, critic, critic_target = (list(network.parameters()) for network in networks)
        self._sources: list[th.Tensor] = [*critic, *actor]
        self._targets: list[th.Tensor] = [*critic_target, *actor_target]
        self._actor_parameters, self._critic_parameters = actor, critic
        self._actor_adam, self._critic_adam = FastAdam(model.actor.optimizer), FastAdam(model.critic.optimizer)  # type: ignore[arg-type]
        self.n_features = model.actor.features_dim

    # -- fallback to autograd ------------------------------------------------------------------------------------------

    def select(self) -> Updater:
        """:return: This updater, or the autograd one while there are hooks, frozen parameters or other networks"""
        is_bound = self._is_bound()
        if not is_bound and self.supports(self.model):
            self._bind()
            is_bound = True
        if not (is_bound and self._matches_autograd()):
            return self._autograd.select()
        self._actor_adam.bind()
        self._critic_adam.bind()
        return self

    def _is_bound(self) -> bool:
        """:return: Whether the model's networks and optimizers are still those of :meth:`_bind`"""
        model = self.model
        return (
            model.policy is self._policy
            and _networks(model) == self._networks
            and self._actor_adam.optimizer is model.actor.optimizer
            and self._critic_adam.optimizer is model.critic.optimizer
            and self._guard.is_unchanged()
        )

    def _matches_autograd(self) -> bool:
        """:return: Whether no hook, override, frozen parameter or anomaly mode would change the result"""
        adams = (self._actor_adam.optimizer, self._actor_parameters), (self._critic_adam.optimizer, self._critic_parameters)
        return (
            "set_training_mode" not in vars(self._policy)
            and self._guard.has_default_forward()
            and self._guard.has_default_backward()
            and all(FastAdam.supports(adam) and has_default_step(adam, parameters) for adam, parameters in adams)
            and not th.is_anomaly_enabled()
        )

    def _matches_predict(self) -> bool:
        """:return: Whether ``model.predict`` would do nothing but ask the actor that :attr:`actor` has the views of"""
        model, actor = self.model, self._actor_guard
        return (
            type(model).predict is GoalExploration.predict
            and "predict" not in vars(model)
            and model.policy is self._policy
            and self._policy.actor is self._networks[0]
            and {"predict", "_predict"}.isdisjoint(vars(self._policy))
            and actor.is_unchanged()
            and actor.has_default_forward()
        )

    # -- the arithmetic ------------------------------------------------------------------------------------------------

    @th.no_grad()
    def act(self, obs: dict[str, np.ndarray]) -> np.ndarray | None:
        """Skip the checks and conversions of ``predict``: half a millisecond at every environment step."""
        if not self._matches_predict():
            return None
        keys = self.model.replay_buffer.observation_space.spaces
        features = np.concatenate([obs[key].reshape(len(obs[key]), -1) for key in keys], axis=1, dtype=np.float32)
        rows = self._features(th.as_tensor(features, device=self.model.device), self._policy.actor)
        return self.actor.forward(rows)[-1][0].tanh().cpu().numpy()

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
    def next_outputs(self, batch: GoalBatch, part: slice = slice(None)) -> th.Tensor:
        """:return: The target critics' outputs for the next states and actions of a part, ``(n_critics, part)``"""
        assert batch.next_inputs is not None
        model = self.model
        features, critic_features = self._features_of_both(batch.next_inputs[part], model.actor_target, model.critic_target)
        actions = self.actor_target.forward(features)[-1][0].tanh_()
        actions = actions.add_(self._smoothing_noise(actions)).clamp_(-1, 1)
        return self.critic_target.forward(th.cat([critic_features, actions], dim=1))[-1].squeeze(-1)

    def _critic_forward(self, batch: GoalBatch) -> list[th.Tensor]:
        """:return: What the critics' forward pass returns"""
        features = self._features(self._observations(batch), self.model.critic)
        return self.critic.forward(th.cat([features, batch.actions], dim=1))

    def _critic_backward(self, activations: list[th.Tensor], gradient: th.Tensor) -> None:
        """A step along the loss's gradient with respect to the outputs of :meth:`_critic_forward`, ``(n_critics, batch)``."""
        self.critic.backward(activations, gradient.unsqueeze(-1))
        self._critic_adam.step()

    def _actor_forward(self, batch: GoalBatch, n: int | None = None) -> tuple[list[th.Tensor], th.Tensor, list[th.Tensor]]:
        """:return: The actor's forward pass, its actions, and for them that of the first ``n`` critics (None: of all)"""
        model = self.model
        features, critic_features = self._features_of_both(self._observations(batch), model.actor, model.critic)
        activations = self.actor.forward(features)
        actions = activations[-1][0].tanh()
        return activations, actions, self.critic.forward(th.cat([critic_features, actions], dim=1), n=n)

    def _actor_backward(self, batch: GoalBatch, activations: list[th.Tensor], actions: th.Tensor, gradient: th.Tensor) -> None:
        """A step along the loss's gradient with respect to the actions of :meth:`_actor_forward`, which is overwritten."""
        pre_tanh = activations[-1][0]
        if self.model.cloning_weight > 0:
            gradient.add_(actions - batch.actions, alpha=2 * self.model.cloning_weight / actions.numel())
        gradient *= 1 - actions.square()  # through the tanh
        gradient.add_(pre_tanh, alpha=2 * self.model.pre_tanh_penalty / pre_tanh.numel())
        self.actor.backward(activations, gradient.unsqueeze(0))
        self._actor_adam.step()

    @th.no_grad()
    def update_targets(self) -> None:
        """Polyak averaging of all targets, in one kernel."""
        th._foreach_lerp_(self._targets, self._sources, self.model.tau)

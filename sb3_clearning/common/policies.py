"""The classifier critic and the policy that holds it together with the actor."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BaseModel
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.sac.policies import Actor as GaussianActor
from stable_baselines3.td3.policies import Actor, TD3Policy
from torch import nn

from sb3_clearning.checks import check_number
from sb3_clearning.common.standardizing_extractor import StandardizingExtractor, with_n_fitted
from sb3_clearning.files.json_values import register_class
from sb3_clearning.layers import BatchedLinear


class ClassifierCritic(BaseModel):
    """
    Classifiers C(F=1 | s, a, g) of future against random goals, as logits. The goal is the observation's ``desired_goal``.

    :param normalize_images: Whether to divide images by 255
    :param share_features_extractor: Whether the features extractor is the actor's (then it learns from the actor's loss only)
    """

    features_extractor: BaseFeaturesExtractor

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        normalize_images: bool = True,
        n_critics: int = 2,
        share_features_extractor: bool = True,
    ):
        super().__init__(
            observation_space, action_space, features_extractor=features_extractor, normalize_images=normalize_images
        )
        check_number("n_critics", n_critics, 1, whole=True)
        for size in net_arch:
            check_number("net_arch", size, 1, whole=True)
        self.share_features_extractor = share_features_extractor
        self.n_critics = n_critics
        sizes = [features_dim + get_action_dim(self.action_space), *net_arch]
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            layers += [BatchedLinear(n_critics, size, next_size), activation_fn()]
        self.classifiers = nn.Sequential(*layers, BatchedLinear(n_critics, sizes[-1], 1))

    def forward(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        """:return: The logits of observations and actions ``(batch, action_dim)``, ``(n_critics, batch)``"""
        # Like SB3's critics: shared features learn from the actor's loss only.
        with th.set_grad_enabled(th.is_grad_enabled() and not self.share_features_extractor):
            features = self.extract_features(obs, self.features_extractor)
        return self.logits(th.cat([features, actions], dim=1))

    def logits(self, inputs: th.Tensor) -> th.Tensor:
        """:return: The logits of features and actions ``(batch, features_dim + action_dim)``, ``(n_critics, batch)``"""
        return self.classifiers(inputs.expand(self.n_critics, *inputs.shape)).squeeze(-1)


class CLearningPolicy(TD3Policy):
    """
    Policy class (actor, classifiers and their targets) for C-learning, for goal environments (``MultiInputPolicy``).

    :param net_arch: The sizes of the hidden layers of actor and classifiers, or a dict with ``pi`` and ``qf``
    :param normalize_images: Whether to divide images by 255
    :param optimizer_kwargs: The optimizer's arguments, without the learning rate. By default Adam has its fused kernel
    :param share_features_extractor: Whether actor and classifiers share it
    :param stochastic_actor: Whether the actor is the paper's tanh-Gaussian instead of TD3's deterministic one
    :param standardize: Whether the networks see observations and goals with mean 0 and standard deviation 1 over the replay
        buffer, limited to ±10. The statistics follow the data for the first 32,768 transitions, then stay. Only floating-point
        keys, and of these not what a VecNormalize normalizes; has no effect with a features extractor of your own
    """

    critic: ClassifierCritic  # type: ignore[assignment]
    critic_target: ClassifierCritic  # type: ignore[assignment]

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        lr_schedule: Schedule,
        net_arch: list[int] | dict[str, list[int]] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] = CombinedExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        n_critics: int = 2,
        share_features_extractor: bool = False,
        stochastic_actor: bool = False,
        standardize: bool = True,
    ):
        check_number("n_critics", n_critics, 1, whole=True)
        for name, value in (("stochastic_actor", stochastic_actor), ("standardize", standardize)):
            if not isinstance(value, bool):
                raise ValueError(f"`{name}` in `policy_kwargs` must be True or False, not {value!r}.")
        if optimizer_kwargs is None and optimizer_class in (th.optim.Adam, th.optim.AdamW):
            # One kernel for all parameters: three times the speed of the default on a CPU.
            optimizer_kwargs = {"fused": True}
        self.stochastic_actor, self.standardize = stochastic_actor, standardize
        if standardize and features_extractor_class is CombinedExtractor:
            features_extractor_class = StandardizingExtractor
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            [256, 256] if net_arch is None else net_arch,
            activation_fn,
            features_extractor_class,
            features_extractor_kwargs,
            normalize_images,
            optimizer_class,
            optimizer_kwargs,
            n_critics,
            share_features_extractor,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"stochastic_actor": self.stochastic_actor, "standardize": self.standardize}
        return {**super()._get_constructor_parameters(), **own}

    @staticmethod
    def upgraded(weights: Mapping[str, th.Tensor]) -> dict[str, th.Tensor]:
        """:return: A state dict of this version, of one that may be from an earlier version"""
        return with_n_fitted(weights)

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> Actor | GaussianActor:  # type: ignore[override]
        """:return: A new actor, with a new features extractor if none is given"""
        actor_class = GaussianActor if self.stochastic_actor else Actor
        return actor_class(**self._update_features_extractor(self.actor_kwargs, features_extractor)).to(self.device)

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> ClassifierCritic:  # type: ignore[override]
        """:return: New classifiers, with a new features extractor if none is given"""
        return ClassifierCritic(**self._update_features_extractor(self.critic_kwargs, features_extractor)).to(self.device)

    def set_training_mode(self, mode: bool) -> None:
        """
        Put the networks into training or evaluation mode. Every environment step asks for it, and setting the mode of all
        modules costs more than acting: so it is set only if a module has the other one.
        """
        modules = [vars(self.actor), vars(self.critic)]
        for module in modules:
            modules += [vars(child) for child in module["_modules"].values() if child is not None]
        if self.training != mode or {module["training"] for module in modules} != {mode}:
            super().set_training_mode(mode)

    def actions_and_pre_tanh(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor]:
        """:return: The actor's actions, and the pre-tanh actions (the mean, for the stochastic actor)"""
        # The actor is called as TD3 calls it, so that hooks on it are called, too.
        found: list[th.Tensor] = []
        if self.stochastic_actor:
            handle = self.actor.mu.register_forward_hook(lambda module, inputs, output: found.append(output))
        else:
            tanhs = [module for module in self.actor.mu.modules() if isinstance(module, nn.Tanh)]
            if not tanhs:
                raise ValueError(f"The actor's `mu` must end in nn.Tanh, as that of TD3's Actor, not {self.actor.mu}.")
            handle = tanhs[-1].register_forward_hook(lambda module, inputs, output: found.append(inputs[0]))
        with handle:
            return self.actor(obs), found[0]

    def log_prob(self, obs: PyTorchObs, actions: th.Tensor) -> th.Tensor:
        """:return: The stochastic actor's log density of actions ``(batch, action_dim)`` within [-1, 1], ``(batch,)``"""
        if not isinstance(self.actor, GaussianActor):
            raise ValueError("Only a stochastic actor has densities: pass `policy_kwargs=dict(stochastic_actor=True)`.")
        mean, log_std, _ = self.actor.get_action_dist_params(obs)
        return self.actor.action_dist.proba_distribution(mean, log_std).log_prob(actions)

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        if self.stochastic_actor:
            return self.actor(observation, deterministic=deterministic)
        return self.actor(observation)


register_class("sb3_clearning.CLearningPolicy", CLearningPolicy)

"""Fits the scaling of the networks' inputs to the data, early in training, without changing what the networks compute."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.policies import BaseModel, BasePolicy
from torch import nn

from sb3_clearning.common.policies import ClassifierCritic
from sb3_clearning.common.standardizing_extractor import StandardizingExtractor
from sb3_clearning.layers import BatchedLinear

#: Warn if the final statistics come from fewer episodes.
FEW_EPISODES = 5


def _scaled(policy: BasePolicy) -> dict[StandardizingExtractor, list[BaseModel]]:
    """:return: The extractors that scale their inputs, each with the networks that read it (several may share one)"""
    found: dict[StandardizingExtractor, list[BaseModel]] = {}
    for name in ("actor", "actor_target", "critic", "critic_target"):  # SAC has no second actor
        network: Any = getattr(policy, name, None)
        if network is not None and isinstance(network.features_extractor, StandardizingExtractor):
            found.setdefault(network.features_extractor, []).append(network)
    return found


def refit_is_due(policy: BasePolicy, n_transitions: int) -> bool:
    """:return: Whether it is time for :func:`fit_extractors`, by the number of transitions that were ever stored"""
    return any(extractor.refit_is_due(n_transitions) for extractor in _scaled(policy))


def fit_extractors(
    policy: BasePolicy, states: Mapping[str, np.ndarray], n_transitions: int, n_episodes: int | None = None
) -> None:
    """
    Take the means and standard deviations that inputs are scaled with from data, where that is due. At a refit the networks'
    first layers change with them, so that the networks' outputs stay the same. Where this is not possible, the first fit is
    final.

    :param states: ``(n, …)`` per floating-point key
    :param n_transitions: The number of transitions that were ever stored
    :param n_episodes: The number of episodes that the states come from, for a warning if these are few
    """
    scaled = _scaled(policy)
    due = [extractor for extractor in scaled if extractor.refit_is_due(n_transitions)]
    can_compensate = all(_first_layers(network) for networks in scaled.values() for network in networks)
    for extractor in due:
        is_first = not extractor.is_fitted
        if is_first or can_compensate:
            slope, offset = extractor.fit(states, n_transitions)
        if not can_compensate:
            extractor.freeze()
        elif not is_first:
            for network in scaled[extractor]:
                _compensate(network, slope, offset)
    is_final = any(extractor.is_final for extractor in due)
    if is_final and states and n_episodes is not None and n_episodes < FEW_EPISODES:
        warnings.warn(
            f"The scaling of the networks' inputs is now final, but was fitted to {n_episodes} episodes only; inputs far from "
            "their mean are clipped. Collect more episodes before the first update (`learning_starts`), "
            "or scale the observations yourself and pass `policy_kwargs=dict(standardize=False)`.",
            stacklevel=3,
        )


def _readers_of_gaussian_actor(actor: BaseModel) -> list[nn.Module]:
    return [actor.latent_pi] if len(actor.latent_pi) else [actor.mu, actor.log_std]  # type: ignore[arg-type, list-item]


#: The modules that read a network's features, by the name of its class: subclasses may read them in other ways.
_READERS: dict[str, Callable[[Any], list[nn.Module]]] = {
    "stable_baselines3.td3.policies.Actor": lambda actor: [actor.mu],
    "stable_baselines3.sac.policies.Actor": _readers_of_gaussian_actor,
    "sb3_contrib.tqc.policies.Actor": _readers_of_gaussian_actor,
    "stable_baselines3.common.policies.ContinuousCritic": lambda critic: list(critic.q_networks),
    "sb3_contrib.tqc.policies.Critic": lambda critic: list(critic.q_networks),
    f"{ClassifierCritic.__module__}.{ClassifierCritic.__qualname__}": lambda critic: [critic.classifiers],
}


def _first_layers(network: BaseModel) -> list[nn.Linear | BatchedLinear]:
    """:return: The layers that read the features, or an empty list if they cannot compensate for new statistics"""
    readers = _READERS.get(f"{type(network).__module__}.{type(network).__qualname__}", lambda network: [])(network)
    layers = [reader[0] if type(reader) is nn.Sequential else reader for reader in readers]
    if type(network.features_extractor) is not StandardizingExtractor or not all(_can_compensate(layer) for layer in layers):
        return []
    return layers  # type: ignore[return-value]


def _can_compensate(layer: nn.Module) -> bool:
    """:return: Whether a layer is linear, with parameters that no one has frozen or replaced"""
    if type(layer) not in (nn.Linear, BatchedLinear):
        return False
    return all(isinstance(values, nn.Parameter) and values.requires_grad for values in (layer.weight, layer.bias))


@th.no_grad()
def _compensate(network: BaseModel, slope: th.Tensor, offset: th.Tensor) -> None:
    """
    Change a network's first layers so that its outputs stay the same. With the old features ``z = slope * z' + offset``,
    ``W z + b`` is ``(W * slope) z' + (b + W offset)``. Polyak averaging commutes with this linear map, so targets stay
    averages of their networks. Everything is written in place, because the fast path has views of the parameters.
    Slope and offset are ``(features_dim,)`` in float64.
    """
    slope, offset = slope[:, None], offset[:, None]
    optimizer = getattr(network, "optimizer", None)  # targets have none
    for layer in _first_layers(network):

        def of_features(values: th.Tensor, layer: nn.Module = layer) -> th.Tensor:
            """:return: A view ``(…, features_dim, outputs)``; behind the features come the critics' actions, which stay"""
            return (values if isinstance(layer, BatchedLinear) else values.t())[..., : len(slope), :]

        weight = of_features(layer.weight)
        layer.bias.add_((weight * offset).sum(dim=-2).reshape(layer.bias.shape))
        weight.copy_(weight * slope)
        state = {} if optimizer is None else optimizer.state
        averages, bias_averages = state.get(layer.weight, {}), state.get(layer.bias, {})
        for name in {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} & averages.keys():
            average, bias_average = of_features(averages[name]), bias_averages[name]
            if name == "exp_avg":  # a mean of gradients: gradients transform linearly (chain rule)
                average.copy_((average - offset * bias_average) / slope)
            else:
                # The second moment would need the unknown mean of the cross term, which is dropped. Without it no step becomes
                # larger than sqrt(2) times what it could be before (Cauchy-Schwarz), whatever slope and offset are.
                average.copy_((average + offset.square() * bias_average) / slope.square())

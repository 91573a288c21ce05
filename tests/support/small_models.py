"""Models that are small enough to train in a test, and what the tests compare them by."""

from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.type_aliases import GymEnv

from sb3_clearning import CLearning
from sb3_clearning.common.fast_updater import FastUpdater
from sb3_clearning.common.goal_algorithm import GoalAlgorithm


def small_model(env: GymEnv | str, **kwargs: Any) -> CLearning:
    """:return: A model with tiny networks, batches and warm-up; ``kwargs`` go to CLearning"""
    policy_kwargs = {"net_arch": [16, 16], **kwargs.pop("policy_kwargs", {})}
    defaults: dict[str, Any] = {"learning_starts": 12, "batch_size": 16, "buffer_size": 500, "seed": 0, "device": "cpu"}
    return CLearning("MultiInputPolicy", env, policy_kwargs=policy_kwargs, **{**defaults, **kwargs})


def weights(model: GoalAlgorithm) -> dict[str, th.Tensor]:
    """:return: A copy of all weights, the targets' included"""
    return {name: value.detach().clone() for name, value in model.policy.state_dict().items()}


def is_fast(model: GoalAlgorithm) -> bool:
    """:return: Whether the fast updater would do the next updates"""
    return isinstance(model._updater.select(), FastUpdater)


def use_autograd(model: GoalAlgorithm) -> None:
    """Let the autograd updater do all updates."""
    model._updater = model.updater_class(model, model._metrics)


def same(left: dict[str, th.Tensor], right: dict[str, th.Tensor]) -> bool:
    """:return: Whether all weights are equal, bit for bit"""
    return left.keys() == right.keys() and all(th.equal(left[name], right[name]) for name in left)


def changed(left: dict[str, th.Tensor], right: dict[str, th.Tensor], part: str = "") -> bool:
    """:return: Whether some weight of the given part (a prefix of its name) is not equal, and all are finite"""
    names = [name for name in left if name.startswith(part)]
    assert names, f"No weight starts with {part}"
    assert all(th.isfinite(right[name]).all() for name in names)
    return any(not th.equal(left[name], right[name]) for name in names)


def seed_all(seed: int) -> None:
    """Set the generators that training draws from."""
    np.random.seed(seed)
    th.manual_seed(seed)

"""Notices what makes networks and optimizers do more, or other, than their layers' arithmetic: replacements and hooks."""

from collections.abc import Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

import torch as th
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

_MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS: list[Mapping] = [vars(torch_module)[f"_global{name}"] for name in _MODULE_HOOKS]
_OPTIMIZER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GLOBAL_OPTIMIZER_HOOKS: list[Mapping] = [
    vars(torch_optimizer)[name] for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
]
_gradient_hooks = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")


class WatchedNetwork:
    """
    A network as it is now. Its questions are asked at every update and cost some microseconds: dictionaries of torch are held
    instead of walking through the modules.

    :param network: The network
    """

    def __init__(self, network: nn.Module):
        modules = [vars(module) for module in network.modules()]
        self._modules = modules
        self._hooks: list[Mapping] = [module[name] for module in modules for name in _MODULE_HOOKS]
        self._children = [(module["_modules"], tuple(module["_modules"].values())) for module in modules if module["_modules"]]
        self._owners = [
            (module["_parameters"], tuple(module["_parameters"].values())) for module in modules if module["_parameters"]
        ]
        self.parameters = list(network.parameters())
        self._pointers = [parameter.data_ptr() for parameter in self.parameters]

    def is_same(self) -> bool:
        """:return: Whether modules and parameters are still the same, with their data in the same place"""
        return (
            all(tuple(now.values()) == then for now, then in self._children)
            and all(_are_same(now.values(), then) for now, then in self._owners)
            and [parameter.data_ptr() for parameter in self.parameters] == self._pointers
        )

    def runs_plainly(self) -> bool:
        """:return: Whether a forward pass calls nothing but the modules: no hook, no ``forward`` that an instance was given"""
        return (
            not any(self._hooks)
            and not any(_GLOBAL_HOOKS)
            and "extract_features" not in self._modules[0]
            and not any("forward" in module for module in self._modules)
        )

    def learns_plainly(self) -> bool:
        """:return: Whether all parameters are to be trained and no hook waits for a gradient"""
        return all(parameter.requires_grad for parameter in self.parameters) and not any(
            any(_gradient_hooks(parameter)) for parameter in self.parameters
        )


def _are_same(now: Any, then: Sequence[Any]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))  # tensors compare their entries


def steps_plainly(optimizer: th.optim.Optimizer, parameters: Sequence[th.Tensor]) -> bool:
    """
    :param optimizer: An optimizer
    :param parameters: What it should have been made for
    :return: Whether a step is its class's own, without hooks, on one group of exactly these parameters
    """
    own = vars(optimizer)
    return (
        "step" not in own
        and "zero_grad" not in own
        and not any(own[name] for name in _OPTIMIZER_HOOKS)
        and not any(_GLOBAL_OPTIMIZER_HOOKS)
        and len(optimizer.param_groups) == 1
        and _are_same(optimizer.param_groups[0]["params"], parameters)
    )

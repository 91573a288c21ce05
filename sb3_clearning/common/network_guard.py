"""Detects hooks, overrides and replaced modules, which hand-written gradients would ignore."""

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, contains, is_
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
_requires_grad = attrgetter("requires_grad")
_gradient_hooks = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")


class NetworkGuard:
    """
    Records networks and tells whether they changed or got hooks. Checked at every call of ``train`` and every action, so
    it keeps torch's dictionaries instead of walking the modules.
    """

    def __init__(self, *networks: nn.Module):
        modules = [vars(module) for network in networks for module in network.modules()]
        self._modules = modules
        self._hooks: list[Mapping] = [module[name] for module in modules for name in _MODULE_HOOKS]
        self._children = [module["_modules"] for module in modules if module["_modules"]]
        self._owners = [module["_parameters"] for module in modules if module["_parameters"]]
        self._were_children = _values(self._children)
        self._were_parameters = _values(self._owners)
        self._parameters = [parameter for parameter in self._were_parameters if parameter is not None]
        self._pointers = list(map(th.Tensor.data_ptr, self._parameters))

    def is_unchanged(self) -> bool:
        """:return: Whether modules and parameters are still the same, with their data in the same place"""
        return (
            _are_same(_values(self._children), self._were_children)
            and _are_same(_values(self._owners), self._were_parameters)
            and list(map(th.Tensor.data_ptr, self._parameters)) == self._pointers
        )

    def has_default_forward(self) -> bool:
        """:return: Whether a forward pass calls nothing but the modules: no hook, no method overridden on the instance"""
        return (
            not any(self._hooks)
            and not any(_GLOBAL_HOOKS)
            and not any(map(contains, self._modules, repeat("forward")))
            and not any(map(contains, self._modules, repeat("extract_features")))
        )

    def has_default_backward(self) -> bool:
        """:return: Whether all parameters are trained and no parameter has a gradient hook"""
        return all(map(_requires_grad, self._parameters)) and not any(
            chain.from_iterable(map(_gradient_hooks, self._parameters))
        )


def _values(dictionaries: list[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(dict.values, dictionaries)))


def _are_same(now: Sequence[Any], then: Sequence[Any]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))  # `is`, because `==` on tensors is elementwise


def has_default_step(optimizer: th.optim.Optimizer, parameters: Sequence[th.Tensor]) -> bool:
    """:return: Whether a step is its class's own, without hooks, on one group of exactly these parameters"""
    own = vars(optimizer)
    return (
        "step" not in own
        and "zero_grad" not in own
        and not any(own[name] for name in _OPTIMIZER_HOOKS)
        and not any(_GLOBAL_OPTIMIZER_HOOKS)
        and len(optimizer.param_groups) == 1
        and _are_same(optimizer.param_groups[0]["params"], parameters)
    )

"""Layers that networks of several rooms are made of."""

import math

import torch as th
from torch import nn


class BatchedLinear(nn.Module):
    """``n`` linear layers as one batched product, each initialized like ``nn.Linear``."""

    def __init__(self, n: int, in_features: int, out_features: int):
        super().__init__()
        bound = 1 / math.sqrt(in_features) if in_features > 0 else 0.0
        self.weight = nn.Parameter(th.empty(n, in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(th.empty(n, 1, out_features).uniform_(-bound, bound))

    def forward(self, inputs: th.Tensor) -> th.Tensor:
        """:return: ``(n, batch, out_features)`` for inputs ``(n, batch, in_features)``"""
        return th.baddbmm(self.bias, inputs, self.weight)

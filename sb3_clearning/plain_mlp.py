"""
Plain ReLU networks with their gradients written out, for the update's fast path.

Autograd's graph, its allocations and the optimizer's Python cost half as much again as the matrix products of networks of
the usual size.
Here each product writes into memory that is reused, and nothing is computed for parameters that get no gradient.
"""

from collections.abc import Sequence

import torch as th
from torch import nn

from sb3_clearning.policies import BatchedLinear


class PlainMLP:
    """
    ``n`` networks of the same shape, ReLU between their layers, as batched products. It holds no parameters: it works on
    those of
    a module and writes their gradients to ``.grad``.

    :param layers: BatchedLinear layers, or ``nn.Linear`` layers for ``n = 1``
    """

    def __init__(self, layers: list[BatchedLinear] | list[nn.Linear]):
        self.layers: Sequence[BatchedLinear | nn.Linear] = layers
        first = layers[0]
        self.n = first.weight.shape[0] if isinstance(first, BatchedLinear) else 1
        self._hidden: dict[int, list[th.Tensor]] = {}
        self._gradients: dict[int, list[th.Tensor]] = {}

    @staticmethod
    def layers_of(network: nn.Sequential, linear: type[nn.Module]) -> list | None:
        """
        :param network: A network
        :param linear: The class of its linear layers
        :return: Its linear layers if it is linear layers with ReLU between them and at least one hidden layer, else None
        """
        modules = list(network)
        alternate = all(type(module) is (linear, nn.ReLU)[i % 2] for i, module in enumerate(modules))
        if len(modules) < 3 or len(modules) % 2 == 0 or not alternate:
            return None
        return modules[::2]

    @staticmethod
    def weight(layer: BatchedLinear | nn.Linear) -> th.Tensor:
        """:return: The layer's weight, ``(n, in, out)``"""
        return layer.weight.data if isinstance(layer, BatchedLinear) else layer.weight.data.t().unsqueeze(0)

    def _buffers(self, store: dict[int, list[th.Tensor]], batch: int, like: th.Tensor) -> list[th.Tensor]:
        if batch not in store:
            store[batch] = [like.new_empty(self.n, batch, self.weight(layer).shape[2]) for layer in self.layers]
        return store[batch]

    def forward(self, inputs: th.Tensor) -> list[th.Tensor]:
        """
        :param inputs: ``(batch, in)``, the same for all networks
        :return: The inputs ``(n, batch, in)``, the hidden layers after their ReLU, and the output ``(n, batch, out)``, in
            memory
            that the next call with the same batch size overwrites
        """
        activations = [inputs.expand(self.n, *inputs.shape)]
        outputs = self._buffers(self._hidden, len(inputs), inputs)
        for layer, output in zip(self.layers, outputs, strict=True):
            weight, bias = self.weight(layer), layer.bias.data
            if weight.shape[2] == 1:
                # A product with a single column is cheap only as matrix-vector.
                for i in range(self.n):
                    th.mv(activations[-1][i], weight[i, :, 0], out=output[i, :, 0])
                output += bias
            else:
                th.baddbmm(bias.reshape(self.n, 1, -1), activations[-1], weight, out=output)
            if layer is not self.layers[-1]:
                output.relu_()
            activations.append(output)
        return activations

    def backward(self, activations: list[th.Tensor], output_gradient: th.Tensor, parameters: bool) -> th.Tensor:
        """
        :param activations: What :meth:`forward` returned
        :param output_gradient: The loss's gradient with respect to the output, ``(n, batch, out)``
        :param parameters: Whether to write the parameters' gradients
        :return: The gradient with respect to the first layer's output before its ReLU, ``(n, batch, hidden)``
        """
        gradients = self._buffers(self._gradients, output_gradient.shape[1], output_gradient)
        gradient = output_gradient
        for i in range(len(self.layers) - 1, -1, -1):
            layer, weight = self.layers[i], self.weight(self.layers[i])
            if parameters:
                self._write_gradients(layer, activations[i], gradient)
            if i > 0:
                below = gradients[i - 1]
                if weight.shape[2] == 1:
                    th.mul(gradient, weight.transpose(1, 2), out=below)
                else:
                    th.bmm(gradient, weight.transpose(1, 2), out=below)
                # Through the ReLU, in place. Comparing and multiplying by a mask would cost ten times as much.
                gradient = th.ops.aten.threshold_backward.grad_input(below, activations[i], 0, grad_input=below)
        return gradient

    def _write_gradients(self, layer: BatchedLinear | nn.Linear, inputs: th.Tensor, gradient: th.Tensor) -> None:
        if layer.weight.grad is None:
            layer.weight.grad, layer.bias.grad = th.empty_like(layer.weight), th.empty_like(layer.bias)
        weight, bias = layer.weight.grad, layer.bias.grad
        assert bias is not None
        if isinstance(layer, nn.Linear):
            th.mm(gradient[0].t(), inputs[0], out=weight)
            th.sum(gradient[0], dim=0, out=bias)
            return
        if weight.shape[2] == 1:
            for i in range(self.n):
                th.mv(inputs[i].t(), gradient[i, :, 0], out=weight[i, :, 0])
        else:
            th.bmm(inputs.transpose(1, 2), gradient, out=weight)
        th.sum(gradient, dim=1, keepdim=True, out=bias)

    def input_gradient(self, first_gradient: th.Tensor, columns: slice) -> th.Tensor:
        """
        :param first_gradient: What :meth:`backward` returned
        :param columns: Which inputs
        :return: The gradient with respect to these inputs, summed over the networks, ``(batch, columns)``
        """
        weight = self.weight(self.layers[0])[:, columns]
        result = th.mm(first_gradient[0], weight[0].t())
        for i in range(1, self.n):
            result.addmm_(first_gradient[i], weight[i].t())
        return result


def adam_step(optimizer: th.optim.Adam) -> None:
    """
    The same step as a fused ``optimizer.step()``, on the same state, without its Python.

    :param optimizer: A fused Adam with one group of parameters, all with gradients
    """
    group = optimizer.param_groups[0]
    parameters = group["params"]
    if len(optimizer.state) < len(parameters):  # the first step: let the optimizer make its state
        optimizer.step()
        return
    states = [optimizer.state[parameter] for parameter in parameters]
    steps = [state["step"] for state in states]
    th._foreach_add_(steps, 1)
    th._fused_adam_(
        parameters,
        [parameter.grad for parameter in parameters],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        steps,
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )


def is_fused_adam(optimizer: th.optim.Optimizer) -> bool:
    """
    :param optimizer: An optimizer
    :return: Whether :func:`adam_step` can stand for its step
    """
    if type(optimizer) is not th.optim.Adam or len(optimizer.param_groups) != 1:
        return False
    group = optimizer.param_groups[0]
    plain = not any(group[name] for name in ("amsgrad", "maximize", "differentiable", "capturable", "decoupled_weight_decay"))
    return bool(group["fused"]) and plain and not isinstance(group["lr"], th.Tensor)

"""
ReLU networks with their gradients written out, and Adam's step, for the fast updater.

Autograd's graph, its allocations and the optimizer's Python take half as long again as the matrix products of networks of the
usual size. Here products write into reused memory, views are made once, and parameters without a gradient cost nothing. Where
the processor has AVX-512, products go to oneDNN: PyTorch's own go to MKL, which uses AVX-512 on Intel's processors only.
"""

from collections.abc import Sequence
from operator import is_

import torch as th
from torch import nn

from sb3_clearning.layers import BatchedLinear

#: ReLU's backward pass in place. Comparing and multiplying by a mask would cost ten times as much.
_relu_backward = th.ops.aten.threshold_backward.grad_input
#: oneDNN's product, with a bias and a ReLU in the same pass; None without AVX-512, where it is not faster.
_linear = getattr(th.ops.mkldnn, "_linear_pointwise", None) if th.backends.cpu.get_cpu_capability() == "AVX512" else None
#: Below so many multiplications in a product, oneDNN's calls take longer than MKL's.
ONEDNN_SIZE = 2**21


def multiply(
    left: th.Tensor,
    right: th.Tensor,
    out: th.Tensor,
    bias: th.Tensor | None = None,
    relu: bool = False,
    copy: bool = True,
) -> th.Tensor:
    """
    ``out = left @ right + bias``, for ``n`` matrices each, then ReLU if asked for.

    :param left: ``(n, rows, in)``
    :param right: ``(n, in, out)``
    :param bias: ``(n, 1, out)``
    :param copy: Whether the result has to be in ``out``. Else oneDNN's own memory may be returned, where ``n`` is 1
    :return: The result, ``(n, rows, out)``
    """
    result = out
    _, rows, columns = out.shape
    is_large = rows * columns * left.shape[2] >= ONEDNN_SIZE
    if _linear is not None and is_large and out.dtype == th.float32 and out.is_cpu and th.backends.mkldnn.enabled:
        if not out.is_contiguous():  # a transposed view of a layer's gradient: its transpose is written row by row
            left, right, out, copy = right.transpose(1, 2), left.transpose(1, 2), out.transpose(1, 2), True
        after = "relu" if relu else "none"
        for i in range(len(out)):
            product = _linear(left[i], right[i].t(), None if bias is None else bias[i, 0], after, [], "")
            if len(out) == 1 and not copy:
                return product.unsqueeze(0)
            out[i].copy_(product)
        return result
    if bias is None:
        th.bmm(left, right, out=out)
    else:
        th.baddbmm(bias, left, right, out=out)
    return out.relu_() if relu else out


class _Layer:
    """The views that the products of one layer need. An ``nn.Linear`` is a batch of one."""

    def __init__(self, module: BatchedLinear | nn.Linear):
        self.module = module
        self.weight = self._batched(module.weight.data)
        self.weight_t = self.weight.transpose(1, 2)
        self.bias = module.bias.data.reshape(len(self.weight), 1, -1)
        self.n, self.inputs, self.outputs = self.weight.shape
        #: A product with a single column is cheap only as matrix-vector.
        self.is_column = self.outputs == 1
        self.columns = self.weight[:, :, 0].unbind() if self.is_column else ()
        self.biases = self.bias[:, :, 0].unbind() if self.is_column else ()
        self._bind_gradients()

    def _batched(self, weight: th.Tensor) -> th.Tensor:
        return weight if isinstance(self.module, BatchedLinear) else weight.t().unsqueeze(0)

    def _bind_gradients(self) -> None:
        module = self.module
        if module.weight.grad is None or module.bias.grad is None:
            module.weight.grad, module.bias.grad = th.zeros_like(module.weight), th.zeros_like(module.bias)
        self._gradient, self.bias_gradient = module.weight.grad, module.bias.grad.reshape(self.bias.shape)
        self.weight_gradient = self._batched(self._gradient)
        self.column_gradients = self.weight_gradient[:, :, 0].unbind() if self.is_column else ()

    def write_gradients(self, inputs: th.Tensor, gradient: th.Tensor) -> None:
        """Inputs are ``(n, batch, in)``, the loss's gradient with respect to the layer's outputs is ``(n, batch, out)``."""
        if self.module.weight.grad is not self._gradient:  # `zero_grad` was called
            self._bind_gradients()
        if self.is_column:
            for rows, column, result in zip(inputs, gradient[:, :, 0], self.column_gradients, strict=True):
                th.mv(rows.t(), column, out=result)
        else:
            multiply(inputs.transpose(1, 2), gradient, self.weight_gradient)
        th.sum(gradient, dim=1, keepdim=True, out=self.bias_gradient)


class FastMLP:
    """
    ``n`` networks of the same shape, ReLU between their layers, as batched products. It works on the parameters of modules,
    as long as these stay in the same memory, and writes their gradients to ``.grad``.

    :param modules: BatchedLinear layers, or ``nn.Linear`` layers for ``n = 1``
    """

    def __init__(self, modules: Sequence[BatchedLinear] | Sequence[nn.Linear]):
        self.layers = [_Layer(module) for module in modules]
        self.n = self.layers[0].n
        self._outputs: dict[int, list[th.Tensor]] = {}
        self._gradients: dict[int, list[th.Tensor]] = {}

    @staticmethod
    def layers_of(network: nn.Sequential, linear: type[nn.Module]) -> list | None:
        """:return: The linear layers of a network of them with ReLU in between and at least one hidden layer, else None"""
        if type(network) is not nn.Sequential:
            return None
        modules = list(network)
        alternate = all(type(module) is (linear, nn.ReLU)[i % 2] for i, module in enumerate(modules))
        if len(modules) < 3 or len(modules) % 2 == 0 or not alternate:
            return None
        return modules[::2]

    def _buffers(self, store: dict[int, list[th.Tensor]], batch: int, like: th.Tensor) -> list[th.Tensor]:
        if batch not in store:
            store[batch] = [like.new_empty(self.n, batch, layer.outputs) for layer in self.layers]
        return store[batch]

    def forward(self, inputs: th.Tensor, n: int | None = None) -> list[th.Tensor]:
        """
        :param n: Only the first ``n`` networks
        :return: The inputs ``(n, batch, in)``, the hidden layers after their ReLU, and the output ``(n, batch, out)``, in
            memory that the next call with the same batch size overwrites
        """
        n = self.n if n is None else n
        activations = [inputs.expand(n, *inputs.shape)]
        outputs = self._buffers(self._outputs, len(inputs), inputs)
        for layer, output in zip(self.layers, outputs, strict=True):
            weight, bias, is_hidden = layer.weight, layer.bias, layer is not self.layers[-1]
            if n < self.n:
                weight, bias, output = weight[:n], bias[:n], output[:n]
            if layer.is_column:
                columns = zip(activations[-1], layer.columns, layer.biases, output[:, :, 0], strict=False)
                for rows, column, shift, out in columns:
                    th.addmv(shift, rows, column, out=out)
                if is_hidden:
                    output.relu_()
            else:
                output = multiply(activations[-1], weight, output, bias, relu=is_hidden, copy=False)
            activations.append(output)
        return activations

    def backward(self, activations: list[th.Tensor], output_gradient: th.Tensor) -> None:
        """Write the parameters' gradients for the loss's with respect to the output, ``(n, batch, out)``."""
        gradients = self._buffers(self._gradients, output_gradient.shape[1], output_gradient)
        gradient = output_gradient
        for i in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[i]
            layer.write_gradients(activations[i], gradient)
            if i > 0:
                below = gradients[i - 1]
                if layer.is_column:
                    th.mul(gradient, layer.weight_t, out=below)
                else:
                    multiply(gradient, layer.weight_t, below)
                gradient = _relu_backward(below, activations[i], 0, grad_input=below)

    def input_gradient(self, network: int, hidden: list[th.Tensor], output_gradient: th.Tensor, columns: slice) -> th.Tensor:
        """
        The gradient of one network's output with respect to some of its inputs. The parameters' gradients are left alone.

        :param hidden: This network's hidden layers after their ReLU, each ``(batch, …)``
        :param output_gradient: The loss's gradient with respect to the output, ``(batch, out)``
        :return: ``(batch, columns)``
        """
        gradient = output_gradient
        for layer, below in zip(reversed(self.layers[1:]), reversed(hidden), strict=True):
            weight_t = layer.weight_t[network]
            if layer.is_column:
                gradient = gradient * weight_t
            else:
                product = gradient.new_empty(1, len(gradient), layer.inputs)
                multiply(gradient.unsqueeze(0), weight_t.unsqueeze(0), product)
                gradient = product[0]
            gradient = _relu_backward(gradient, below, 0, grad_input=gradient)
        return th.mm(gradient, self.layers[0].weight_t[network][:, columns])


class FastAdam:
    """The same step as that of a fused Adam with one group of parameters, on the same state, without its Python."""

    def __init__(self, optimizer: th.optim.Adam):
        self.optimizer = optimizer
        self._parameters: list[th.Tensor] = []
        self._averages: list[th.Tensor] = []
        self._squares: list[th.Tensor] = []
        self._steps: list[th.Tensor] = []

    @staticmethod
    def supports(optimizer: th.optim.Optimizer) -> bool:
        """:return: Whether :meth:`step` equals its step"""
        if type(optimizer) is not th.optim.Adam or len(optimizer.param_groups) != 1:
            return False
        group = optimizer.param_groups[0]
        options = ("amsgrad", "maximize", "differentiable", "capturable", "decoupled_weight_decay")
        return bool(group["fused"]) and not any(group.get(name) for name in options) and not isinstance(group["lr"], th.Tensor)

    def bind(self) -> None:
        """Look up the optimizer's state, which someone may have loaded or replaced."""
        self._parameters = self.optimizer.param_groups[0]["params"]
        state = self.optimizer.state
        if all(map(is_, state, self._parameters)):  # as a rule in the same order: no lookups
            states = list(state.values())
        else:
            states = [state.get(parameter, {}) for parameter in self._parameters]
        if len(states) < len(self._parameters) or not all(states):
            states = []
        self._averages, self._squares, self._steps = (
            [entry[name] for entry in states] for name in ("exp_avg", "exp_avg_sq", "step")
        )

    def step(self) -> None:
        """Descend the gradients in the parameters' ``.grad``."""
        if not self._steps:  # the first step creates the state
            self.optimizer.step()
            self.bind()
            return
        group = self.optimizer.param_groups[0]
        th._foreach_add_(self._steps, 1)
        th._fused_adam_(
            self._parameters,
            [parameter.grad for parameter in self._parameters],  # type: ignore[misc]
            self._averages,
            self._squares,
            [],
            self._steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

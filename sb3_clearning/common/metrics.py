"""Means of training metrics that stay tensors until the log is written, so that an update never waits for the device."""

import math

import torch as th
from stable_baselines3.common.logger import Logger


class TensorMeans:
    """Running means of named scalars."""

    def __init__(self) -> None:
        self._sums: dict[str, th.Tensor] = {}
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sums

    def add(self, values: dict[str, th.Tensor]) -> None:
        """
        :param values: For each name a scalar
        """
        for name, value in values.items():
            if name in self._sums:
                self._sums[name] += value.detach()
                self._counts[name] += 1
            else:
                self._sums[name] = value.detach().clone()
                self._counts[name] = 1

    def record(self, logger: Logger) -> None:
        """
        Write the means to the log and start anew. This is where the host waits for the device.

        :param logger: The logger
        """
        for name, total in self._sums.items():
            mean = total.item() / self._counts[name]
            if not math.isfinite(mean):
                raise ValueError(
                    f"The metric `{name}` is {mean}: training has diverged. The last checkpoint is whole: go on from it with "
                    "a lower `learning_rate` or `w_clip`."
                )
            logger.record(name, mean)
        self._sums.clear()
        self._counts.clear()

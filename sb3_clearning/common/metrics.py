"""Means of training metrics that stay tensors until the log is written, so that an update never waits for the device."""

import math
from typing import Any

import torch as th
from stable_baselines3.common.logger import Logger

from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.files.json_values import are_numbers, is_count
from sb3_clearning.runs.model_state import DivergedError


class TensorMeans:
    """Running means of named scalars."""

    def __init__(self) -> None:
        self._sums: dict[str, th.Tensor] = {}
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sums

    def add(self, values: dict[str, th.Tensor]) -> None:
        """:param values: For each name a scalar"""
        for name, value in values.items():
            if name in self._sums:
                self._sums[name] += value.detach()
                self._counts[name] += 1
            else:
                self._sums[name] = value.detach().clone()
                self._counts[name] = 1

    def snapshot(self) -> dict[str, tuple[float, int]]:
        """:return: For each name the sum and the count"""
        return {name: (total.item(), self._counts[name]) for name, total in self._sums.items()}

    def restore(self, content: dict[str, Any], device: th.device) -> None:
        """:param content: What :meth:`snapshot` returned"""
        if not all(are_numbers([total]) and is_count(count, 2**62) for total, count in content.values()):
            raise UnreadableFileError("Invalid training metrics in the checkpoint.")
        self._sums = {name: th.tensor(float(total), device=device) for name, (total, _) in content.items()}
        self._counts = {name: count for name, (_, count) in content.items()}

    def record(self, logger: Logger) -> None:
        """Write the means to the log and start over. This is where the host waits for the device."""
        for name, total in self._sums.items():
            mean = total.item() / self._counts[name]
            if not math.isfinite(mean):
                raise DivergedError(f"The metric `{name}` is {mean}")
            logger.record(name, mean)
        self._sums.clear()
        self._counts.clear()

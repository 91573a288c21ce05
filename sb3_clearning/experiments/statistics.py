"""Intervals for results over seeds."""

import math
from collections.abc import Mapping

import numpy as np

#: Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def half_width(values: np.ndarray) -> float:
    """
    :param values: Independent values, ``(n,)``
    :return: Half the width of the 95% t-interval of their mean; NaN for a single value
    """
    n = len(values)
    if n < 2:
        return math.nan
    quantile = T_95[n - 2] if n - 1 <= len(T_95) else 1.96 + 2.5 / (n - 1)
    return float(quantile * np.std(values, ddof=1) / math.sqrt(n))


def paired_differences(left: Mapping[int, float], right: Mapping[int, float]) -> np.ndarray:
    """
    :param left: For each seed a value
    :param right: Likewise
    :return: left - right for the seeds that both have
    """
    return np.array([left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())])


def paired_interval(left: Mapping[int, float], right: Mapping[int, float], digits: int = 3) -> str:
    """
    :param left: For each seed a value
    :param right: Likewise
    :param digits: How many digits to show
    :return: The mean of left - right with its 95% interval; nothing if they are the same
    """
    differences = paired_differences(left, right)
    if len(differences) == 0 or not differences.any():
        return ""
    width = half_width(differences)
    mean = float(differences.mean())
    return f"{mean:+.{digits}f} [{mean - width:+.{digits}f}, {mean + width:+.{digits}f}]"

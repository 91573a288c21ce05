"""Intervals over seeds."""

import math
from collections.abc import Mapping

import numpy as np
from scipy import stats


def half_width(values: np.ndarray) -> float:
    """:return: Half the width of the 95% t-interval of the mean of independent values; NaN for a single value"""
    if len(values) < 2:
        return math.nan
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def paired_differences(left: Mapping[int, float], right: Mapping[int, float]) -> np.ndarray:
    """:return: left - right for the seeds that both have"""
    return np.array([left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())])


def paired_interval(left: Mapping[int, float], right: Mapping[int, float], digits: int = 3) -> str:
    """:return: The mean of left - right with its 95% interval; empty if they are the same"""
    differences = paired_differences(left, right)
    if len(differences) == 0 or not differences.any():
        return ""
    width = half_width(differences)
    mean = float(differences.mean())
    return f"{mean:+.{digits}f} [{mean - width:+.{digits}f}, {mean + width:+.{digits}f}]"

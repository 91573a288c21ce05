"""Comparing many resets with the distribution that the documentation states."""

from typing import Any

import numpy as np
from scipy import stats


def many_resets(task: Any, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """
    Begin many episodes.

    :param task: a task
    :param count: number of resets
    :return: first observations (count, observation) and goals (count, goal)
    """
    pairs = [task.reset(seed=0 if index == 0 else None)[0] for index in range(count)]
    return np.array([pair["observation"] for pair in pairs]), np.array([pair["desired_goal"] for pair in pairs])


def assert_uniform(samples: np.ndarray, low: float, high: float) -> None:
    """
    Check that samples fill a range evenly, and never leave it.

    :param samples: (count,)
    :param low: where the range begins
    :param high: where the range ends
    """
    if low == high:
        np.testing.assert_allclose(samples, low, atol=1e-6)
        return
    assert samples.min() >= low - 1e-6
    assert samples.max() <= high + 1e-6
    # 200 samples of the whole range leave one of its outer twentieths empty once in 14,000 times.
    margin = 0.05 * (high - low)
    assert samples.min() < low + margin
    assert samples.max() > high - margin
    assert stats.kstest(samples, stats.uniform(low, high - low).cdf).pvalue > 1e-3


def assert_independent(left: np.ndarray, right: np.ndarray) -> None:
    """
    Check that two series of samples have nothing to do with each other.

    :param left: (count,)
    :param right: (count,)
    """
    assert stats.spearmanr(left, right).pvalue > 1e-3

"""Point estimates with 95% stratified bootstrap intervals, by rliable (Agarwal et al., 2021)."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from rliable import library, metrics

from sb3_clearning.runs.random_states import preserved_random_states

#: Bootstrap samples. With three seeds, a sample consists of the largest value alone with probability 1/27, just above the 2.5%
#: at each end of an interval: with only 2000 samples the limits would vary.
REPETITIONS = 5000
#: The probability of improvement ranks all values for every sample, which is slow.
IMPROVEMENT_REPETITIONS = 300


class IntervalEstimate(NamedTuple):
    """A point estimate over ``n`` seeds and its interval, from ``low`` to ``high``. With one seed the limits are the value."""

    value: float
    low: float
    high: float
    n: int


def curve_estimates(curve: dict[int, np.ndarray]) -> dict[int, IntervalEstimate]:
    """:return: For each step the mean over its seeds' values ``(n_seeds,)`` and its interval"""
    estimates: dict[int, IntervalEstimate] = {}
    for n_seeds in {len(values) for values in curve.values()}:
        # Steps with the same seeds are resampled together.
        steps = [step for step, values in curve.items() if len(values) == n_seeds]
        found = _means(tuple(tuple(curve[step].tolist()) for step in steps))
        estimates |= dict(zip(steps, found, strict=True))
    return {step: estimates[step] for step in curve}


def estimate_of(values: np.ndarray) -> IntervalEstimate:
    """:return: The mean over seeds' values ``(n_seeds,)`` and its interval"""
    return curve_estimates({0: values})[0]


@lru_cache(maxsize=10_000)  # tables and pictures ask for the same ones
def _means(values: tuple[tuple[float, ...], ...]) -> list[IntervalEstimate]:
    """:return: For each step the mean over seeds and its interval"""
    scores = np.array(values).T[:, None, :]  # (seeds, one task, steps)
    if len(scores) == 1:
        return [IntervalEstimate(value, value, value, 1) for value in scores[0, 0].tolist()]
    points, (low, high) = _interval(scores, lambda sample: sample.mean(axis=(0, 1)), REPETITIONS)
    return [IntervalEstimate(float(p), float(a), float(b), len(scores)) for p, a, b in zip(points, low, high, strict=True)]


def _interval(scores: Any, function: Callable[..., np.ndarray], repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """:return: The point estimates ``(n,)`` and the limits of their intervals ``(2, n)``"""
    if not isinstance(scores, tuple) and len(scores) == 1:
        point = function(scores)
        return point, np.stack([point, point])  # nothing to resample
    with preserved_random_states():
        # Reports are reproducible. rliable takes a `random_state`, but draws from NumPy's global generator.
        np.random.seed(0)
        points, intervals = library.get_interval_estimates({"": scores}, function, reps=repetitions)
    return points[""], intervals[""]


def interquartile_mean(scores: np.ndarray) -> IntervalEstimate:
    """:return: The mean of the middle half of all values of ``(n_seeds, n_tasks)``, and its interval"""
    point, limits = _interval(scores, lambda sample: np.array([metrics.aggregate_iqm(sample)]), REPETITIONS)
    return IntervalEstimate(float(point[0]), float(limits[0, 0]), float(limits[1, 0]), len(scores))


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> IntervalEstimate:
    """:return: The probability that a run of ours ``(n_seeds, n_tasks)`` is above theirs on a random task, and its interval"""

    def probability(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.array([metrics.probability_of_improvement(x, y)])

    point, limits = _interval((ours, theirs), probability, IMPROVEMENT_REPETITIONS)
    return IntervalEstimate(float(point[0]), float(limits[0, 0]), float(limits[1, 0]), min(len(ours), len(theirs)))

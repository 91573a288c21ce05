"""Calibration of predicted probabilities: reliability and the expected calibration error."""

from typing import NamedTuple

import numpy as np


class Reliability(NamedTuple):
    """
    Predictions in bins of equal width; empty bins are left out.

    :param predicted: Mean prediction of each bin
    :param frequency: How often the event happened
    :param n: Number of predictions
    """

    predicted: np.ndarray
    frequency: np.ndarray
    n: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """:return: The mean distance of prediction and frequency over bins, weighted by their predictions"""
        return float((np.abs(self.predicted - self.frequency) * self.n).sum() / self.n.sum())


def reliability(predicted: np.ndarray, happened: np.ndarray, n_bins: int = 10) -> Reliability:
    """
    :param predicted: Probabilities, ``(n,)``
    :param happened: Whether it happened, or how often (within [0, 1]), ``(n,)``
    :param n_bins: Number of bins over [0, 1]
    :return: The reliability of the predictions
    """
    predicted, happened = np.asarray(predicted, dtype=np.float64).ravel(), np.asarray(happened, dtype=np.float64).ravel()
    if predicted.shape != happened.shape or len(predicted) == 0:
        raise ValueError(
            f"Predictions and outcomes need the same length, above 0, not {predicted.shape} and {happened.shape}."
        )
    if predicted.min() < -1e-9 or predicted.max() > 1 + 1e-9:
        raise ValueError(f"Probabilities lie within [0, 1], but these range from {predicted.min()} to {predicted.max()}.")
    bins = np.clip((predicted * n_bins).astype(int), 0, n_bins - 1)
    count = np.bincount(bins, minlength=n_bins)
    kept = count > 0
    mean = np.bincount(bins, predicted, n_bins)[kept] / count[kept]
    frequency = np.bincount(bins, happened, n_bins)[kept] / count[kept]
    return Reliability(mean, frequency, count[kept])

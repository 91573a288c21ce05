"""Plots of the future: density maps, expected images, calibration curves. They need matplotlib."""

from typing import Any

import numpy as np

from sb3_clearning.prediction.calibration import Reliability
from sb3_clearning.prediction.queries import FuturePredictor, Marginal
from sb3_clearning.replay.experience import Values


def density_map(
    axes: Any,
    predictor: FuturePredictor,
    observation: Values,
    action: np.ndarray | None,
    x: np.ndarray,
    y: np.ndarray,
    marginal: Marginal | str | None = None,
    log: bool = False,
) -> Any:
    """
    Draw the predicted density over two-dimensional goals.

    :param axes: Matplotlib axes
    :param predictor: The predictor
    :param observation: A single state
    :param action: The first action, or None for the policy's own
    :param x: The goals' first coordinates, ``(n,)``
    :param y: Their second coordinates, ``(m,)``
    :param marginal: See :meth:`FuturePredictor.density`
    :param log: Whether to draw its logarithm
    :return: The drawn mesh, for a color bar
    """
    goals = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    density = np.asarray(predictor.density(observation, action, goals, marginal)).reshape(len(y), len(x))
    return axes.pcolormesh(x, y, np.log(density) if log else density, shading="auto", cmap="viridis")


def expected_picture(
    predictor: FuturePredictor,
    observation: Values,
    action: np.ndarray | None,
    candidates: np.ndarray,
    pictures: np.ndarray,
    background: np.ndarray | None = None,
) -> np.ndarray:
    """
    The paper's visualization of the expected future: the average of the candidates' pictures with their ratios as weights,
    stretched to [0, 255]. A thin object that may be in many places is hardly visible in it. With a background the difference
    from that is stretched instead.

    :param predictor: The predictor
    :param observation: A single state
    :param action: The first action, or None for the policy's own
    :param candidates: Draws of the marginal, ``(m, …)``
    :param pictures: A picture of each, ``(m, height, width, 3)``
    :param background: What all pictures share, ``(height, width, 3)``; see :func:`background_of`
    :return: ``(height, width, 3)``, uint8
    """
    if len(candidates) != len(pictures):
        raise ValueError(f"Each candidate needs its picture, but there are {len(candidates)} and {len(pictures)}.")
    log_ratios = np.asarray(predictor.log_ratio(observation, action, candidates), dtype=np.float64)
    weights = np.exp(log_ratios - log_ratios.max())
    mean = np.tensordot(weights / weights.sum(), pictures.astype(np.float64), axes=1)
    if background is not None:
        difference = mean - background
        # The pixel that differs most, but for one in a thousand, differs as much as it does in the pictures themselves.
        full = np.abs(pictures[np.argmax(weights)] - background.astype(np.float64)).max()
        most = np.quantile(np.abs(difference).max(axis=-1), 0.999)
        return np.clip(np.round(background + difference * max(full / max(most, 1e-9), 1.0)), 0, 255).astype(np.uint8)
    low, high = mean.min(), mean.max()
    return np.round((mean - low) / max(high - low, 1e-9) * 255).astype(np.uint8)


def background_of(pictures: np.ndarray) -> np.ndarray:
    """
    :param pictures: ``(m, height, width, 3)``, in which something moves
    :return: What does not move, the median of each pixel, ``(height, width, 3)``
    """
    return np.median(pictures, axis=0)


def plot_reliability(axes: Any, found: Reliability, label: str = "") -> None:
    """Plot the frequency of events against their predicted probability."""
    text = f"{label} (calibration error {found.expected_calibration_error:.3f})".strip()
    axes.plot([0, 1], [0, 1], color="gray", linewidth=0.8)
    axes.plot(found.predicted, found.frequency, marker="o", label=text)
    axes.set(xlabel="predicted probability", ylabel="frequency", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8)

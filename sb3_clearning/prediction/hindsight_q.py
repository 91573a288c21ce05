"""HindsightQEstimator: the paper's comparison method, Q-learning with hindsight relabelling, with the same queries."""

from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.replay.experience import Values

READINGS = ("ratio", "density")


class HindsightQEstimator(FutureStateEstimator):
    r"""
    Q-learning on hindsight-relabelled goals (Eq. "q-learning-loss"), read as a density of future states.

    The result depends on how Q is read, which the paper leaves open. Its fixed point is a ratio to the marginal, up to a
    factor: with :math:`\lambda \to 1`, :math:`\lambda p(g) Q = (1 - \lambda) p(s' = g) + \lambda \gamma p(g) E[Q']`, so that
    :math:`Q p(g) \frac{\lambda}{1-\lambda} (1-\gamma)` obeys the recursion of :math:`p_+`. "ratio" reads it this
    way, "density" takes Q itself as the density.

    :param gamma: The discount factor
    :param lambda_: The relabelling ratio, the share of random goals; the paper's hypothesis: :math:`(1 + \gamma) / 2` is best.
        None: that
    :param reading: "ratio" or "density"
    :param arguments: See :class:`FutureStateEstimator`
    """

    methods = ("q",)
    _sums_to_one = False  # Q is a ratio up to a factor only

    def __init__(self, gamma: float = 0.99, lambda_: float | None = None, reading: str = "ratio", **arguments: Any):
        if reading not in READINGS:
            raise ValueError(f"`reading` must be one of {READINGS}, not {reading!r}.")
        self.reading = reading
        arguments = {"absorbing": False, **arguments}  # the loss has no future of a terminal state
        super().__init__(gamma, lambda_=(1 + gamma) / 2 if lambda_ is None else lambda_, **arguments)

    def fit(
        self,
        dataset: Any,
        policy: Any = None,
        method: str = "q",
        steps: int = 10_000,
        deterministic: bool = False,
        progress_bar: bool = False,
        action_space: spaces.Space | None = None,
        random_goals: np.ndarray | None = None,
        n_steps: float | None = None,
    ) -> "HindsightQEstimator":
        """See :meth:`FutureStateEstimator.fit`. The method is "q", and ``n_steps`` must be 1 or None."""
        return super().fit(dataset, policy, method, steps, deterministic, progress_bar, action_space, random_goals, n_steps)

    def _constructor_arguments(self) -> dict[str, Any]:
        return {**super()._constructor_arguments(), "reading": self.reading}

    def log_q(self, observations: Values, actions: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """:return: log Q, ``(n, m)``; arguments as in :meth:`log_ratio`"""
        values = self.log_ratio(observations, actions, goals)
        return values if self.reading == "ratio" else values + self._log_marginal(self.marginal(), goals)

    def _logits(self, states: np.ndarray, actions: np.ndarray, goals: np.ndarray) -> np.ndarray:
        log_values = -np.logaddexp(0, -super()._logits(states, actions, goals))
        if self.reading == "ratio":
            return log_values
        return log_values - self.marginal()(self._goals.decode(goals))[None]

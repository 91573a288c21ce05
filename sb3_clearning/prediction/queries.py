"""FuturePredictor: the queries that every estimator of the future answers."""

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.marginals import KernelMarginal, TableMarginal
from sb3_clearning.replay.experience import Values, take
from sb3_clearning.replay.goal_transitions import check_range

#: Default number of candidates, the goals that answers are averaged over. The paper: 1000.
N_CANDIDATES = 1000
#: How far the odds may be from an average of 1, beside three standard errors, before an answer is not trusted.
ODDS_TOLERANCE = 0.2

#: A set of goals: a function from goals ``(n, …)`` to whether they are in it ``(n,)``, or its values for the candidates.
Event = Callable[[np.ndarray], np.ndarray] | np.ndarray
#: Log density of the marginal, a function of goals ``(n, …)``.
Marginal = Callable[[np.ndarray], np.ndarray]


#: Number of goals that represent the marginal.
N_VISITED = 10_000


def in_chunks(logits: Callable[[slice], np.ndarray], n: int, m: int, chunk: int) -> np.ndarray:
    """
    Evaluate classifiers on n states and m goals, in passes that fit into memory.

    :param logits: A function from a slice of the states to their logits, ``(length of the slice, m)``
    :param chunk: Pairs of a state and a goal in one pass
    :return: ``(n, m)``
    """
    result = np.empty((n, m), dtype=np.float32)
    together = max(chunk // max(m, 1), 1)
    for i in range(0, n, together):
        part = slice(i, i + together)
        result[part] = logits(part)
    return result


class UntrustedAnswerWarning(UserWarning):
    """An answer may be wrong by more than its standard error. The message says why, and what to do."""


def warn_of_answer(message: str) -> None:
    """Warn at the line that asked, whichever query it called."""
    level, frame = 1, sys._getframe()  # noqa: SLF001 (as `warnings` does itself)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(__package__):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UntrustedAnswerWarning, stacklevel=level)


class Estimate(NamedTuple):
    """
    An average over candidates.

    :param value: The estimate, one for each state
    :param standard_error: Its standard error from the sampling of candidates, without the error of the classifier
    """

    value: np.ndarray
    standard_error: np.ndarray


class FuturePredictor(ABC):
    r"""
    Answers queries about :math:`p_+^\pi(s_{t+} \mid s, a)`, the states that a policy visits :math:`\Delta` steps after
    :math:`(s, a)` if :math:`P(\Delta) = (1 - \gamma) \gamma^{\Delta - 1}`.

    States and actions are paired row by row. All of them share the goals and candidates, so that n states and m goals give an
    array ``(n, m)``. The axis of an unbatched state or goal is dropped. :meth:`log_ratio` documents the arguments.
    """

    _states: Encoder
    _actions: Encoder
    _goals: Encoder
    #: Whether the odds for one state are those of one distribution, so that they average 1 over the candidates
    _sums_to_one = True
    _n_candidates = N_CANDIDATES

    @abstractmethod
    def _log_ratios(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        """
        :param observations: ``(n, …)``
        :param actions: Encoded, ``(n, action_size)``, or None for the policy's own
        :param goals: Encoded, ``(m, goal_size)``
        :return: ``(n, m)``
        """

    @abstractmethod
    def _visited_goals(self) -> np.ndarray:
        """:return: Draws of the marginal p(g), encoded, ``(m, goal_size)``"""

    # -- queries -------------------------------------------------------------------------------------------------------

    def log_ratio(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        r"""
        Eq. "prob-ratio": :math:`\log p_+^\pi(g \mid s, a) - \log p(g)`, the logarithm of how much more likely a goal is in
        this state's future than among all visited states.

        :param observations: ``(n, …)``, or a single one
        :param actions: ``(n, …)``, a single one for all, or None for the policy's own
        :param goals: ``(m, …)``, or a single one
        :return: ``(n, m)``. The axis of an unbatched observation or goal is dropped
        """
        self._check_ready()
        single_state, single_goal = self._states.is_single(observations), self._goals.is_single(goals)
        rows, encoded = self._state_and_action(observations, actions)
        ratios = self._log_ratios(rows, encoded, self._goals.encode(goals))
        if single_goal:
            ratios = ratios[:, 0]
        return ratios[0] if single_state else ratios

    def density(
        self, observations: Values, actions: np.ndarray | None, goals: np.ndarray, marginal: Marginal | str | None = None
    ) -> np.ndarray:
        r"""
        :math:`f(g \mid s, a) = p(g)\,C / (1 - C)`, the future state density. Arguments as in :meth:`log_ratio`.

        :param marginal: log p(g) as a function of goals (see :mod:`sb3_clearning.prediction.marginals`); "data": frequencies
            or a sum of kernels from the visited goals; None: relative to the marginal, the ratio itself
        """
        log_density = self.log_ratio(observations, actions, goals)
        if marginal is None:
            return np.exp(log_density)
        model = self.marginal() if marginal == "data" else marginal
        if not callable(model):
            raise ValueError(f'`marginal` must be a function from goals to log densities, "data" or None, not {marginal!r}.')
        return np.exp(log_density + self._log_marginal(model, goals))

    def _log_marginal(self, model: Marginal, goals: np.ndarray) -> np.ndarray:
        """:return: ``(m,)``, or a number for a single goal"""
        single = self._goals.is_single(goals)
        values = np.asarray(model(np.asarray(goals)[None] if single else np.asarray(goals)))
        return values[0] if single else values

    def marginal(self) -> Marginal:
        """:return: A model of the marginal from the visited goals: frequencies if they are finitely many, else kernels"""
        self._check_ready()
        visited = self._visited_goals()
        if self._goals.discrete:
            start = int(self._goals.space.start)  # type: ignore[attr-defined]
            return TableMarginal(self._goals.decode(visited), self._goals.size, lambda goals: np.asarray(goals) - start)
        return KernelMarginal(self._goals.decode(visited))

    def expected_future_state(
        self, observations: Values, actions: np.ndarray | None = None, candidates: np.ndarray | None = None
    ) -> np.ndarray:
        r"""
        :math:`E_{p_+}[g]`, the average of the candidates with their ratios as weights. Arguments as in :meth:`log_ratio`.

        :param candidates: Draws of the marginal p(g), ``(m, …)``; None: visited goals
        :return: ``(n, …)``. For discrete goals: their probabilities
        """
        goals = self._candidates(candidates)
        weights, single = self._weights(observations, actions, goals)
        mean = self._goals.mean(weights @ goals.astype(np.float64))
        return mean[0] if single else mean

    def probability(
        self, observations: Values, actions: np.ndarray | None, event: Event, candidates: np.ndarray | None = None
    ) -> Estimate:
        r"""
        :math:`P_{p_+}(g \in A)`, how likely it is to find the agent in a set of goals at a random future time.
        Arguments as in :meth:`expected_future_state`.

        :param event: A function from goals ``(m, …)`` to whether they are in the set, or its values for the candidates
        :return: The probability and its standard error, ``(n,)`` each
        """
        goals = self._candidates(candidates)
        values = np.asarray(event(self._goals.decode(goals)) if callable(event) else event)
        if values.dtype != bool and values.shape == (len(goals),) and not np.isin(values, (0, 1)).all():
            raise ValueError(f"An event says for each goal whether it is in the set: booleans, not {values.dtype} values.")
        return self._average(observations, actions, goals, np.asarray(values, dtype=bool), "event")

    def expected_reward(
        self,
        observations: Values,
        actions: np.ndarray | None,
        reward_fn: Callable[[np.ndarray], np.ndarray] | np.ndarray,
        candidates: np.ndarray | None = None,
    ) -> Estimate:
        r"""
        :math:`E_{p_+}[r(g)]`; divided by :math:`1 - \gamma` it is the value :math:`Q^\pi(s, a)` of a reward for the states
        that are entered. Arguments as in :meth:`expected_future_state`.

        :param reward_fn: A function from goals ``(m, …)`` to rewards ``(m,)``, or its values for the candidates
        :return: The expected reward and its standard error, ``(n,)`` each
        """
        goals = self._candidates(candidates)
        values = reward_fn(self._goals.decode(goals)) if callable(reward_fn) else reward_fn
        return self._average(observations, actions, goals, np.asarray(values, dtype=np.float64), "reward function")

    # -- implementation ------------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:  # noqa: B027 (most predictors are ready from the start)
        """Raise an error if the predictor is not fitted."""

    def _state_and_action(self, observations: Values, actions: np.ndarray | None) -> tuple[Values, np.ndarray | None]:
        """:return: Observations with an axis of states, and encoded actions for each"""
        n = len(self._states.encode(observations))  # raises an error if they do not fit
        if self._states.is_single(observations):
            observations = take(observations, None)
        if actions is None:
            return observations, None
        encoded = self._actions.encode(actions)
        space = self._actions.space
        if isinstance(space, spaces.Box):
            check_range("The actions", encoded.reshape(-1, *space.shape), space, 0, "row")
        if self._actions.is_single(actions):
            encoded = np.repeat(encoded, n, axis=0)
        if len(encoded) != n:
            raise ValueError(f"There are {n} states but {len(encoded)} actions: give one for each, or a single one for all.")
        return observations, encoded

    def _candidates(self, candidates: np.ndarray | None) -> np.ndarray:
        """:return: Encoded candidates, ``(m, goal_size)``"""
        self._check_ready()
        goals = self._visited_goals()[: self._n_candidates] if candidates is None else self._goals.encode(candidates)
        if len(goals) == 0:
            raise ValueError("There are no candidates: give at least one goal, better a thousand of the visited ones.")
        return goals

    def _weights(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> tuple[np.ndarray, bool]:
        """:return: The candidates' ratios, normalized to add up to 1, ``(n, m)``, and whether the state is a single one"""
        single = self._states.is_single(observations)
        rows, encoded = self._state_and_action(observations, actions)
        log_ratios = self._log_ratios(rows, encoded, goals).astype(np.float64)
        if self._sums_to_one:
            _check_odds(log_ratios)
        ratios = np.exp(log_ratios - log_ratios.max(axis=1, keepdims=True))
        return ratios / ratios.sum(axis=1, keepdims=True), single

    def _average(
        self, observations: Values, actions: np.ndarray | None, goals: np.ndarray, values: np.ndarray, name: str
    ) -> Estimate:
        if values.shape != (len(goals),):
            raise ValueError(f"The {name} must give one value for each of the {len(goals)} candidates, not {values.shape}.")
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise ValueError(f"The {name} gave values that are not finite numbers for some of the candidates.")
        weights, single = self._weights(observations, actions, goals)
        numbers = values.astype(np.float64)
        mean = weights @ numbers
        # The delta method for a ratio of means: sum of w_i^2 (f_i - mean)^2.
        error = np.sqrt((weights**2 * (numbers - mean[:, None]) ** 2).sum(axis=1))
        if values.dtype == bool and values.all() == values.any():
            # If all candidates agree, the delta method gives 0: report the weight of one more candidate instead.
            error = (weights**2).sum(axis=1)
        return Estimate(mean[0], error[0]) if single else Estimate(mean, error)


def _check_odds(log_ratios: np.ndarray) -> None:
    """Warn if the odds ``(n, m)`` of some states do not average 1 over the m candidates, sampling error allowed for."""
    with np.errstate(over="ignore"):
        odds = np.exp(log_ratios)
        mean, error = odds.mean(axis=1), np.sqrt((odds**2).mean(axis=1) / odds.shape[1])
    bad = ~(np.abs(mean - 1) <= ODDS_TOLERANCE + 3 * error) | ~np.isfinite(mean)
    if bad.any():
        worst = np.flatnonzero(bad)[np.abs(np.log(mean[bad])).argmax()]
        warn_of_answer(
            f"For {bad.sum()} of {len(bad)} states the classifier's odds do not average 1 over the candidates: "
            f"{mean[worst]:.2g} ± {error[worst]:.1g} for the worst, number {worst}. The answer is divided by this average, "
            "which leaves the standard error too small. Compare it with some rollouts; more data or a larger `n_steps` may "
            "help."
        )

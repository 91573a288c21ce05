"""The actions of a policy in given states: an SB3 model, a callable, a table, or the policy of the data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.replay.experience import Experience, Values, n_rows, take
from sb3_clearning.replay.goal_transitions import check_range

#: States per call of a policy.
STATES_PER_CALL = 4096


class ActionPool(NamedTuple):
    """
    For each state the actions that the policy may take there, and their probabilities.

    :param actions: ``(n, n_actions, action_size)``, encoded; ``(1, n_actions, action_size)`` if the same for all
    :param probabilities: ``(n, n_actions)``
    :param known: ``(n,)``, whether the policy's action is known; the data does not have the one after an episode's end
    """

    actions: np.ndarray
    probabilities: np.ndarray
    known: np.ndarray


class TablePolicy:
    """
    A table of probabilities as a policy for observations that are not integers.

    :param table: ``(n_states, n_actions)``, rows that add up to 1
    :param state_of: A function of observations ``(n, …)`` that returns their rows of the table, ``(n,)``
    """

    def __init__(self, table: np.ndarray, state_of: Callable[[Any], np.ndarray]):
        self.table, self.state_of = checked_table(table), state_of

    def __call__(self, observations: Values) -> np.ndarray:
        """:return: The probabilities of actions, ``(n, n_actions)``"""
        return self.table[self.state_of(observations)]


def checked_table(table: np.ndarray) -> np.ndarray:
    """Raise an error unless this is a table of probabilities, ``(n_states, n_actions)``."""
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or (table < 0).any() or not np.allclose(table.sum(axis=1), 1.0, atol=1e-4):
        raise ValueError(
            "A table as a policy has the shape (n_states, n_actions) and rows of probabilities that add up to 1; got the "
            f"shape {table.shape}."
        )
    return table


def check_policy(policy: Any, observations: Encoder, actions: Encoder) -> None:
    """Raise an error if the policy does not fit the data's encoders."""
    if isinstance(policy, BaseAlgorithm):
        _check_model(policy, observations, actions)
    elif isinstance(policy, (np.ndarray, list)):
        table = checked_table(np.asarray(policy))
        if not observations.discrete:
            raise ValueError(
                "A plain table as a policy needs data whose observations are indices of states. For other observations pass "
                "`TablePolicy(table, state_of)` with a function from observations to the table's rows."
            )
        if not actions.discrete or table.shape[1] != actions.size or table.shape[0] < observations.size:
            raise ValueError(
                f"The policy's table has the shape {table.shape}, but the data has {observations.size} states and the action "
                f"space {actions.space}."
            )
    elif policy is not None and not callable(policy):
        raise ValueError(f"A policy is an SB3 model, a callable, a table or None (the data's own), not {policy!r}.")


def _check_model(model: BaseAlgorithm, observations: Encoder, actions: Encoder) -> None:
    theirs, ours = model.action_space, actions.space
    same_kind = type(theirs) is type(ours) and theirs.shape == ours.shape
    if not same_kind or (isinstance(theirs, spaces.Discrete) and theirs.n != ours.n):  # type: ignore[attr-defined]
        raise ValueError(f"The policy's action space is {theirs}, but the data's is {ours}.")
    sees, has = model.observation_space, observations.space
    if isinstance(sees, spaces.Dict) != isinstance(has, spaces.Dict):
        raise ValueError(f"The policy's observation space is {sees}, but the data's is {has}.")
    if not isinstance(sees, spaces.Dict) and sees.shape != has.shape:
        raise ValueError(f"The policy takes observations of the shape {sees.shape}, but the data's have {has.shape}.")


def answer_of(policy: Callable[[Any], Any], observations: Any) -> np.ndarray:
    """:return: What a policy that is a function answers: actions, or probabilities"""
    answer = policy(observations)
    if isinstance(answer, tuple):
        raise ValueError(
            "The policy, a function, returned a tuple instead of actions. Pass a model itself, not its `predict`."
        )
    return np.asarray(answer)


def policy_actions(
    policy: Any, observations: Values, states: Encoder, actions: Encoder, n_samples: int, deterministic: bool = False
) -> ActionPool:
    """
    :param policy: An SB3 model, a callable (which returns actions, or ``(n, n_actions)`` probabilities of discrete ones), or a
        table
    :param observations: ``(n, …)``, as the environment gives them; a model's VecNormalize is applied here
    :param states: The observations' encoder
    :param actions: The actions' encoder
    :param n_samples: How many actions are sampled in each state, if the policy does not return probabilities
    :param deterministic: Whether an SB3 model acts deterministically
    :return: The policy's actions in these states
    """
    check_policy(policy, states, actions)
    n = n_rows(observations)
    known = np.ones(n, dtype=bool)
    if isinstance(policy, (np.ndarray, list)):
        rows = np.asarray(observations)
        return ActionPool(np.eye(actions.size, dtype=np.float32)[None], checked_table(np.asarray(policy))[rows], known)

    normalize = policy.get_vec_normalize_env() if isinstance(policy, BaseAlgorithm) else None

    def act(part: Values) -> np.ndarray:
        if isinstance(policy, BaseAlgorithm):
            if normalize is not None:
                part = normalize.normalize_obs(part)  # type: ignore[arg-type]
            return policy.predict(part, deterministic=deterministic)[0]  # type: ignore[arg-type]
        return answer_of(policy, part)

    samples: list[np.ndarray] = []
    for sample in range(max(n_samples, 1)):
        answers = [act(take(observations, slice(i, i + STATES_PER_CALL))) for i in range(0, n, STATES_PER_CALL)]
        answer = np.concatenate(answers)
        if actions.discrete and answer.ndim == 2:  # probabilities: nothing to sample
            if answer.shape != (n, actions.size):
                raise ValueError(
                    f"The policy returned probabilities of the shape {answer.shape}; {(n, actions.size)} is needed."
                )
            return ActionPool(np.eye(actions.size, dtype=np.float32)[None], checked_table(answer), known)
        if sample == 0 and answer.shape != (n, *(actions.space.shape or ())):
            raise ValueError(
                f"The policy returned actions of the shape {answer.shape} for {n} observations, but the data's actions are of "
                f"{actions.space}."
            )
        encoded = actions.encode(answer)
        if isinstance(actions.space, spaces.Box):
            check_range("The policy's actions", encoded.reshape(-1, *actions.space.shape), actions.space, 0, "state")
        samples.append(encoded)
    pool = np.stack(samples, axis=1)
    if actions.discrete:
        return ActionPool(np.eye(actions.size, dtype=np.float32)[None], pool.mean(axis=1), known)
    return ActionPool(pool, np.full(pool.shape[:2], 1 / pool.shape[1]), known)


def following_actions(experience: Experience, actions: Encoder) -> ActionPool:
    """:return: The policy of the data: for each transition the action after it"""
    rows = actions.encode(experience.actions)
    following = np.minimum(np.arange(len(rows)) + 1, len(rows) - 1)
    known = ~experience.ends
    known[-1] = False
    return ActionPool(rows[following][:, None], np.ones((len(rows), 1)), known)

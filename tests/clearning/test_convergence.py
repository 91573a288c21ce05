"""
The paper's appendix on Bellman equations, with our own loss functions: on random small MDPs a table of logits over (s, a, g)
converges to log p+(g | s, a) / p(g), which linear algebra gives.

All probabilities are fractions with a small denominator, so that a batch can hold every transition as often as it occurs, with
every random goal and next action: the loss functions see an ordinary batch, whose mean is the exact expectation. Only futures,
for Monte Carlo, are drawn, by simulation. Training repeats the paper's assignment: the weights w are held while the loss is
minimized.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch as th

from sb3_clearning import CLearning, losses
from tests.support.goal_envs import PointEnv
from tests.support.labelled_losses import mixed_labelled, td_labelled
from tests.support.small_models import small_model

N_STATES, N_ACTIONS = 4, 2
#: Denominators of the transition probabilities and of the policies
N_OUTCOMES, N_CHOICES = 6, 4
N_FUTURES = 400_000
TOLERANCE = 0.05
SEEDS_AND_GAMMAS = [(0, 0.5), (1, 0.8), (2, 0.9)]


def mass(model: CLearning) -> float:
    return losses.log_mass(model.gamma, model.lambda_, model.bootstrap_factor)


class MDP(NamedTuple):
    """
    :param outcomes: ``(s, a, i)``, the equally probable next states
    :param counts: ``(s, a)``, how often a pair occurs in the data
    :param collecting: ``(s, i)``, the equally probable actions of the policy that collects
    :param evaluated: likewise, of another policy
    """

    outcomes: np.ndarray
    counts: np.ndarray
    collecting: np.ndarray
    evaluated: np.ndarray

    def transition_probabilities(self) -> np.ndarray:
        """:return: p(s' | s, a), ``(s, a, s')``"""
        return (self.outcomes[..., None] == np.arange(N_STATES)).mean(axis=2)

    def marginal(self) -> np.ndarray:
        """:return: p(g), the frequency of the next states in the data"""
        joint = self.counts[..., None] * self.transition_probabilities()
        return joint.sum(axis=(0, 1)) / joint.sum()

    def future_probabilities(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """:return: p+(g | s, a) of a policy ``(s, a)``: (1 - gamma) T0 (I - gamma T)^-1, ``(s, a, g)``"""
        first = self.transition_probabilities()
        chain = np.einsum("sa,sat->st", policy, first)
        return (1 - gamma) * first @ np.linalg.inv(np.eye(N_STATES) - gamma * chain)


def _random_mdp(seed: int) -> MDP:
    generator = np.random.default_rng(seed)
    # Outcome 0 of a pair is the next state of a cycle, so that every state is reached from every other
    outcomes = generator.integers(N_STATES, size=(N_STATES, N_ACTIONS, N_OUTCOMES))
    outcomes[:, :, 0] = (np.arange(N_STATES)[:, None] + 1) % N_STATES
    counts = generator.integers(1, 4, size=(N_STATES, N_ACTIONS))
    collecting = generator.integers(N_ACTIONS, size=(N_STATES, N_CHOICES))
    collecting[:, :N_ACTIONS] = np.arange(N_ACTIONS)
    # As far from the collecting policy as can be: what that one does seldom
    evaluated = np.where(collecting.mean(axis=1, keepdims=True) < 0.5, 1, 0) * np.ones_like(collecting)
    return MDP(outcomes, counts, collecting, evaluated)


def _action_probabilities(choices: np.ndarray) -> np.ndarray:
    return (choices[..., None] == np.arange(N_ACTIONS)).mean(axis=1)


class Batch(NamedTuple):
    """
    Every transition as often as it occurs (``states``, ``actions``, ``next_states``); and every such transition with every
    goal of the marginal and every choice of the policy (``random_…``), all as flat indices.
    """

    states: th.Tensor
    actions: th.Tensor
    next_states: th.Tensor
    random_states: th.Tensor
    random_actions: th.Tensor
    random_next_states: th.Tensor
    random_next_actions: th.Tensor
    random_goals: th.Tensor


def _enumerate(mdp: MDP, choices: np.ndarray) -> Batch:
    transitions = [
        (s, a, int(t))
        for s in range(N_STATES)
        for a in range(N_ACTIONS)
        for t in mdp.outcomes[s, a]
        for _ in range(mdp.counts[s, a])
    ]
    with_goals = [
        (s, a, t, int(choice), goal) for s, a, t in transitions for _, _, goal in transitions for choice in choices[t]
    ]  # fmt: skip
    return Batch(*th.tensor(transitions).T, *th.tensor(with_goals).T)


def _simulate_futures(mdp: MDP, gamma: float, seed: int) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
    """Roll the collecting policy out from pairs of the data until a coin of probability 1 - gamma says stop."""
    generator = np.random.default_rng(seed)
    pairs = np.repeat(np.arange(N_STATES * N_ACTIONS), mdp.counts.reshape(-1))
    pairs = np.resize(pairs, N_FUTURES // len(pairs) * len(pairs))
    states, actions = np.divmod(pairs, N_ACTIONS)
    goals = mdp.outcomes[states, actions, generator.integers(N_OUTCOMES, size=len(pairs))]
    going = np.flatnonzero(generator.random(len(pairs)) < gamma)
    while len(going):
        choices = mdp.collecting[goals[going], generator.integers(N_CHOICES, size=len(going))]
        goals[going] = mdp.outcomes[goals[going], choices, generator.integers(N_OUTCOMES, size=len(going))]
        going = going[generator.random(len(going)) < gamma]
    return th.as_tensor(states), th.as_tensor(actions), th.as_tensor(goals)


def _minimize(loss: Callable[[th.Tensor], th.Tensor], logits: th.Tensor) -> th.Tensor:
    """:return: The table that minimizes the loss, from the given one on"""
    table = logits.clone().requires_grad_()
    optimizer = th.optim.LBFGS([table], max_iter=60, tolerance_grad=1e-8, line_search_fn="strong_wolfe")

    def closure() -> th.Tensor:
        optimizer.zero_grad()
        value = loss(table)
        value.backward()
        return value

    optimizer.step(closure)
    return table.detach()


def _train(loss: Callable[[th.Tensor, th.Tensor], th.Tensor], assignments: int) -> np.ndarray:
    """
    :param loss: Of a table and of the table that gives the importance weights
    :param assignments: How often the weights are renewed
    :return: The logits, ``(s, a, g)``
    """
    logits = th.zeros(N_STATES, N_ACTIONS, N_STATES, dtype=th.float64)
    for _ in range(assignments):
        held = logits
        logits = _minimize(lambda table, held=held: loss(table, held), logits)  # type: ignore[misc]
    return logits.numpy()


def _assignments(factor: float) -> int:
    """:return: How many assignments, each of which contracts by the factor, it takes for an error of less than 0.5%"""
    return int(np.ceil(np.log(0.005) / np.log(factor))) + 1


def _random_logits(table: th.Tensor, batch: Batch) -> th.Tensor:
    return table[batch.random_states, batch.random_actions, batch.random_goals]


def _next_weights(held: th.Tensor, batch: Batch) -> th.Tensor:
    return losses.importance_weight(held[batch.random_next_states, batch.random_next_actions, batch.random_goals])


def _td(loss: Callable[..., th.Tensor], batch: Batch, gamma: float, **kwargs: str) -> np.ndarray:
    def of_table(table: th.Tensor, held: th.Tensor) -> th.Tensor:
        next_logits = table[batch.states, batch.actions, batch.next_states]
        return loss(next_logits, _random_logits(table, batch), _next_weights(held, batch), gamma, **kwargs)

    return _train(of_table, _assignments(gamma))


def _assert_log_ratio(logits: np.ndarray, mdp: MDP, policy: np.ndarray, gamma: float) -> None:
    expected = np.log(mdp.future_probabilities(policy, gamma) / mdp.marginal())
    assert np.isfinite(expected).all()
    assert np.abs(logits - expected).max() <= TOLERANCE


def test_the_analytic_answer_is_the_sum_over_the_steps() -> None:
    mdp, gamma = _random_mdp(0), 0.8
    policy = _action_probabilities(mdp.collecting)
    first = mdp.transition_probabilities()
    total, reached = np.zeros_like(first), first
    for step in range(200):
        total = total + (1 - gamma) * gamma**step * reached
        reached = np.einsum("sat,tb,tbu->sau", reached, policy, first)
    np.testing.assert_allclose(mdp.future_probabilities(policy, gamma), total, atol=1e-12)
    np.testing.assert_allclose(total.sum(axis=-1), 1)


@pytest.mark.parametrize(("seed", "gamma"), SEEDS_AND_GAMMAS)
def test_monte_carlo_converges_on_policy(seed: int, gamma: float) -> None:
    mdp = _random_mdp(seed)
    batch = _enumerate(mdp, np.zeros((N_STATES, 1), dtype=int))
    states, actions, goals = _simulate_futures(mdp, gamma, seed)

    def loss(table: th.Tensor, _: th.Tensor) -> th.Tensor:
        return losses.mc_loss(table[states, actions, goals], _random_logits(table, batch))

    _assert_log_ratio(_train(loss, 1), mdp, _action_probabilities(mdp.collecting), gamma)


@pytest.mark.parametrize(("seed", "gamma"), SEEDS_AND_GAMMAS)
def test_td_converges_on_policy(seed: int, gamma: float) -> None:
    mdp = _random_mdp(seed)
    logits = _td(losses.td_loss, _enumerate(mdp, mdp.collecting), gamma)
    _assert_log_ratio(logits, mdp, _action_probabilities(mdp.collecting), gamma)


@pytest.mark.parametrize(("seed", "gamma"), SEEDS_AND_GAMMAS)
def test_td_converges_off_policy_for_another_policy_than_the_collecting_one(seed: int, gamma: float) -> None:
    mdp = _random_mdp(seed)
    evaluated, collecting = _action_probabilities(mdp.evaluated), _action_probabilities(mdp.collecting)
    # What was collected would not pass for the answer
    difference = np.log(mdp.future_probabilities(evaluated, gamma) / mdp.future_probabilities(collecting, gamma))
    assert np.abs(difference).max() > 2 * TOLERANCE
    _assert_log_ratio(_td(losses.td_loss, _enumerate(mdp, mdp.evaluated[:, :1]), gamma), mdp, evaluated, gamma)


@pytest.mark.parametrize(("seed", "gamma"), SEEDS_AND_GAMMAS)
@pytest.mark.parametrize("form", ["bce", "mse"])
def test_td_as_a_labelled_loss_has_the_same_fixed_point_in_both_forms(seed: int, gamma: float, form: str) -> None:
    mdp = _random_mdp(seed)
    logits = _td(td_labelled, _enumerate(mdp, mdp.evaluated[:, :1]), gamma, form=form)
    _assert_log_ratio(logits, mdp, _action_probabilities(mdp.evaluated), gamma)


@pytest.mark.parametrize(
    ("loss_function", "seed", "gamma"),
    [(losses.mixed_loss, 0, 0.5), (mixed_labelled, 1, 0.8), (losses.mixed_loss, 2, 0.9)],
)
def test_the_mixture_converges_on_policy(loss_function: Callable[..., th.Tensor], seed: int, gamma: float) -> None:
    mdp, lambda_ = _random_mdp(seed), 0.6
    batch = _enumerate(mdp, mdp.collecting)
    states, actions, goals = _simulate_futures(mdp, gamma, seed)

    def loss(table: th.Tensor, held: th.Tensor) -> th.Tensor:
        next_logits = table[batch.states, batch.actions, batch.next_states]
        future_logits = table[states, actions, goals]
        random_logits, w = _random_logits(table, batch), _next_weights(held, batch)
        return loss_function(next_logits, future_logits, random_logits, w, gamma, lambda_)

    logits = _train(loss, _assignments(lambda_ * gamma))
    _assert_log_ratio(logits, mdp, _action_probabilities(mdp.collecting), gamma)


@pytest.mark.parametrize(("seed", "gamma", "lambda_"), [(0, 0.5, 0.6), (1, 0.8, 0.3), (2, 0.9, 0.0)])
def test_the_mixture_without_lambda_on_w_looks_further_ahead(seed: int, gamma: float, lambda_: float) -> None:
    """Its fixed point off policy: along the evaluated policy's way, next states and what the collecting one did from there."""
    mdp = _random_mdp(seed)
    evaluated, collecting = _action_probabilities(mdp.evaluated), _action_probabilities(mdp.collecting)
    batch = _enumerate(mdp, mdp.evaluated[:, :1])
    states, actions, goals = _simulate_futures(mdp, gamma, seed)

    def loss(table: th.Tensor, held: th.Tensor) -> th.Tensor:
        of_next, of_future = table[batch.states, batch.actions, batch.next_states], table[states, actions, goals]
        of_random, w = _random_logits(table, batch), _next_weights(held, batch)
        labels, weights = losses.random_label_and_weight(w, gamma, 1.0)
        one = th.ones((), dtype=table.dtype)
        positive = lambda_ * (1 - gamma) * losses.cross_entropy(of_next, one, one).mean()
        positive = positive + (1 - lambda_) * losses.cross_entropy(of_future, one, one).mean()
        return positive + losses.cross_entropy(of_random, labels, weights).mean()

    first, n_pairs = mdp.transition_probabilities(), N_STATES * N_ACTIONS
    entering = lambda_ * (1 - gamma) * first + (1 - lambda_) * mdp.future_probabilities(collecting, gamma)
    chain = np.einsum("sat,tb->satb", first, evaluated).reshape(n_pairs, n_pairs)
    expected = np.linalg.solve(np.eye(n_pairs) - gamma * chain, entering.reshape(n_pairs, N_STATES))
    expected = expected.reshape(N_STATES, N_ACTIONS, N_STATES)
    assert np.abs(_train(loss, _assignments(gamma)) - np.log(expected / mdp.marginal())).max() <= TOLERANCE

    model = small_model(PointEnv(), n_steps=1, gamma=gamma, lambda_=lambda_, lambda_on_w=False)
    np.testing.assert_allclose(expected.sum(axis=-1), np.exp(mass(model)))
    assert mass(small_model(PointEnv(), gamma=gamma, lambda_=lambda_, lambda_on_w=True)) == 0


@pytest.mark.parametrize("lambda_", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("lambda_on_w", [True, False])
def test_what_follows_a_true_end_has_the_mass_of_any_other_future(lambda_: float, lambda_on_w: bool) -> None:
    arguments: dict[str, Any] = {"n_steps": 1, "lambda_": lambda_, "lambda_on_w": lambda_on_w, "gamma": 0.9}
    model = small_model(PointEnv(), terminal="absorbing", **arguments).learn(30)
    batch = model.replay_buffer.sample_goals(64, model.relabelling(), model.gamma)[0]
    batch.dones = th.ones(64)
    labels, weights, w = model._updater.labels_and_weights(batch)
    positive = slice(0, model._updater.random_part(batch).start)
    if lambda_ > 0 or not lambda_on_w:
        assert float(weights[positive].sum()) == pytest.approx(np.exp(mass(model)), rel=1e-5)
    assert (w == 0).all()
    assert float(labels[model._updater.random_part(batch)].sum()) == 0


def _optimal_values(mdp: MDP, gamma: float) -> np.ndarray:
    """:return: The largest p+(g | s, a) of any policy that may depend on g, ``(s, a, g)``, by value iteration"""
    first = mdp.transition_probabilities()
    values = np.zeros_like(first)
    for _ in range(int(np.log(1e-12) / np.log(gamma))):
        values = (1 - gamma) * first + gamma * np.einsum("sat,tg->sag", first, values.max(axis=1))
    return values


@pytest.mark.parametrize(("seed", "gamma"), [(0, 0.5), (1, 0.8), (2, 0.9), (3, 0.9), (4, 0.9)])
def test_goal_conditioned_td_reaches_the_optimal_policy(seed: int, gamma: float) -> None:
    mdp = _random_mdp(seed)
    batch = _enumerate(mdp, np.zeros((N_STATES, 1), dtype=int))

    def loss(table: th.Tensor, held: th.Tensor) -> th.Tensor:
        actor = held.argmax(dim=1)
        batch_of_actor = batch._replace(random_next_actions=actor[batch.random_next_states, batch.random_goals])
        next_logits = table[batch.states, batch.actions, batch.next_states]
        return losses.td_loss(next_logits, _random_logits(table, batch), _next_weights(held, batch_of_actor), gamma)

    logits = _train(loss, _assignments(gamma))
    optimal = _optimal_values(mdp, gamma)
    assert np.abs(logits - np.log(optimal / mdp.marginal())).max() <= TOLERANCE

    actor = logits.argmax(axis=1)
    uniform = mdp.future_probabilities(np.full((N_STATES, N_ACTIONS), 1 / N_ACTIONS), gamma).mean(axis=1)
    advantages = []
    for goal in range(N_STATES):
        policy = np.eye(N_ACTIONS)[actor[:, goal]]
        # The value of its first action: ties may be broken either way
        value = (policy * mdp.future_probabilities(policy, gamma)[..., goal]).sum(axis=1)
        np.testing.assert_allclose(value, optimal[..., goal].max(axis=1), rtol=1e-6)
        advantages.append((value - uniform[:, goal]).max())
    assert max(advantages) > 0.05, "Any policy is nearly optimal here: the test says nothing"

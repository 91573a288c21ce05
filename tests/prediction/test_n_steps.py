"""The estimator's n-step recursion: its fixed points by linear algebra, and one step as it was before there were more."""

from typing import Any

import numpy as np
import pytest
import torch as th
from torch.nn.functional import softplus

from sb3_clearning import FutureStateEstimator, HindsightQEstimator
from sb3_clearning.prediction import training
from tests.support.tabular import Tabular, falling, random_tabular, table_of

GAMMA = 0.8
FOREVER = float("inf")


def estimator(**arguments: Any) -> FutureStateEstimator:
    return FutureStateEstimator(GAMMA, hidden=(32,), learning_rate=falling, seed=0, **arguments)


def test_the_recursion_is_exact_on_policy_by_linear_algebra() -> None:
    mdp = random_tabular(5)
    for n in (1, 3, 10, 100):
        assert np.allclose(mdp.n_step_future(mdp.behavior, GAMMA, n), mdp.future(mdp.behavior, GAMMA))
    assert np.allclose(mdp.n_step_future(mdp.other, GAMMA, 1), mdp.future(mdp.other, GAMMA))
    assert np.allclose(mdp.n_step_future(mdp.other, GAMMA, 100), mdp.future(mdp.behavior, GAMMA))


@pytest.mark.parametrize("n_steps", [1, 3, 10, FOREVER])
def test_the_exact_future_on_policy(n_steps: float) -> None:
    mdp = random_tabular(0)
    found = estimator().fit(mdp.collect(20_000, seed=1), steps=600, n_steps=n_steps)
    assert np.abs(table_of(found, mdp) - mdp.future(mdp.behavior, GAMMA)).max() < 0.035


def two_basins() -> Tabular:
    """Six states in a row, steps to the left or right. The policy drifts to the nearer end: it forgets slowly where it was."""
    states = np.arange(6)
    transitions = np.stack([np.eye(6)[np.maximum(states - 1, 0)], np.eye(6)[np.minimum(states + 1, 5)]], axis=1)
    behavior = np.where((states < 3)[:, None], [0.7, 0.3], [0.3, 0.7])
    return Tabular(transitions, behavior, behavior)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("n_steps", [3, FOREVER])
def test_the_end_of_a_record_is_bootstrapped(n_steps: float, own: bool) -> None:
    mdp = two_basins()
    data, policy = mdp.collect(20_000, seed=1, length=4), None if own else mdp.behavior
    found = estimator().fit(data, policy, steps=800, n_steps=n_steps)
    off = np.abs(table_of(found, mdp) - mdp.future(mdp.behavior, GAMMA))
    assert off.mean() < 0.012


def test_monte_carlo_does_not_see_beyond_the_end_of_a_record() -> None:
    mdp = two_basins()
    data, exact = mdp.collect(20_000, seed=1, length=4), mdp.future(mdp.behavior, GAMMA)
    with pytest.warns(UserWarning, match="longest episode has 4 steps"):
        alone = estimator().fit(data, method="mc", steps=800)
    with pytest.warns(UserWarning, match="longest episode has 4 steps"):
        mixed = estimator().fit(data, method="mixed", steps=800, n_steps=FOREVER)
    off = [np.abs(table_of(found, mdp) - exact).mean() for found in (alone, mixed)]
    assert off[0] > 0.05
    assert 0.015 < off[1] < 0.6 * off[0]  # half of it is n-step


@pytest.mark.parametrize("n_steps", [1, 3, 10])
def test_off_policy_the_first_n_actions_are_the_data_s(n_steps: int) -> None:
    mdp = random_tabular(10)
    exact, biased = mdp.future(mdp.other, GAMMA), mdp.n_step_future(mdp.other, GAMMA, n_steps)
    assert n_steps == 1 or np.abs(biased - exact).max() > 0.15
    found = estimator(average_next_actions=True)
    found.fit(mdp.collect(20_000, seed=1), mdp.other, steps=700, n_steps=n_steps)
    off = np.abs(table_of(found, mdp) - biased)
    assert off.max() < 0.04
    assert off.mean() < 0.012


@pytest.mark.parametrize(("method", "limit"), [("td", 4), ("td", 1000), ("mixed", 1000)])
@pytest.mark.parametrize("n_steps", [1, 3, FOREVER])
def test_an_absorbing_termination_among_episodes_that_are_cut(n_steps: float, method: str, limit: int) -> None:
    # 0 goes to 1 or, with probability 1/4, to the terminal 2; 1 goes to 0.
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(1600):
        state = int(rng.integers(2))
        for step in range(limit):
            following = (2 if rng.random() < 0.25 else 1) if state == 0 else 0
            rows.append((state, following, following == 2, following != 2 and step == limit - 1))
            state = following
            if state == 2:
                break
    states, next_states, terminations, truncations = (np.array(column) for column in zip(*rows, strict=True))
    data = {
        "observations": states,
        "actions": np.zeros(len(rows), dtype=int),
        "next_observations": next_states,
        "terminations": terminations,
        "truncations": truncations,
    }
    chain = np.array([[0, 0.75, 0.25], [1.0, 0, 0], [0, 0, 1.0]])
    exact = (1 - GAMMA) * chain @ np.linalg.inv(np.eye(3) - GAMMA * chain)
    policy = np.ones((3, 1)) if limit == 4 else None  # the data's own policy is not known where an episode was cut
    found = estimator(absorbing=True, n_random=2).fit(data, policy, method, steps=600, n_steps=n_steps)
    predicted = found.density(np.arange(2), np.array(0), np.arange(3), marginal="data")
    assert np.abs(predicted - exact[:2]).max() < 0.05


def one_step_loss(sampler: Any, settings: Any, classifiers: Any, target: Any) -> th.Tensor:
    """The loss of one-step TD and mixed C-learning, written out without windows or discounts."""
    rows = sampler.sample_rows()
    random_rows = np.tile(rows, (1, settings.n_random))
    index = th.from_numpy(rows.reshape(-1))
    pairs = sampler.pairs[index].reshape(*rows.shape, -1)
    goals = [sampler.random_goals(), sampler.goals[index].reshape(*rows.shape, -1)]
    if settings.method == "mixed":
        goals.append(sampler.future_goals(rows))
    inputs = [th.cat([pairs.repeat(1, goal.shape[1] // rows.shape[1], 1), goal], dim=-1) for goal in goals]
    random, next_, *future = classifiers(th.cat(inputs, dim=1)).split([part.shape[1] for part in inputs], dim=1)
    limit = float(np.log(10 / (1 - settings.gamma)))
    with th.no_grad():
        w = sampler.next_values(random_rows, goals[0], lambda x: target(x).clamp(max=limit).exp())
    ended = th.as_tensor(sampler.terminations)
    if settings.absorbing:
        w = w.masked_fill(ended[random_rows], 0.0)
    gamma, lambda_ = settings.gamma, 1.0 if settings.method == "td" else settings.lambda_
    loss = (1 - gamma) * softplus(-next_).mean(dim=-1).sum()
    loss = loss + (gamma * w * softplus(-random) + softplus(random)).mean(dim=-1).sum()
    if future:
        monte_carlo = softplus(-future[0]).mean(dim=-1).sum() + softplus(random).mean(dim=-1).sum()
        loss = lambda_ * loss + (1 - lambda_) * monte_carlo
    if settings.absorbing:
        loss = loss + lambda_ * gamma * (softplus(-next_) * ended[rows].float()).mean(dim=-1).sum()
    return loss


@pytest.mark.filterwarnings("ignore:The longest episode")
@pytest.mark.parametrize("method", ["td", "mixed"])
@pytest.mark.parametrize(
    "arguments", [{"absorbing": False}, {"absorbing": True, "lambda_": 0.3, "n_random": 3, "n_classifiers": 2}]
)
def test_one_step_is_what_it_was_bit_for_bit(arguments: dict[str, Any], method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_tabular(0).collect(2000, seed=1, length=4)
    ends = data.pop("truncations")
    data.update(terminations=ends & (np.arange(2000) % 8 < 4), truncations=ends)
    given = estimator(**arguments).fit(data, method=method, steps=30, n_steps=1)
    other = estimator(**arguments).fit(data, method=method, steps=30, n_steps=2)
    monkeypatch.setattr(training, "_loss", one_step_loss)
    before = estimator(**arguments).fit(data, method=method, steps=30, n_steps=1)

    def weights(found: FutureStateEstimator) -> th.Tensor:
        assert found._network is not None
        return th.cat([parameter.detach().flatten() for parameter in found._network.parameters()])

    assert th.equal(weights(given), weights(before))
    assert not th.equal(weights(other), weights(before))


def test_steps_that_have_no_meaning() -> None:
    data = random_tabular(0).collect(100, seed=1, length=10)
    with pytest.raises(ValueError, match=r'bootstraps nothing, so `n_steps` has no effect.*n_steps=float\("inf"\)'):
        estimator().fit(data, method="mc", n_steps=3)
    with pytest.raises(ValueError, match="Hindsight Q-learning is defined for one step"):
        HindsightQEstimator(GAMMA).fit(data, n_steps=FOREVER)
    for wrong in (0, 2.5, -1, float("nan"), -FOREVER, True, "3"):
        with pytest.raises(ValueError, match=r"`n_steps` must be a whole number of at least 1, or float"):
            estimator().fit(data, n_steps=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`n_steps` are `fit`'s"):
        estimator(n_steps=3)

"""The variants of the ablation differ from CLearning in what they say, and in nothing else."""

from typing import Any

import numpy as np
import pytest
import torch as th
from scipy import stats

from sb3_clearning import CLearning
from sb3_clearning.experiments.suite.ablations import (
    AllPairs,
    AllPairsCritic,
    AppendixShares,
    CommandedGoalsActor,
    FirstClassifier,
    FirstClassifierActor,
    MeanClassifierActor,
    RandomGoalsActor,
    VariedSteps,
    WithoutAchievedGoal,
)
from sb3_clearning.layers import BatchedLinear
from sb3_clearning.replay.batch import GoalBatch
from tests.support.goal_envs import PointEnv
from tests.support.small_models import is_fast, seed_all, use_autograd


def filled(algorithm: type[CLearning], **arguments: Any) -> CLearning:
    """:return: A model with some experience; two of the same arguments are equal"""
    model = algorithm("MultiInputPolicy", PointEnv(), learning_starts=60, seed=0, device="cpu", gamma=0.9, **arguments)
    return model.learn(60)


def actor_after(model: CLearning, batch: GoalBatch) -> th.Tensor:
    """:return: The actor's weights after an update"""
    before = th.nn.utils.parameters_to_vector(model.actor.parameters()).detach().clone()
    model._updater.update_actor(batch)
    after = th.nn.utils.parameters_to_vector(model.actor.parameters()).detach()
    assert not th.equal(before, after)
    return after


def batch_of(model: CLearning) -> GoalBatch:
    seed_all(1)
    return model.replay_buffer.sample_goals(64, model.relabelling(), model.gamma)[0]


def spoil_second(model: CLearning) -> None:
    """Let the second classifier, and its target, say of everything that it is out of reach."""
    for critic in (model.critic, model.critic_target):
        last = critic.classifiers[-1]
        assert isinstance(last, BatchedLinear)
        with th.no_grad():
            last.bias[1] -= 50.0
            last.weight[1] *= -3.0


@pytest.mark.parametrize("algorithm", [FirstClassifierActor, FirstClassifier])
def test_the_actor_follows_the_first_classifier_alone(algorithm: type[CLearning]) -> None:
    found = []
    for spoilt in (False, True):
        model = filled(algorithm)
        if spoilt:
            spoil_second(model)
        found.append(actor_after(model, batch_of(model)))
    assert th.equal(*found)


def test_the_actor_follows_the_mean_of_the_classifiers() -> None:
    arguments: dict[str, Any] = {"pre_tanh_penalty": 0.0, "lambda_on_w": True}
    model, copy = filled(MeanClassifierActor, **arguments), filled(CLearning, **arguments)
    for one in (model, copy):
        spoil_second(one)
    batch = batch_of(model)
    first, second = copy.critic(batch.observations, copy.actor(batch.observations))
    copy.actor.optimizer.zero_grad()
    (-((first + second) / 2).sigmoid().log().mean()).backward()
    copy.actor.optimizer.step()
    expected = th.nn.utils.parameters_to_vector(copy.actor.parameters()).detach()
    assert th.allclose(actor_after(model, batch), expected, atol=1e-6)


def test_importance_weights_of_the_first_classifier() -> None:
    model = filled(FirstClassifier, target_policy_noise=0.0, w_clip=float("inf"))
    spoil_second(model)
    batch = batch_of(model)
    part = model._updater.random_part(batch)
    obs = {key: value[part] for key, value in batch.next_observations.items()}
    with th.no_grad():
        expected = model.critic_target(obs, model.actor_target(obs))[0].exp()
    assert th.allclose(model._updater.importance_weights(batch, part), expected, rtol=1e-5)
    # The smallest of both would be nothing.
    assert filled_like(model)._updater.importance_weights(batch, part).max() < 1e-6


def filled_like(model: CLearning) -> CLearning:
    """:return: A CLearning with the weights of the model"""
    copy = filled(CLearning, target_policy_noise=0.0, w_clip=float("inf"))
    copy.policy.load_state_dict(model.policy.state_dict())
    return copy


@pytest.mark.parametrize("algorithm", [CommandedGoalsActor, RandomGoalsActor])
@pytest.mark.parametrize("fast", [True, False])
def test_the_actor_has_goals_of_its_own(algorithm: type[CommandedGoalsActor], fast: bool) -> None:
    model, copy = filled(algorithm), filled(CLearning)
    assert is_fast(model)
    if not fast:
        use_autograd(model)
        use_autograd(copy)
    batch = batch_of(model)
    seed_all(2)
    ours = actor_after(model, batch)
    seed_all(2)
    own = copy.replay_buffer.sample_goals(64, algorithm.actor_goals, copy.gamma)[0]
    assert th.equal(ours, actor_after(copy, own))
    assert not th.equal(ours, actor_after(filled(CLearning), batch))

    commanded = {goal.tobytes() for goal in model.replay_buffer._commanded_goals(np.arange(60))}
    share = np.mean([goal.tobytes() in commanded for goal in own.observations["desired_goal"].numpy()])
    assert share == algorithm.actor_goals.get("commanded", 0.0)


def test_lambda_is_in_the_weights_and_with_the_appendix_in_the_shares_too() -> None:
    counts, totals = [], []
    for algorithm in (CLearning, AppendixShares):
        model = filled(algorithm, lambda_=0.8)
        batch = batch_of(model)
        weights = model._updater.labels_and_weights(batch)[1]
        kinds = [batch.kinds[kind] for kind in ("next", "future")]
        counts.append([kind.stop - kind.start for kind in kinds])
        totals.append([float(weights[kind].sum()) for kind in kinds])
    assert counts == [[16, 16], [26, 6]]
    assert totals[0] == pytest.approx([0.8 * (1 - 0.9), 0.2])
    assert totals[1] == pytest.approx(totals[0])


@pytest.mark.parametrize(("lambda_", "share"), [(0, 0.0), (0.0, 0.0), (0.05, 0.25), (0.5, 0.25), (0.95, 0.25), (1, 0.5)])
def test_a_kind_without_weight_has_no_share(lambda_: float, share: float) -> None:
    shares = filled(CLearning, lambda_=lambda_).relabelling()
    assert (shares["next"], shares["future"], shares["random"]) == (share, 0.5 - share, 0.5)


def test_all_pairs_are_compared_by_the_symmetric_info_nce_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    model = filled(AllPairs, lambda_=0.0, actor_loss="log_ratio")
    assert isinstance(model.critic, AllPairsCritic)
    batch = batch_of(model)
    losses: list[th.Tensor] = []
    assert {kind: part.stop - part.start for kind, part in batch.kinds.items()} == {"future": 32, "random": 32}
    obs = {key: values[:32] for key, values in batch.observations.items()}
    with th.no_grad():
        one_by_one = [
            model.critic({**obs, "desired_goal": goal.expand_as(obs["desired_goal"])}, batch.actions[:32])
            for goal in obs["desired_goal"]
        ]
        pairs = model.critic.pairs(obs, batch.actions[:32])
    assert th.allclose(pairs, th.stack(one_by_one, dim=2), atol=1e-4)
    expected = 0.0
    for logits in pairs.double().numpy():
        of_states, of_goals = (np.log(np.exp(logits).sum(axis=axis)) for axis in (1, 0))
        expected += np.mean(of_states + of_goals - 2 * np.diag(logits) + 0.1 * of_states**2)
    monkeypatch.setattr(model._updater, "descend_critic", losses.append)
    model._updater.update_critic(batch)
    assert losses[0].item() == pytest.approx(expected, rel=1e-5)
    assert losses[0].requires_grad
    actor_after(model, batch)


def test_all_pairs_tell_the_future_from_the_rest() -> None:
    model = filled(AllPairs, lambda_=0.0, actor_loss="log_ratio", learning_rate=1e-3)
    model.learn_offline(200)
    batch = batch_of(model)
    with th.no_grad():
        logits = model.critic(batch.observations, batch.actions).amin(dim=0)
    assert logits[:32].mean() > logits[32:].mean() + 0.5


def test_a_varied_number_of_steps_is_uniform() -> None:
    model = filled(VariedSteps, n_steps=4)
    seed_all(0)
    (batch,) = model.replay_buffer.sample_goals(4000, {"random": 1.0}, gamma=0.5, n_steps=4)
    (fixed,) = filled(CLearning, n_steps=4).replay_buffer.sample_goals(4000, {"random": 1.0}, gamma=0.5, n_steps=4)
    counts, most = (
        np.bincount(np.log2(1 / np.asarray(one.discounts)).round().astype(int), minlength=5)[1:] for one in (batch, fixed)
    )
    # Near an episode's end there are fewer steps than drawn: a draw of m or more counts as the m that are left.
    left = most / most.sum()
    expected = [sum(left[h] * (0.25 if h > m else 1 - 0.25 * m) for h in range(m, 4)) for m in range(4)]
    assert stats.chisquare(counts, np.array(expected) * counts.sum()).pvalue > 1e-3


def test_without_the_achieved_goal_the_networks_do_not_depend_on_it() -> None:
    for algorithm, depends in ((CLearning, True), (WithoutAchievedGoal, False)):
        model = filled(algorithm)
        model.learn_offline(5)
        batch = batch_of(model)
        other = {**batch.observations, "achieved_goal": batch.observations["achieved_goal"] + 1}
        with th.no_grad():
            actions = [model.actor(obs) for obs in (batch.observations, other)]
            logits = [model.critic(obs, batch.actions) for obs in (batch.observations, other)]
        assert th.equal(*actions) != depends
        assert th.equal(*logits) != depends

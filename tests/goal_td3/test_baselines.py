"""GoalTD3: the relabelling schemes, the targets, and whole updates against a plain reimplementation."""

from typing import Any

import numpy as np
import pytest
import torch as th

from sb3_clearning import GoalTD3
from sb3_clearning.goal_td3.goal_td3 import RELABELLING
from sb3_clearning.replay.batch import GoalBatch
from tests.support.goal_envs import PointEnv
from tests.support.small_models import same, seed_all, weights


def model_with_data(**arguments: Any) -> GoalTD3:
    arguments = {"policy_kwargs": {"net_arch": [16]}, "batch_size": 16, **arguments}
    model = GoalTD3("MultiInputPolicy", PointEnv(), seed=0, learning_starts=200, **arguments)
    model.learn(200)
    return model


def batch_of(model: GoalTD3, size: int = 64) -> GoalBatch:
    return model.replay_buffer.sample_goals(size, model.relabelling(), gamma=model.gamma)[0]


@pytest.mark.parametrize("relabel", [*RELABELLING, {"future": 0.8, "original": 0.2}, {"next": 0.05, "random": 0.95}], ids=str)
@pytest.mark.parametrize("q_loss", ["mse", "bce"])
def test_trains_with_every_relabelling(relabel: Any, q_loss: str) -> None:
    model = model_with_data(relabel=relabel, q_loss=q_loss)
    before = weights(model)
    model.learn(20, reset_num_timesteps=False)
    after = weights(model)
    assert not same(before, after)
    assert all(value.isfinite().all() for value in after.values())


@pytest.mark.parametrize(("relabel", "share"), [("none", 0.0), ("next", 0.5)])
def test_the_reward_is_one_where_the_goal_is_the_next_state(relabel: str, share: float) -> None:
    batch = batch_of(model_with_data(relabel=relabel), 1000)
    goals, achieved = batch.observations["desired_goal"], batch.next_observations["achieved_goal"]
    expected = th.tensor([float(bool((g == a).all())) for g, a in zip(goals, achieved, strict=True)])
    assert (batch.returns == expected).all()
    assert batch.returns.mean().item() == pytest.approx(share, abs=0.02)  # a random goal may be the next state by chance


def test_final_goals_are_reached_at_the_last_step_only() -> None:
    batch = batch_of(model_with_data(relabel="her"), 2000)
    last = batch.observations["observation"][:, 2] > 0.85  # the tenth step of ten: its clock before the step says 0.9
    in_a_corner = (batch.observations["desired_goal"].abs() == 1).all(dim=1)  # where the point may stay until the end
    assert batch.returns[last].all()
    assert not batch.returns[~last & ~in_a_corner].any()
    assert 0 < last.float().mean() < 0.2


@pytest.mark.parametrize("q_loss", ["mse", "bce"])
def test_targets_are_one_or_the_discounted_smallest_value(q_loss: str) -> None:
    model = model_with_data(q_loss=q_loss, target_policy_noise=0.0)
    batch = batch_of(model)
    with th.no_grad():
        actions = model.actor_target(batch.next_observations)
        outputs = model.critic_target(batch.next_observations, actions)
    for i, target in enumerate(model._updater.targets(batch)):
        values = [float(1 / (1 + np.exp(-o))) if q_loss == "bce" else float(o) for o in outputs[:, i].tolist()]
        assert target.item() == pytest.approx(1.0 if batch.returns[i] else model.gamma * min(values), abs=1e-5)


@pytest.mark.parametrize("q_loss", ["mse", "bce"])
def test_updates_equal_a_plain_reimplementation(q_loss: str) -> None:
    model, reference = (
        model_with_data(
            q_loss=q_loss, policy_kwargs={"net_arch": [16], "standardize": False, "optimizer_kwargs": {"fused": False}}
        )
        for _ in range(2)
    )
    seed_all(1)
    model.train(gradient_steps=20, batch_size=16)
    seed_all(1)
    batches = reference.replay_buffer.sample_goals(16, reference.relabelling(), gamma=reference.gamma, n_batches=20)
    for batch in batches:
        with th.no_grad():
            smooth = (th.randn(16, 2) * 0.2).clamp(-0.5, 0.5)
            actions = (reference.actor_target(batch.next_observations) + smooth).clamp(-1, 1)
            target_outputs = reference.critic_target(batch.next_observations, actions)
            target_values = th.sigmoid(target_outputs) if q_loss == "bce" else target_outputs
            y = th.where(batch.returns > 0, 1.0, 0.99 * target_values.min(dim=0).values)
        losses = []
        for output in reference.critic(batch.observations, batch.actions):
            q = th.sigmoid(output)
            entropy = -(y * q.log() + (1 - y) * (1 - q).log())
            losses.append((entropy if q_loss == "bce" else (output - y) ** 2).mean())
        reference.critic.optimizer.zero_grad()
        sum(losses).backward()  # type: ignore[union-attr]
        reference.critic.optimizer.step()
        first = reference.critic(batch.observations, reference.actor(batch.observations))[0]
        reference.actor.optimizer.zero_grad()
        features = reference.actor.extract_features(batch.observations, reference.actor.features_extractor)
        penalty = reference.pre_tanh_penalty * (reference.actor.mu[:-1](features) ** 2).mean()
        (penalty - (th.sigmoid(first) if q_loss == "bce" else first).mean()).backward()
        reference.actor.optimizer.step()
        for network, target in ((reference.critic, reference.critic_target), (reference.actor, reference.actor_target)):
            for source, slow in zip(network.parameters(), target.parameters(), strict=True):
                slow.data = slow.data + 0.005 * (source.data - slow.data)
    ours, theirs = weights(model), weights(reference)
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"relabel": "future"}, "`relabel` must be one of"),
        ({"relabel": {"next": 0.5}}, "add up to 1"),
        ({"relabel": {"nxt": 1.0}}, "Unknown kinds of goals"),
        ({"q_loss": "l1"}, "`q_loss` must be"),
    ],
)
def test_errors_say_what_to_do(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoalTD3("MultiInputPolicy", PointEnv(), **arguments)


def test_saves_and_loads(tmp_path: Any) -> None:
    model = model_with_data(relabel={"next": 0.2, "random": 0.8})
    model.save(tmp_path / "model")
    loaded = GoalTD3.load(tmp_path / "model")
    assert loaded.relabelling() == {"next": 0.2, "random": 0.8}
    obs = PointEnv().reset(seed=0)[0]
    assert (loaded.predict(obs)[0] == model.predict(obs)[0]).all()

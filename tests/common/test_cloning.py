"""Behavior cloning in the actor's loss: what it adds, and when."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.sac.policies import Actor as GaussianActor

from sb3_clearning import CLearning, GoalTD3, ResumableCheckpoint, collect
from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.replay.batch import GoalBatch
from tests.support.goal_envs import PointEnv
from tests.support.offline_models import offline_model
from tests.support.small_models import same, weights


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
@pytest.mark.parametrize("stochastic", [False, True])
def test_the_actors_gradient_is_the_sum_of_both(algorithm: type[GoalAlgorithm], stochastic: bool) -> None:
    gradients = []
    for weight in (0.0, 0.3):
        model = offline_model(algorithm, stochastic, bc_coef=weight)
        model._session.offline = True
        updater = model.updater_class(model, model._metrics)
        th.manual_seed(0)
        np.random.seed(0)
        batch = model.replay_buffer.sample_goals(64, model.relabelling(), model.gamma, env=None)[0]
        outputs, regularization = updater.actor_outputs(batch)
        loss = -outputs[0].mean() + regularization
        gradients.append(th.cat([gradient.flatten() for gradient in th.autograd.grad(loss, [*model.actor.parameters()])]))
    # The density of the squashed Gaussian, from the change of variables.
    if stochastic:
        assert isinstance(model.actor, GaussianActor)
        mean, log_std, _ = model.actor.get_action_dist_params(batch.observations)
        clipped = batch.actions.clamp(-1 + 1e-6, 1 - 1e-6)
        gaussian = th.distributions.Normal(mean, log_std.exp())
        log_prob = gaussian.log_prob(clipped.atanh()).sum(dim=1) - th.log(1 - clipped**2 + 1e-6).sum(dim=1)
        cloning = -log_prob.mean()
    else:
        cloning = ((model.actor(batch.observations) - batch.actions) ** 2).mean()
    alone = th.cat([gradient.flatten() for gradient in th.autograd.grad(cloning, [*model.actor.parameters()])])
    assert alone.abs().max() > 1e-3
    th.testing.assert_close(gradients[1] - gradients[0], 0.3 * alone, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_large_coefficient_gives_the_datas_actions(stochastic: bool) -> None:
    model = offline_model(stochastic=stochastic, bc_coef=100.0).learn_offline(400)
    states = np.random.default_rng(1).uniform(-0.9, 0.9, (200, 2)).astype(np.float32)
    obs = {"observation": states, "achieved_goal": states, "desired_goal": states[::-1].copy()}
    found = model.predict(obs, deterministic=True)[0]
    assert np.abs(found - 0.5 * states[:, :1]).mean() < 0.08
    free = offline_model(stochastic=stochastic, bc_coef=0.0).learn_offline(400)
    assert np.abs(free.predict(obs, deterministic=True)[0] - 0.5 * states[:, :1]).mean() > 0.2


def test_it_is_for_offline_learning_alone() -> None:
    found = []
    settings: list[dict[str, Any]] = [{"bc_coef": 0.0}, {}, {"bc_coef": 10.0}]
    for arguments in settings:
        model = CLearning("MultiInputPolicy", PointEnv(), learning_starts=20, seed=0, device="cpu", **arguments)
        found.append(weights(model.learn(60)))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_online_the_share_of_offline_updates_is_left_of_it(tmp_path: Path) -> None:
    found: list[float] = []

    class Noting(ClassifierUpdater):
        def update_actor(self, batch: GoalBatch) -> None:
            found.append(self.model.cloning_weight)
            super().update_actor(batch)

    class Noted(CLearning):
        updater_class = Noting

    arguments: dict[str, Any] = {"learning_starts": 10, "bc_coef": 0.2, "seed": 0, "device": "cpu"}
    model = Noted("MultiInputPolicy", PointEnv(), **arguments)
    model.replay_buffer.load_dataset(collect("random", PointEnv(), 50, seed=0))
    model.learn_offline(4)
    expected = [0.2] * 4 + [0.2 * 4 / n for n in range(5, 21)]
    model.learn(16, callback=ResumableCheckpoint(tmp_path / "run", every=5))
    assert np.allclose(found, expected)
    # A model that was saved or resumed knows it, too.
    model.save(tmp_path / "model")
    loaded = Noted.load(tmp_path / "model", PointEnv(), device="cpu")
    for other in (loaded, Noted.resume(tmp_path / "run", PointEnv())):
        assert other.n_offline_updates == 4
        assert other._n_updates > 4
        assert other.cloning_weight == pytest.approx(0.2 * 4 / other._n_updates)


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_online_the_learned_policy_acts_from_the_first_step(algorithm: type[GoalAlgorithm]) -> None:
    arguments: dict[str, Any] = {"learning_starts": 30, "action_noise": None, "seed": 0, "device": "cpu"}
    model = algorithm("MultiInputPolicy", PointEnv(), policy_kwargs={"net_arch": [16]}, **arguments)
    model.replay_buffer.load_dataset(collect("random", PointEnv(), 50, seed=0))
    model.learn_offline(3)
    policy = copy.deepcopy(model.policy)
    model.learn(1)
    assert model._n_updates == 4
    transitions = model.replay_buffer.transitions()
    state = {key: value[-1:] for key, value in transitions.observations.items()}
    expected = policy.scale_action(policy.predict(state, deterministic=True)[0])
    np.testing.assert_allclose(transitions.actions[-1:], expected, rtol=0, atol=1e-6)


def test_learn_offline_clones_by_default() -> None:
    settings: list[dict[str, Any]] = [{}, {"bc_coef": 0.3}, {"bc_coef": 0.0}]
    found = [weights(offline_model(**arguments).learn_offline(5)) for arguments in settings]
    assert same(found[0], found[1])
    assert not same(found[0], found[2])

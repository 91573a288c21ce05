"""The fast updater gives the numbers of the autograd one, and never waits for the device."""

from typing import Any

import pytest
import stable_baselines3.common.policies
import torch as th
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import CombinedExtractor
from torch import nn
from torch.profiler import ProfilerActivity, profile

from sb3_clearning import CLearning, GoalTD3
from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.common.updater import MEASURE_EVERY
from sb3_clearning.experiments.suite.ablations import AppendixShares, CommandedGoalsActor, RandomGoalsActor
from sb3_clearning.goal_td3.updater import QUpdater
from tests.support.goal_envs import PointEnv
from tests.support.small_models import is_fast, use_autograd


def filled_model(algorithm: type[CLearning] | type[GoalTD3] = CLearning, **arguments: Any) -> CLearning | GoalTD3:
    model = algorithm("MultiInputPolicy", PointEnv(), seed=0, learning_starts=300, batch_size=64, **arguments)
    model.learn(300)
    return model


def parameters(model: GoalAlgorithm) -> th.Tensor:
    return th.cat([parameter.detach().double().flatten() for parameter in model.policy.parameters()])


def train(model: GoalAlgorithm, updates: int, fast: bool) -> None:
    assert is_fast(model)
    if not fast:
        use_autograd(model)
    model.set_logger(Logger(None, []))
    model.set_random_seed(1)
    model._session.offline = model.bc_coef == 0.7
    model.train(gradient_steps=updates, batch_size=64)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"lambda_": 0.6},
    {"lambda_": 0.0},
    {"n_steps": 1, "lambda_": 0.3, "lambda_on_w": False, "actor_loss": "log_ratio"},
    {"classifier_loss": "mse", "actor_loss": "prob"},
    {"n_steps": 10, "lambda_": 1.0},
    {"n_steps": 3, "terminal": "absorbing", "commanded_goal_fraction": 0.5},
    {"n_steps": float("inf"), "lambda_": 0.6, "classifier_loss": "mse"},
    {"algorithm": GoalTD3, "n_steps": 5},
    {"terminal": "absorbing", "commanded_goal_fraction": 0.5, "policy_delay": 2},
    {"pre_tanh_penalty": 0.3, "policy_kwargs": {"standardize": False}},
    {"pre_tanh_penalty": 0.0, "policy_kwargs": {"n_critics": 1, "net_arch": [16]}},
    {"policy_kwargs": {"n_critics": 3, "net_arch": {"pi": [32, 16, 8], "qf": [24, 48]}}},
    {"policy_kwargs": {"optimizer_kwargs": {"fused": True, "weight_decay": 1e-3, "betas": (0.8, 0.99)}}},
    {"algorithm": GoalTD3, "gamma": 0.9},
    {"algorithm": GoalTD3, "relabel": "her_half", "q_loss": "bce", "policy_delay": 2, "pre_tanh_penalty": 0.3},
    {"algorithm": GoalTD3, "relabel": "none", "policy_kwargs": {"n_critics": 1, "net_arch": [16], "standardize": False}},
    {"algorithm": GoalTD3, "policy_kwargs": {"n_critics": 3, "net_arch": {"pi": [32, 16, 8], "qf": [24, 48]}}},
    {"bc_coef": 0.7},
    {"algorithm": GoalTD3, "bc_coef": 0.7},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_hundred_updates_equal_those_of_autograd(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fast, general = filled_model(**options), filled_model(**options)
    # SB3's preprocessing makes float32 of every observation.
    monkeypatch.setattr(stable_baselines3.common.policies, "preprocess_obs", lambda obs, *_, **__: obs)
    for model in (fast, general):
        # In float64: Adam divides by the gradient's size, so that rounding in a gradient close to zero becomes a whole step.
        model.policy.double()
        model.replay_buffer.to_torch = lambda array, copy=True: th.as_tensor(array).double()  # type: ignore[method-assign]
    before = parameters(fast)
    train(fast, 100, fast=True)
    train(general, 100, fast=False)
    assert (parameters(fast) - before).abs().max() > 1e-2
    assert (parameters(fast) - parameters(general)).abs().max() < 1e-9


@pytest.mark.parametrize("options", [*OPTIONS[:9], *OPTIONS[14:16]], ids=str)
def test_logs_equal_those_of_autograd(options: dict[str, Any]) -> None:
    values = []
    for fast in (True, False):
        model = filled_model(**options)
        train(model, 5, fast)
        model._metrics.record(model.logger)
        values.append({name: value for name, value in model.logger.name_to_value.items() if name.startswith("train/")})
    assert values[0].keys() == values[1].keys()
    assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_acts_as_predict_does(algorithm: type[CLearning] | type[GoalTD3]) -> None:
    model = filled_model(algorithm)
    assert is_fast(model)
    env = model.get_env()
    assert env is not None
    obs = env.reset()
    assert isinstance(obs, dict)
    expected = model.policy.scale_action(model.predict(obs, deterministic=True)[0])
    assert model._act(obs) == pytest.approx(expected, abs=1e-6)


class Doubled(CombinedExtractor):
    def forward(self, observations: Any) -> th.Tensor:
        return 2 * super().forward(observations)


class StillTargets(ClassifierUpdater):
    def update_targets(self) -> None:
        pass


class OwnTargets(CLearning):
    updater_class = StillTargets


class AbsoluteError(QUpdater):
    def critic_loss(self, outputs: th.Tensor, targets: th.Tensor) -> th.Tensor:
        return (outputs - targets).abs().mean(dim=1).sum()


class OwnLoss(GoalTD3):
    updater_class = AbsoluteError


@pytest.mark.parametrize(
    "policy_kwargs",
    [
        {"activation_fn": nn.Tanh},
        {"stochastic_actor": True},
        {"features_extractor_class": Doubled},
        {"optimizer_class": th.optim.SGD},
        {"optimizer_kwargs": {"amsgrad": True, "fused": True}},
        {"optimizer_kwargs": {"fused": False}},
        {"net_arch": []},
    ],
    ids=str,
)
def test_other_networks_and_optimizers_need_autograd(policy_kwargs: dict[str, Any]) -> None:
    model = filled_model(policy_kwargs=policy_kwargs)
    assert not is_fast(model)
    before = parameters(model)
    model.train(gradient_steps=3, batch_size=64)
    assert (parameters(model) - before).abs().max() > 0


@pytest.mark.parametrize("algorithm", [OwnTargets, OwnLoss])
def test_a_subclass_with_an_updater_of_its_own_uses_it(algorithm: type[GoalAlgorithm]) -> None:
    model = filled_model(algorithm)  # type: ignore[arg-type]
    assert not is_fast(model)
    assert type(model._updater) is algorithm.updater_class
    before, targets = parameters(model), [parameter.clone() for parameter in model.critic_target.parameters()]
    model.train(gradient_steps=3, batch_size=64)
    assert (parameters(model) - before).abs().max() > 0
    stay = all(th.equal(*pair) for pair in zip(targets, model.critic_target.parameters(), strict=True))
    assert stay == (algorithm is OwnTargets)


@pytest.mark.parametrize("algorithm", [AppendixShares, CommandedGoalsActor, RandomGoalsActor])
def test_ablations_that_change_batches_only_stay_fast(algorithm: type[CLearning]) -> None:
    assert is_fast(filled_model(algorithm))


def test_parameters_that_were_frozen_since_stay_as_they_are() -> None:
    model = filled_model()
    train(model, 3, fast=True)
    frozen = next(model.actor.parameters())
    frozen.requires_grad_(False)
    before, others = frozen.clone(), parameters(model)
    model.train(gradient_steps=3, batch_size=64)
    assert (frozen == before).all()
    assert (parameters(model) - others).abs().max() > 0


def test_loaded_optimizers_continue(tmp_path: Any) -> None:
    model = filled_model()
    train(model, 10, fast=True)
    model.save(tmp_path / "model")
    loaded = CLearning.load(tmp_path / "model", env=PointEnv())
    loaded.replay_buffer = model.replay_buffer
    for one in (model, loaded):
        train(one, 10, fast=True)
    assert (parameters(model) == parameters(loaded)).all()


def waits(profiled: profile) -> int:
    """:return: How often the host read a tensor. The fused Adam's own reading of its step counter, on the host, is no wait."""

    def inside_adam(event: Any) -> bool:
        return event is not None and (event.name == "aten::_fused_adam_" or inside_adam(event.cpu_parent))

    return sum(event.name == "aten::_local_scalar_dense" and not inside_adam(event) for event in profiled.events() or [])


def test_an_update_outside_of_the_logging_step_waits_for_nothing() -> None:
    model = filled_model()
    model.train(gradient_steps=2 * MEASURE_EVERY, batch_size=64)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        model.train(gradient_steps=2 * MEASURE_EVERY, batch_size=64)
    calls = {event.key: event.count for event in profiled.key_averages()}
    assert calls["aten::_fused_adam_"] == 4 * MEASURE_EVERY  # one kernel for each of the two optimizers
    assert calls["aten::_foreach_lerp_"] == 2 * MEASURE_EVERY  # one for all targets
    assert waits(profiled) == 0
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        model._metrics.record(model.logger)
    assert waits(profiled) > 0

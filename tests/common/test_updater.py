"""Replaced networks, hooks and frozen parameters: our models, fast updater included, do what SB3's TD3 does."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3 import TD3
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.logger import Logger
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from sb3_clearning import CLearning, CLearningPolicy, GoalTD3
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from tests.support.goal_envs import PointEnv
from tests.support.small_models import is_fast

ALGORITHMS: list[type[TD3]] = [TD3, CLearning, GoalTD3]
UPDATES = 4


def filled(algorithm: type[TD3], steps: int = 41, **arguments: Any) -> Any:
    policy_kwargs = {"net_arch": [16, 16], **arguments.pop("policy_kwargs", {})}
    model = algorithm(
        "MultiInputPolicy",
        PointEnv(),
        learning_starts=40,
        batch_size=16,
        policy_delay=1,
        policy_kwargs=policy_kwargs,
        seed=0,
        replay_buffer_class=None if issubclass(algorithm, GoalAlgorithm) else DictReplayBuffer,
        **arguments,
    )
    model.learn(steps)
    model.set_logger(Logger(None, []))
    return model


def train(model: Any) -> None:
    model.train(gradient_steps=UPDATES, batch_size=16)


def moved(model: Any, action: Callable[[Any], Any] = train) -> set[str]:
    """:return: The parts of the policy, such as "actor" or "critic_target", with a parameter that changes"""
    before = {name: value.clone() for name, value in model.policy.named_parameters()}
    action(model)
    changed = [name for name, value in model.policy.named_parameters() if not th.equal(value, before[name])]
    return {name.partition(".")[0] for name in changed}


ALL = {"actor", "actor_target", "critic", "critic_target"}


def other_policy(model: Any) -> None:
    model.policy = copy.deepcopy(model.policy)
    for network in (model.policy.actor, model.policy.critic):
        network.optimizer = th.optim.Adam(network.parameters(), lr=3e-4, fused=True)
    model._create_aliases()


def loaded_policy(model: Any, path: Any) -> None:
    model.policy.save(path)
    model.policy = type(model.policy).load(path)
    model._create_aliases()


def other_mu(model: Any) -> None:
    model.actor.mu = copy.deepcopy(model.actor.mu)
    model.actor.optimizer = th.optim.Adam(model.actor.parameters(), lr=3e-4, fused=True)


def other_optimizer(model: Any) -> None:
    for network in (model.actor, model.critic):
        network.optimizer = th.optim.SGD(network.parameters(), lr=0.1)


# -- replaced ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("replace", [other_policy, other_mu, other_optimizer])
def test_replaced_networks_and_optimizers_learn(algorithm: type[TD3], replace: Callable[[Any], None]) -> None:
    model = filled(algorithm)
    train(model)
    replace(model)
    assert moved(model) == ALL
    state = model.actor.optimizer.state
    if replace is not other_optimizer:
        assert all(float(state[parameter]["step"]) == UPDATES for parameter in model.actor.parameters())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_loaded_policy_learns_and_acts(algorithm: type[TD3], tmp_path: Any) -> None:
    model = filled(algorithm)
    loaded_policy(model, tmp_path / "policy.pt")
    assert moved(model) == ALL
    with th.no_grad():
        for parameter in model.actor.parameters():
            parameter.zero_()
    action = model._sample_action(learning_starts=0)[1]
    np.testing.assert_array_equal(action, 0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_new_actor_acts_in_rollouts(algorithm: type[TD3]) -> None:
    model = filled(algorithm)
    model.actor.mu = nn.Sequential(nn.Flatten(), nn.Linear(7, 2), nn.Tanh())
    nn.init.zeros_(model.actor.mu[1].weight)
    nn.init.constant_(model.actor.mu[1].bias, 0.5)
    np.testing.assert_allclose(model._sample_action(learning_starts=0)[1], np.tanh(0.5), rtol=1e-5)


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_the_fast_updater_binds_to_replaced_networks(algorithm: type[TD3], tmp_path: Any) -> None:
    model = filled(algorithm)
    assert is_fast(model)
    other_policy(model)
    assert is_fast(model)
    loaded_policy(model, tmp_path / "policy.pt")
    assert is_fast(model)
    other_mu(model)
    assert is_fast(model)
    model.actor.mu.insert(1, nn.Dropout(0.5))
    assert not is_fast(model)
    assert model._updater.act(model._last_obs) is None


def test_replaced_optimizer_state_counts() -> None:
    model = filled(CLearning)
    train(model)
    last = list(model.critic.parameters())[-1]
    state = model.critic.optimizer.state[last]
    state["exp_avg"] = new = th.zeros_like(state["exp_avg"])
    train(model)
    assert is_fast(model)
    assert new.abs().max() > 0


# -- hooks -------------------------------------------------------------------------------------------------------------------


def output_layer(network: Any) -> Any:
    """A layer that TD3's critic loss alone uses (its actor ascends the first critic), or the actor's last one."""
    if hasattr(network, "mu"):
        return network.mu[-2]
    return network.classifiers[-1] if hasattr(network, "classifiers") else network.q_networks[1][-1]


Register = Callable[[Any, Callable[..., None]], Any]
HOOKS: dict[str, tuple[Register, int]] = {
    "forward of the actor": (lambda model, hook: model.actor.register_forward_hook(hook), 1),
    "forward of mu": (lambda model, hook: model.actor.mu.register_forward_hook(hook), 1),
    "forward of a layer": (lambda model, hook: output_layer(model.actor).register_forward_hook(hook), 1),
    "forward of the critic": (lambda model, hook: model.critic.register_forward_hook(hook), 1),
    "forward pre": (lambda model, hook: model.critic_target.register_forward_pre_hook(hook), 1),
    "forward of the target actor": (lambda model, hook: model.actor_target.register_forward_hook(hook), 1),
    "full backward": (lambda model, hook: output_layer(model.actor).register_full_backward_hook(hook), 1),
    "full backward of mu": (lambda model, hook: model.actor.mu.register_full_backward_hook(hook), 1),
    "full backward pre": (lambda model, hook: model.actor.mu.register_full_backward_pre_hook(hook), 1),
    "gradient of the actor": (lambda model, hook: output_layer(model.actor).weight.register_hook(hook), 1),
    "gradient of the critic": (lambda model, hook: output_layer(model.critic).weight.register_hook(hook), 1),
    "post accumulate": (
        lambda model, hook: output_layer(model.actor).weight.register_post_accumulate_grad_hook(hook),
        1,
    ),
    "post accumulate, critic": (
        lambda model, hook: output_layer(model.critic).weight.register_post_accumulate_grad_hook(hook),
        1,
    ),
    "step pre": (lambda model, hook: model.actor.optimizer.register_step_pre_hook(hook), 1),
    "step post": (lambda model, hook: model.critic.optimizer.register_step_post_hook(hook), 1),
    "any step": (lambda model, hook: torch_optimizer.register_optimizer_step_post_hook(hook), 2),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_are_called_as_often_as_with_td3(algorithm: type[TD3], name: str) -> None:
    model = filled(algorithm)
    calls: list[int] = []
    register, per_update = HOOKS[name]
    handle = register(model, lambda *_: calls.append(1))
    try:
        train(model)
    finally:
        handle.remove()
    assert len(calls) == per_update * UPDATES
    train(model)
    assert len(calls) == per_update * UPDATES
    if algorithm is not TD3:
        assert is_fast(model)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_global_module_hooks_are_called(algorithm: type[TD3]) -> None:
    model = filled(algorithm)
    seen: list[nn.Module] = []
    handle = torch_module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        train(model)
        model._sample_action(learning_starts=0)
    finally:
        handle.remove()
    for network, updates in ((model.actor, UPDATES + 1), (model.actor_target, UPDATES), (model.critic, UPDATES)):
        assert sum(module is network for module in seen) == updates


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_gradient_hook_changes_the_step(algorithm: type[TD3]) -> None:
    model = filled(algorithm, steps=40)
    for parameter in model.actor.parameters():
        parameter.register_hook(th.zeros_like)
    assert moved(model) & {"actor", "critic"} == {"critic"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_scheduler_of_torch_sees_the_steps(algorithm: type[TD3], recwarn: pytest.WarningsRecorder) -> None:
    model = filled(algorithm)
    scheduler = th.optim.lr_scheduler.ConstantLR(model.critic.optimizer)
    train(model)
    scheduler.step()
    assert not [warning for warning in recwarn if "lr_scheduler.step" in str(warning.message)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forward_hooks_are_called_in_rollouts(algorithm: type[TD3]) -> None:
    model = filled(algorithm)
    calls: list[int] = []
    handle = model.actor.register_forward_hook(lambda *_: calls.append(1))
    model._sample_action(learning_starts=0)
    assert len(calls) == 1
    handle.remove()
    model.actor.forward = lambda obs: th.full((1, 2), 0.25)
    np.testing.assert_allclose(model._sample_action(learning_starts=0)[1], 0.25)


# -- frozen, and other groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_frozen_actor_stays(algorithm: type[TD3]) -> None:
    model = filled(algorithm)
    train(model)
    model.actor.requires_grad_(False)
    before = copy.deepcopy(model.actor.state_dict())
    train(model)
    for name, value in model.actor.named_parameters():
        assert th.equal(value, before[name])
    model.actor.requires_grad_(True)
    assert moved(model) == ALL


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parameter_groups_that_change_count(algorithm: type[TD3]) -> None:
    model = filled(algorithm)
    train(model)
    group = model.actor.optimizer.param_groups[0]
    kept = group["params"].pop()
    before = kept.clone()
    train(model)
    assert th.equal(kept, before)
    model.actor.optimizer.add_param_group({"params": [kept]})
    train(model)
    assert not th.equal(kept, before)


# -- acting ------------------------------------------------------------------------------------------------------------------


def always_half(algorithm: type[TD3]) -> type[TD3]:
    class Half(algorithm):  # type: ignore[misc, valid-type]
        def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
            return np.full((len(observation["observation"]), 2), 0.05, np.float32), None

    return Half


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_subclass_is_asked_to_predict_in_rollouts(algorithm: type[TD3]) -> None:
    model = filled(always_half(algorithm))
    np.testing.assert_allclose(model._sample_action(learning_starts=0)[0], 0.05, rtol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("method", ["_predict", "predict"])
def test_a_policy_of_its_own_is_asked_in_rollouts(algorithm: type[TD3], method: str) -> None:
    base = CLearningPolicy if algorithm is not TD3 else TD3.policy_aliases["MultiInputPolicy"]

    class OwnPolicy(base):  # type: ignore[misc, valid-type]
        pass

    if method == "_predict":
        OwnPolicy._predict = lambda self, observation, deterministic=False: th.full((1, 2), -0.5)
    else:
        OwnPolicy.predict = lambda self, *args, **kwargs: (np.full((1, 2), -0.05, np.float32), None)
    model = algorithm(OwnPolicy, PointEnv(), learning_starts=5, seed=0)
    model.learn(5)
    unscaled, scaled = model._sample_action(learning_starts=0)
    np.testing.assert_allclose(*((scaled, -0.5) if method == "_predict" else (unscaled, -0.05)), rtol=1e-5)


# -- training mode -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=ALGORITHMS)
def with_dropout(request: pytest.FixtureRequest) -> Any:
    model = filled(request.param)
    model.policy.set_training_mode(False)
    model.actor.mu.insert(2, nn.Dropout(0.5))  # a new module is in training mode
    model.actor_target.mu.insert(2, nn.Dropout(0.5).eval())
    return model


def test_predict_is_in_evaluation_mode_after_a_module_was_put_in(with_dropout: Any) -> None:
    obs = with_dropout._last_obs
    actions = [with_dropout.predict(obs)[0] for _ in range(5)]
    assert all(np.array_equal(action, actions[0]) for action in actions)
    train(with_dropout)
    assert all(module.training for module in with_dropout.actor.modules())


# -- state dict ---------------------------------------------------------------------------------------------------------------


def test_statistics_are_floats_that_random_tensors_can_be_made_of() -> None:
    model = filled(CLearning)
    noise = {name: th.rand_like(value) for name, value in model.policy.state_dict().items()}  # from SB3's documentation
    model.policy.load_state_dict({name: value + 0 * noise[name] for name, value in model.policy.state_dict().items()})

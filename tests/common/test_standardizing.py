"""What the networks see has mean 0 and deviation 1: from which data, how it follows them, and that nothing learned is lost."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3.common.policies
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BaseModel
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

from sb3_clearning import CLearning, GoalTD3
from sb3_clearning.common import standardizing_extractor
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.common.input_scaling import fit_extractors
from sb3_clearning.common.standardizing_extractor import (
    LAST_FIT,
    LIMIT,
    MAX_RESCALE_FACTOR,
    SMALLEST_DEVIATION,
    StandardizingExtractor,
)
from sb3_clearning.envs import TASK_IDS
from sb3_clearning.files.array_file import from_bytes, to_bytes
from sb3_clearning.layers import BatchedLinear
from tests.support.checkpointed_runs import StopAt, Stopped, all_of, differences, learn, make_env
from tests.support.goal_envs import ImageGoalEnv, PointEnv
from tests.support.small_models import changed, is_fast, same, seed_all, small_model, use_autograd, weights

KEYS = ("observation", "achieved_goal", "desired_goal")
GOALS = ("achieved_goal", "desired_goal")


def networks(policy: TD3Policy) -> list[Any]:
    names = ("actor", "actor_target", "critic", "critic_target")
    return [getattr(policy, name) for name in names if hasattr(policy, name)]


def extractors(model: GoalAlgorithm) -> list[StandardizingExtractor]:
    found = [network.features_extractor for network in networks(model.policy)]
    assert all(isinstance(extractor, StandardizingExtractor) for extractor in found)
    return found


def is_untouched(extractor: StandardizingExtractor) -> bool:
    return bool((extractor.mean == 0).all() and (extractor.deviation == 1).all())


def expected_statistics(states: dict[str, np.ndarray], key: str) -> tuple[np.ndarray, np.ndarray]:
    """:return: Mean and deviation by hand, where no deviation is small"""
    values = np.concatenate([states[goal] for goal in GOALS]) if key in GOALS else states[key]
    return values.astype(np.float64).mean(axis=0), values.astype(np.float64).std(axis=0)


def some_states(n: int, seed: int = 0, shift: float = 0.0, scale: float = 1.0) -> dict[str, np.ndarray]:
    """:return: States of PointEnv's spaces"""
    generator = np.random.default_rng(seed)
    sizes = {"observation": 3, "achieved_goal": 2, "desired_goal": 2}
    return {key: (shift + scale * generator.standard_normal((n, size))).astype(np.float32) for key, size in sizes.items()}


def extractor_of(sizes: dict[str, int]) -> StandardizingExtractor:
    return StandardizingExtractor(spaces.Dict({key: spaces.Box(-np.inf, np.inf, (size,)) for key, size in sizes.items()}))


def add_steps(model: GoalAlgorithm, n: int, seed: int = 0) -> None:
    """Store steps of random actions."""
    env, generator = PointEnv(), np.random.default_rng(seed)
    space: Any = env.action_space
    obs = env.reset(seed=seed)[0]
    for _ in range(n):
        action = generator.uniform(-1, 1, 2)
        after, _, _, truncated, _ = env.step((space.low + (action + 1) / 2 * (space.high - space.low)).astype(np.float32))
        before, then = ({key: np.array([value]) for key, value in one.items()} for one in (obs, after))
        done, infos = np.array([truncated]), [{"TimeLimit.truncated": True}]
        model.replay_buffer.add(before, then, action[None], np.zeros(1), done, infos)
        obs = env.reset()[0] if truncated else after


# -- which data --------------------------------------------------------------------------------------------------------------


def test_statistics_are_those_of_the_states_and_goals_before_the_first_update() -> None:
    model = small_model(PointEnv(extra=True), learning_starts=40, buffer_size=500)
    seen: dict[str, list[np.ndarray]] = {key: [] for key in KEYS}

    def look(_: Any, __: Any) -> bool:
        assert isinstance(model._last_obs, dict)
        for key in KEYS:
            seen[key].append(model._last_obs[key][0].copy())
        return True

    model.learn(41, callback=look)
    assert model._n_updates > 0
    # By hand, from what the environment showed: the first 41 observations were stored when the first update came.
    states = {key: np.stack(values) for key, values in seen.items()}
    assert len(states["observation"]) == 41
    for extractor in extractors(model):
        assert extractor.n_fitted == 41
        start = 0
        for key, space in model.observation_space.spaces.items():  # type: ignore[attr-defined]
            columns = slice(start, start + gym.spaces.flatdim(space))
            mean, deviation = expected_statistics(states, key) if key in KEYS else (0, 1)  # Discrete and MultiBinary
            np.testing.assert_allclose(extractor.mean[columns], mean, rtol=1e-5)
            np.testing.assert_allclose(extractor.deviation[columns], deviation, rtol=1e-5)
            start = columns.stop
        assert start == len(extractor.mean)


def test_the_same_place_is_the_same_number_as_a_goal_and_as_a_state() -> None:
    model = small_model(PointEnv(), learning_starts=200).learn(200)
    states = model.replay_buffer.float_states()
    fit_extractors(model.policy, states, 200)
    observations = {key: th.as_tensor(value) for key, value in states.items()}
    extractor = extractors(model)[2]
    columns = extractor._columns
    features = extractor(observations)
    goals = th.cat([features[:, columns[key]] for key in GOALS])
    for values in (features[:, columns["observation"]], goals):
        th.testing.assert_close(values.mean(dim=0), th.zeros(values.shape[1]), rtol=0, atol=1e-5)
        th.testing.assert_close(values.std(dim=0, correction=0), th.ones(values.shape[1]), rtol=0, atol=1e-5)
    features = extractor({**observations, "desired_goal": observations["achieved_goal"]})
    th.testing.assert_close(features[:, columns["achieved_goal"]], features[:, columns["desired_goal"]])


def test_coordinates_that_hardly_move_are_not_blown_up() -> None:
    extractor = extractor_of(dict.fromkeys(KEYS, 5))
    generator = np.random.default_rng(0)
    values = generator.standard_normal((1000, 5)) * [1.0, 2.0, 3.0, 1e-6, 0.0] + 7.0
    goals = np.full((1000, 5), 3.0)
    goals[0] += 1e-3  # touched once
    extractor.fit({"observation": values, "achieved_goal": goals, "desired_goal": goals}, 1000)
    deviations = [array.std(axis=0) for array in (values, goals, goals)]
    floor = SMALLEST_DEVIATION * np.median(np.concatenate(deviations[:2]))
    for key, deviation in zip(KEYS, deviations, strict=True):
        np.testing.assert_allclose(extractor.deviation[extractor._columns[key]], np.maximum(deviation, floor), rtol=1e-6)
    assert 1e-7 < floor < 1e-5


def test_goals_that_hardly_move_are_measured_by_the_whole_state() -> None:
    # As in the first episode of Finger: the spinner was touched once, and only in one direction.
    extractor = extractor_of({"observation": 6, "achieved_goal": 2, "desired_goal": 2})
    generator = np.random.default_rng(0)
    goals = generator.standard_normal((1000, 2)) * [0.02, 3e-4]
    states = np.concatenate([generator.standard_normal((1000, 4)) * [1.5, 1.5, 3.0, 2.0], goals], axis=1)
    extractor.fit({"observation": states, "achieved_goal": goals, "desired_goal": goals}, 1000)
    goal = extractor.deviation[extractor._columns["desired_goal"]]
    everything = np.concatenate([states.std(axis=0), goals.std(axis=0)])
    assert goal[1] == pytest.approx(SMALLEST_DEVIATION * np.median(everything))


def test_what_never_moves_is_only_shifted() -> None:
    extractor = extractor_of(dict.fromkeys(KEYS, 2))
    extractor.fit({"observation": np.full((5, 2), 4.0), **{key: np.full((5, 2), 3.0) for key in GOALS}}, 5)
    assert (extractor.deviation == 1).all()
    assert (extractor.mean[extractor._columns["desired_goal"]] == 3).all()


def test_many_states_are_taken_evenly_over_the_buffer() -> None:
    model = small_model(PointEnv(), buffer_size=1000, learning_starts=1000).learn(700)
    every = model.replay_buffer.float_states()
    assert len(every["observation"]) == 700
    np.testing.assert_array_equal(every["desired_goal"], model.replay_buffer.observations["desired_goal"][:700, 0])
    some = model.replay_buffer.float_states(at_most=100)
    np.testing.assert_array_equal(some["observation"], every["observation"][::7])


def test_a_vecnormalize_is_left_to_its_own() -> None:
    env = VecNormalize(DummyVecEnv([PointEnv]), norm_reward=False)
    model = small_model(env).learn(40)
    assert model._n_updates > 0
    assert all(is_untouched(extractor) for extractor in extractors(model))


def test_what_a_vecnormalize_leaves_alone_is_standardized() -> None:
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"norm_obs": False}, set(KEYS)),
        ({"norm_obs_keys": ["observation"]}, set(KEYS) - {"observation"}),
    ]
    for arguments, raw in cases:
        env = VecNormalize(DummyVecEnv([PointEnv]), norm_reward=False, **arguments)
        model = small_model(env, learning_starts=100).learn(120)
        states = {key: values[:101] for key, values in model.replay_buffer.float_states().items()}
        for extractor in extractors(model):
            for key in KEYS:
                deviation = extractor.deviation[extractor._columns[key]].numpy()
                np.testing.assert_allclose(deviation, expected_statistics(states, key)[1] if key in raw else 1, rtol=1e-4)
    for goal in GOALS:  # both or none: they are scaled alike
        env = VecNormalize(DummyVecEnv([PointEnv]), norm_reward=False, norm_obs_keys=[goal])
        for extractor in extractors(small_model(env).learn(40)):
            assert all((extractor.deviation[extractor._columns[key]] == 1).all() for key in GOALS)
            assert not is_untouched(extractor)


# -- the limit ---------------------------------------------------------------------------------------------------------------


def test_scaled_values_are_limited() -> None:
    model = small_model(PointEnv()).learn(40)
    assert is_fast(model)
    for extractor in extractors(model):
        far = th.as_tensor([[1e4, -1e4, 0.0] * 3])[:, :7]
        expected = ((far - extractor.mean) / extractor.deviation).numpy().clip(-10, 10)
        np.testing.assert_allclose(extractor.standardize(far), expected, rtol=1e-6)
        assert extractor.standardize(far).abs().max() == LIMIT == 10
        assert extractor.standardize(th.full((1, 7), th.nan)).isnan().all()  # diverged: not to be hidden
    # Acting and predicting share it.
    obs = {key: np.full((1, size), 1e6, np.float32) for key, size in zip(KEYS, (3, 2, 2), strict=True)}
    np.testing.assert_allclose(
        model._act(obs), model.policy.scale_action(model.predict(obs, deterministic=True)[0]), atol=1e-6
    )


def test_only_what_is_scaled_is_limited() -> None:
    counts = {"counts": spaces.Box(0, 1000, (2,), np.int32)}
    floats = {key: spaces.Box(-np.inf, np.inf, (2,)) for key in KEYS}
    extractor = StandardizingExtractor(spaces.Dict({**counts, **floats}))
    observations = {"counts": th.full((1, 2), 700.0), **{key: th.full((1, 2), 500.0) for key in KEYS}}
    th.testing.assert_close(extractor(observations), CombinedExtractor.forward(extractor, observations))  # not fitted yet
    extractor.fit({key: np.random.default_rng(0).standard_normal((50, 2)) for key in KEYS}, 50)
    features = extractor(observations)
    assert (features[:, extractor._columns["counts"]] == 700).all()
    assert all((features[:, extractor._columns[key]] == LIMIT).all() for key in KEYS)
    images = StandardizingExtractor(ImageGoalEnv().observation_space)  # type: ignore[arg-type]
    images.fit({"time": np.random.default_rng(0).random((50, 1))}, 50)
    large = images.standardize(th.full((1, images.features_dim), 300.0))
    assert (large == LIMIT).sum() == 1
    assert (large == 300).sum() == images.features_dim - 1


def limited_goals(task: str, seed: int) -> float:
    """:return: The share of the coordinates of commanded goals that are at the limit after 1,000 steps of warm-up"""
    if task.startswith("Fetch"):
        gym.register_envs(pytest.importorskip("gymnasium_robotics"))
    env = gym.make(task)
    model = small_model(env, learning_starts=1000, buffer_size=1000, seed=seed).learn(1000)
    fit_extractors(model.policy, model._raw_states(), 1000)
    resets = [env.reset(seed=10_000 * (seed + 1) + i)[0] for i in range(100)]
    extractor = extractors(model)[0]
    features = extractor({key: th.as_tensor(np.stack([obs[key] for obs in resets])).float() for key in resets[0]})
    return (features[:, extractor._columns["desired_goal"]].abs() >= LIMIT).float().mean().item()


@pytest.mark.slow
def test_goals_of_pick_and_place_are_within_the_limit() -> None:
    # By the statistics of achieved goals alone up to a fifth of the coordinates is not, with seven of the seeds.
    assert [limited_goals("FetchPickAndPlace-v4", seed) for seed in range(10)] == pytest.approx([0] * 10, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("task", [*TASK_IDS, "FetchPush-v4"])
def test_goals_of_every_task_are_within_the_limit(task: str) -> None:
    assert max(limited_goals(task, seed) for seed in range(2)) < 0.01


# -- following the data ------------------------------------------------------------------------------------------------------


def test_statistics_follow_while_the_data_doubles_and_then_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standardizing_extractor, "LAST_FIT", 110)
    model = small_model(PointEnv(), buffer_size=40)  # the schedule counts what was forgotten, too
    fitted: list[float] = []

    def look(_: Any, __: Any) -> bool:
        fitted.append(extractors(model)[0].n_fitted.item())
        return True

    model.learn(300, callback=look)
    # A step's callback comes before its update.
    assert [(step, n) for step, (n, before) in enumerate(zip(fitted[1:], fitted, strict=False), 1) if n != before] == [
        (13, 13.0),
        (26, 26.0),
        (52, 52.0),
        (104, 104.0),
    ]
    state = weights(model)
    model.learn(60, reset_num_timesteps=False)
    for name, value in weights(model).items():
        assert ("mean" not in name and "deviation" not in name) or th.equal(value, state[name])
    assert all(extractor.is_final for extractor in extractors(model))


def test_a_refit_has_the_statistics_of_the_data() -> None:
    model = small_model(PointEnv()).learn(26)
    states = {key: values[:26] for key, values in model.replay_buffer.float_states().items()}
    for extractor in extractors(model):
        assert extractor.n_fitted == 26
        for key in KEYS:
            mean, deviation = expected_statistics(states, key)
            np.testing.assert_allclose(extractor.mean[extractor._columns[key]], mean, rtol=1e-5)
            np.testing.assert_allclose(extractor.deviation[extractor._columns[key]], deviation, rtol=1e-5)


def test_parallel_environments_count_each() -> None:
    model = small_model(DummyVecEnv([PointEnv] * 4), learning_starts=40).learn(88)
    assert extractors(model)[0].n_fitted == 88


def make_her(name: str = "HerTD3", **policy_kwargs: Any) -> Any:
    import sb3_clearning.envs  # noqa: F401
    from sb3_clearning.experiments.suite import her

    arguments: dict[str, Any] = {"learning_starts": 40, "batch_size": 8, "buffer_size": 500, "seed": 0, "device": "cpu"}
    env = gym.make("ContinuousGridworld-v0", max_episode_steps=10)
    return getattr(her, name)("MultiInputPolicy", env, policy_kwargs={"net_arch": [8], **policy_kwargs}, **arguments)


POLICIES: dict[str, Callable[[], Any]] = {
    "deterministic": lambda: small_model(PointEnv()),
    "stochastic": lambda: small_model(PointEnv(), policy_kwargs={"stochastic_actor": True, "n_critics": 3}),
    "linear": lambda: small_model(PointEnv(), policy_kwargs={"net_arch": []}),
    "linear and stochastic": lambda: small_model(PointEnv(), policy_kwargs={"net_arch": [], "stochastic_actor": True}),
    "shared": lambda: small_model(PointEnv(), policy_kwargs={"share_features_extractor": True}),
    "baseline": lambda: GoalTD3("MultiInputPolicy", PointEnv(), policy_kwargs={"net_arch": [8]}, device="cpu"),
    "SB3's critics": lambda: make_her(),
    "SAC": lambda: make_her("HerSAC"),
    "TQC": lambda: make_her("HerTQC"),
}


def outputs(policy: TD3Policy, states: dict[str, np.ndarray]) -> list[th.Tensor]:
    """:return: What all networks answer, in float64"""
    obs = {key: th.as_tensor(value).double() for key, value in states.items()}
    actions = th.as_tensor(np.random.default_rng(5).uniform(-1, 1, (len(obs["observation"]), 2)))
    found: list[th.Tensor] = []
    for network in networks(policy):
        network.extract_features = lambda obs, extractor: extractor(obs)  # SB3's makes float32 of everything
        with th.no_grad():
            if network in (policy.critic, policy.critic_target):
                found += [th.as_tensor(output) for output in network(obs, actions)]
            elif hasattr(network, "get_action_dist_params"):
                found += network.get_action_dist_params(obs)[:2]
            else:
                found.append(network(obs))
    return found


def fitted_policy(kind: str) -> TD3Policy:
    """:return: A policy in float64 that was fitted once, with targets that differ from their networks (and other critics)"""
    policy = POLICIES[kind]().policy.double()
    sizes = {key: gym.spaces.flatdim(space) for key, space in policy.observation_space.spaces.items()}
    policy.sizes = sizes
    with th.no_grad():
        for target in networks(policy)[1:]:
            for parameter in target.parameters():
                parameter.add_(0.1 * th.randn_like(parameter))
    fit_extractors(policy, states_of(policy, 200, 0), 200)
    return policy


def states_of(policy: Any, n: int, seed: int, shift: float = 0.0, scale: float = 1.0) -> dict[str, np.ndarray]:
    """:return: States whose mean is the shift"""
    generator = np.random.default_rng(seed)
    halves = {key: scale * generator.standard_normal((n // 2, size)) for key, size in policy.sizes.items()}
    return {key: shift + np.concatenate([half, -half]) for key, half in halves.items()}


@pytest.mark.parametrize("kind", POLICIES)
def test_a_refit_changes_no_output(kind: str) -> None:
    seed_all(0)
    policy = fitted_policy(kind)
    states = states_of(policy, 50, 3)
    before, state = outputs(policy, states), copy.deepcopy(policy.state_dict())
    fit_extractors(policy, states_of(policy, 400, 1, shift=0.8, scale=2.5), 400)
    for after, output in zip(outputs(policy, states), before, strict=True):
        th.testing.assert_close(after, output, rtol=1e-6, atol=1e-9)
    new = policy.state_dict()
    for name, value in state.items():
        if name.endswith(("mean", "deviation")):
            assert not th.allclose(value, new[name], rtol=0.1)
        elif not name.endswith("n_fitted") and ".0." not in name and "mu." not in name and "log_std." not in name:
            assert th.equal(value, new[name])  # layers that do not read the features
    networks(policy)[0].features_extractor.mean += 0.1
    assert not th.allclose(outputs(policy, states)[0], before[0], rtol=1e-3)


def test_a_refit_changes_no_output_in_float32() -> None:
    model = small_model(PointEnv(), learning_starts=100).learn(110)
    obs = {key: th.as_tensor(value) for key, value in some_states(50, 3, scale=0.5).items()}

    def answers() -> th.Tensor:
        with th.no_grad():
            return th.cat([model.actor(obs).flatten(), model.critic(obs, th.zeros(50, 2)).flatten()])

    before = answers()
    fit_extractors(model.policy, some_states(400, 1, shift=0.2, scale=0.8), 400)
    th.testing.assert_close(answers(), before, rtol=1e-5, atol=1e-5)


def test_weights_of_actions_stay() -> None:
    model = small_model(PointEnv(), learning_starts=100).learn(110)
    before = weights(model)["critic.classifiers.0.weight"]
    fit_extractors(model.policy, some_states(400, 1, shift=0.2, scale=0.8), 400)
    after = weights(model)["critic.classifiers.0.weight"]
    assert th.equal(before[:, 7:], after[:, 7:])
    assert (before[:, :7] != after[:, :7]).all()


def first_layer(network: Any) -> nn.Linear | BatchedLinear:
    return network.mu[0] if hasattr(network, "mu") else network.classifiers[0]


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_adams_averages_are_those_of_the_same_gradients(shift: float) -> None:
    seed_all(0)
    policy: Any = fitted_policy("deterministic")
    data = states_of(policy, 50, 3)
    obs = {key: th.as_tensor(value) for key, value in data.items()}
    outputs(policy, data)  # which lets the networks see float64

    def gradients(network: BaseModel) -> tuple[th.Tensor, th.Tensor]:
        answers = network(obs) if network is policy.actor else network(obs, th.ones(50, 2, dtype=th.float64))
        layer = first_layer(network)
        gradient, bias_gradient = th.autograd.grad(answers.square().sum(), [layer.weight, layer.bias])
        return gradient, bias_gradient

    for network in (policy.actor, policy.critic):
        # As if Adam had seen this one gradient forever.
        for parameter, gradient in zip(
            (first_layer(network).weight, first_layer(network).bias), gradients(network), strict=True
        ):
            network.optimizer.state[parameter] = {"exp_avg": gradient.clone(), "exp_avg_sq": gradient.square()}
    fit_extractors(policy, states_of(policy, 400, 1, shift, scale=2.5), 400)
    for network in (policy.actor, policy.critic):
        layer = first_layer(network)
        gradient, bias_gradient = gradients(network)
        state, bias_state = (network.optimizer.state[parameter] for parameter in (layer.weight, layer.bias))
        th.testing.assert_close(state["exp_avg"], gradient, rtol=1e-6, atol=1e-9)
        th.testing.assert_close(bias_state["exp_avg"], bias_gradient, rtol=1e-6, atol=1e-9)
        th.testing.assert_close(bias_state["exp_avg_sq"], bias_gradient.square(), rtol=1e-6, atol=1e-9)
        if shift:  # the product of both gradients is not known, but a step is at most sqrt(2) times as long
            assert (state["exp_avg"].square() <= 2 * state["exp_avg_sq"] * (1 + 1e-9)).all()
            assert not th.allclose(state["exp_avg_sq"], gradient.square(), rtol=0.1)
        else:
            th.testing.assert_close(state["exp_avg_sq"], gradient.square(), rtol=1e-6, atol=1e-9)


def test_polyak_averaging_commutes_with_a_refit() -> None:
    def averaged(policy: TD3Policy) -> None:
        with th.no_grad():
            for network, target in ((policy.actor, policy.actor_target), (policy.critic, policy.critic_target)):
                th._foreach_lerp_(list(target.parameters()), list(network.parameters()), 0.3)

    seed_all(0)
    one = fitted_policy("deterministic")
    two = copy.deepcopy(one)
    states = states_of(one, 400, 1, shift=0.8, scale=2.5)
    averaged(one)
    fit_extractors(one, states, 400)
    fit_extractors(two, states, 400)
    averaged(two)
    for name, value in one.state_dict().items():
        th.testing.assert_close(value, two.state_dict()[name], rtol=1e-10, atol=1e-12)


def test_weights_of_what_was_all_but_constant_keep_their_size() -> None:
    policy: Any = fitted_policy("deterministic")
    states = states_of(policy, 400, 1)
    for column, factor in enumerate((100.0, 1 / 100, 0.9 * MAX_RESCALE_FACTOR)):
        states["observation"][:, column] *= factor
    columns = policy.actor.features_extractor._columns["observation"]
    before = policy.actor.mu[0].weight[:, columns].clone()
    # SMALLEST_DEVIATION would not let a deviation fall by a factor of 100.
    standardizing_extractor.SMALLEST_DEVIATION = 0.0
    try:
        fit_extractors(policy, states, 400)
    finally:
        standardizing_extractor.SMALLEST_DEVIATION = SMALLEST_DEVIATION
    ratio = (policy.actor.mu[0].weight[:, columns] / before).mean(dim=0).tolist()
    assert ratio[:2] == pytest.approx([1, 1])
    assert ratio[2] == pytest.approx(0.9 * MAX_RESCALE_FACTOR, rel=0.1)


class OwnExtractor(StandardizingExtractor):
    def forward(self, observations: Any) -> th.Tensor:
        return 2 * super().forward(observations)


def replace_mu(model: CLearning) -> None:
    for actor in (model.actor, model.actor_target):
        actor.mu = nn.Sequential(nn.LayerNorm(7), *actor.mu)


def freeze_first(model: CLearning) -> None:
    model.actor.mu[0].weight.requires_grad_(False)


@pytest.mark.parametrize(
    ("change", "policy_kwargs"),
    [
        (replace_mu, {}),
        (freeze_first, {}),
        (lambda model: None, {"features_extractor_class": OwnExtractor}),
    ],
)
def test_networks_that_cannot_follow_keep_the_first_statistics(change: Any, policy_kwargs: dict[str, Any]) -> None:
    model = small_model(PointEnv(), learning_starts=80, policy_kwargs=policy_kwargs)
    change(model)
    model.learn(81)
    assert model._n_updates > 0
    before = weights(model)
    model.learn(120, reset_num_timesteps=False)
    after = weights(model)
    assert changed(before, after, "critic.classifiers")
    for name, value in before.items():
        if name.endswith(("mean", "deviation")):
            assert th.equal(value, after[name])
            assert not th.equal(value, th.zeros_like(value))
    assert all(extractor.is_final for extractor in extractors(model))


def test_parameters_that_are_frozen_later_stay() -> None:
    model = small_model(PointEnv()).learn(20)
    freeze_first(model)
    before = weights(model)
    with pytest.warns(UserWarning, match="is now final"):
        model.learn(40, reset_num_timesteps=False)
    assert th.equal(weights(model)["actor.mu.0.weight"], before["actor.mu.0.weight"])
    assert th.equal(weights(model)["critic.features_extractor.mean"], before["critic.features_extractor.mean"])


def test_an_agent_that_learned_elsewhere_follows_when_there_is_more_data_than_it_knew(tmp_path: Path) -> None:
    model = small_model(PointEnv()).learn(40)
    assert extractors(model)[0].n_fitted == 26
    model.export(tmp_path / "agent")
    other = CLearning.from_export(tmp_path / "agent", env=PointEnv(length=7))
    assert other._n_updates == 0
    other.learn(51)
    assert other._n_updates > 0
    for one, two in zip(extractors(model), extractors(other), strict=True):
        assert th.equal(one.mean, two.mean)
        assert th.equal(one.deviation, two.deviation)
    other.learn(2, reset_num_timesteps=False)
    assert extractors(other)[0].n_fitted == 52


def test_offline_data_are_taken_at_once_and_followed_online() -> None:
    model = small_model(PointEnv(), learning_starts=0)
    add_steps(model, 60)
    model.learn_offline(5)
    assert extractors(model)[0].n_fitted == 60
    before = extractors(model)[0].mean.clone()
    model.learn(50)
    assert th.equal(extractors(model)[0].mean, before)
    model.learn(20, reset_num_timesteps=False)
    assert extractors(model)[0].n_fitted == 120


# -- the fast path -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_preprocessing(monkeypatch: pytest.MonkeyPatch) -> None:
    """SB3's makes float32 of every observation."""
    monkeypatch.setattr(stable_baselines3.common.policies, "preprocess_obs", lambda obs, *_, **__: obs)


def in_float64(model: GoalAlgorithm) -> None:
    """Adam divides by the gradient's size, so that rounding in a gradient close to zero becomes a whole step."""
    model.policy.double()
    model.replay_buffer.to_torch = lambda array, copy=True: th.as_tensor(array).double()  # type: ignore[method-assign]


def trained(fast: bool, algorithm: type[CLearning] | type[GoalTD3], rounds: int, change: Any = None) -> GoalAlgorithm:
    model = algorithm("MultiInputPolicy", PointEnv(), seed=0, learning_starts=10**6, policy_kwargs={"net_arch": [32, 32]})
    model.learn(5)  # which makes a logger
    in_float64(model)
    if change is not None:
        change(model)
    assert is_fast(model)
    if not fast:
        use_autograd(model)
    for i in range(rounds):
        add_steps(model, 5 * 2**i, seed=i)
        seed_all(i)
        model.train(gradient_steps=50, batch_size=32)
        assert is_fast(model) == fast
    return model


@pytest.mark.usefixtures("no_preprocessing")
@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_fast_and_general_updates_are_equal_across_refits(algorithm: type[CLearning] | type[GoalTD3]) -> None:
    fast, general = (trained(fast, algorithm, rounds=6) for fast in (True, False))
    assert extractors(fast)[0].n_fitted == 320
    for name, value in fast.policy.state_dict().items():
        th.testing.assert_close(value, general.policy.state_dict()[name], rtol=1e-7, atol=1e-8)


@pytest.mark.usefixtures("no_preprocessing")
@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_every_network_has_its_own_statistics(algorithm: type[CLearning] | type[GoalTD3]) -> None:
    def own_statistics(model: GoalAlgorithm) -> None:  # as of networks that learned apart
        for i, extractor in enumerate(extractors(model)):
            extractor.fit(some_states(100, seed=i, shift=0.2 * i, scale=0.6), 10**6)

    models = [trained(fast, algorithm, 2, own_statistics) for fast in (True, False)]
    assert not extractors(models[0])[0].sees_the_same_as(extractors(models[0])[2])
    assert len({tuple(extractor.mean.tolist()) for extractor in extractors(models[0])}) == 4
    for name, value in models[0].policy.state_dict().items():
        th.testing.assert_close(value, models[1].policy.state_dict()[name], rtol=1e-7, atol=1e-8)


def test_equal_statistics_are_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(PointEnv()).learn(40)
    calls: list[int] = []
    standardize = StandardizingExtractor.standardize

    def counted(*args: Any) -> th.Tensor:
        calls.append(1)
        return standardize(*args)

    monkeypatch.setattr(StandardizingExtractor, "standardize", counted)
    model.train(gradient_steps=1, batch_size=16)
    assert len(calls) == 3  # for the critics, the actor with the critics, and the next states


def test_acting_after_the_first_update_sees_what_the_update_saw() -> None:
    model = small_model(PointEnv()).learn(40)
    assert is_fast(model)
    observation = {key: value[None] for key, value in PointEnv().reset(seed=8)[0].items()}
    fast = model._act(observation)
    use_autograd(model)
    general = model.policy.scale_action(model.predict(observation, deterministic=True)[0])
    np.testing.assert_allclose(fast, general, atol=1e-6)
    before = weights(model)
    model.train(5)
    assert changed(before, weights(model), "actor.mu")


# -- files -------------------------------------------------------------------------------------------------------------------


def test_a_run_resumes_bit_for_bit_before_a_refit(tmp_path: Path) -> None:
    undisturbed = learn(tmp_path / "undisturbed")
    with pytest.raises(Stopped):
        learn(tmp_path / "stopped", StopAt(47))
    assert extractors(CLearning.resume(tmp_path / "stopped", make_env()))[0].n_fitted == 26
    model = learn(tmp_path / "stopped")
    assert extractors(model)[0].n_fitted == 52
    assert differences(all_of(undisturbed), all_of(model)) == []


def test_a_saved_model_and_its_buffer_go_on_across_a_refit(tmp_path: Path) -> None:
    model = small_model(PointEnv()).learn(40)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = CLearning.load(tmp_path / "model", env=PointEnv(), device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer")
    model.replay_buffer.truncate_last_trajectory()
    loaded.set_logger(model.logger)
    for one in (model, loaded):
        add_steps(one, 20)
        seed_all(2)
        one.train(gradient_steps=3, batch_size=16)
        assert extractors(one)[0].n_fitted == 60
    assert same(weights(model), weights(loaded))


def test_saved_and_exported_agents_keep_them(tmp_path: Path) -> None:
    model = small_model(PointEnv(), seed=1).learn(60)
    model.save(tmp_path / "model")
    loaded = CLearning.load(tmp_path / "model")
    assert same(weights(model), weights(loaded))
    model.export(tmp_path / "agent")
    again = CLearning.from_export(tmp_path / "agent")
    env = PointEnv()
    observation = env.reset(seed=3)[0]
    expected = model.predict(observation, deterministic=True)[0]
    for other in (loaded, again):
        np.testing.assert_array_equal(other.predict(observation, deterministic=True)[0], expected)
        assert not is_untouched(extractors(other)[0])


def test_parameters_can_be_perturbed_like_all_others() -> None:
    # As in SB3's docs: a state dict is all floats.
    model = small_model(PointEnv()).learn(40)
    state = model.policy.state_dict()
    model.policy.load_state_dict({name: value + 0.01 * th.rand_like(value) for name, value in state.items()})
    model.policy.load_state_dict({name: th.rand_like(value) for name, value in state.items()})


def test_a_partial_load_is_no_fit() -> None:
    source, model = (small_model(PointEnv(), seed=seed) for seed in (1, 2))
    source.learn(40)
    part = {name: value for name, value in source.policy.state_dict().items() if "features_extractor" not in name}
    model.set_parameters({"policy": part}, exact_match=False)  # type: ignore[dict-item]
    model.policy.load_state_dict(part, strict=False)
    assert not any(extractor.is_fitted for extractor in extractors(model))
    model.learn(20)
    assert extractors(model)[0].n_fitted == 13
    assert not is_untouched(extractors(model)[0])


@pytest.mark.parametrize("name", ["mean", "deviation", "n_fitted"])
def test_a_whole_load_notices_missing_statistics(name: str) -> None:
    state = small_model(PointEnv()).policy.state_dict()
    del state[f"critic.features_extractor.{name}"]
    with pytest.raises(RuntimeError, match=f"Missing key.*critic.features_extractor.{name}"):
        small_model(PointEnv()).policy.load_state_dict(state)
    raw = small_model(PointEnv(), policy_kwargs={"standardize": False}).policy.state_dict()
    with pytest.raises(RuntimeError, match="Missing key"):
        small_model(PointEnv()).policy.load_state_dict(raw)


def as_before(states: dict[str, Any]) -> dict[str, Any]:
    """:return: A state dict, or the arrays of a file, as of before the statistics followed the data"""
    found = {}
    for name, value in states.items():
        old = name.endswith("n_fitted")
        found[name.replace("n_fitted", "is_fitted")] = (
            value if not old else value > 0 if isinstance(value, th.Tensor) else np.asarray(value > 0)
        )
    assert any(name.endswith("is_fitted") for name in found)
    return found


@pytest.mark.parametrize("fitted", [True, False])
def test_old_state_dicts_load(fitted: bool) -> None:
    source = small_model(PointEnv(), seed=1).learn(40 if fitted else 5)
    model = small_model(PointEnv(), seed=2)
    old = as_before(source.policy.state_dict())
    names = set(old)
    model.policy.load_state_dict(old)
    assert set(old) == names  # the caller's dict is the caller's
    for one, two in zip(extractors(source), extractors(model), strict=True):
        assert two.n_fitted == (LAST_FIT if fitted else 0)
        assert two.is_final == two.is_fitted == fitted
        assert one.sees_the_same_as(two)


def test_old_exports_and_checkpoints_load(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        learn(tmp_path / "run", StopAt(47))
    model = CLearning.resume(tmp_path / "run", make_env())
    model.export(tmp_path / "agent")
    for kind, path in (("export", tmp_path / "agent"), ("checkpoint", max((tmp_path / "run").glob("checkpoint-*")))):
        content, arrays = from_bytes(kind, path.read_bytes())
        path.write_bytes(to_bytes(kind, content, as_before(arrays)))
    for other in (CLearning.from_export(tmp_path / "agent"), CLearning.resume(tmp_path / "run", make_env())):
        assert all(extractor.is_final for extractor in extractors(other))
        expected, found = weights(model), weights(other)
        assert all(th.equal(expected[name], found[name]) for name in expected if "n_fitted" not in name)
    other.learn(90)
    assert th.equal(extractors(other)[0].mean, extractors(model)[0].mean)


# -- warnings and options ----------------------------------------------------------------------------------------------------


def test_statistics_of_a_few_episodes_that_stay_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_model(PointEnv(), learning_starts=0).learn(30)  # from one state, but there will be more
        small_model(PointEnv(), learning_starts=0, policy_kwargs={"features_extractor_class": CombinedExtractor}).learn(5)
        small_model(PointEnv(), learning_starts=60, policy_kwargs={"features_extractor_class": OwnExtractor}).learn(70)
    with pytest.warns(UserWarning, match="is now final, but was fitted to 3 episodes.*`learning_starts`"):
        small_model(PointEnv(), learning_starts=25, policy_kwargs={"features_extractor_class": OwnExtractor}).learn(30)
    monkeypatch.setattr(standardizing_extractor, "LAST_FIT", 30)
    with pytest.warns(UserWarning, match="to 2 episodes") as found:
        small_model(PointEnv(length=20)).learn(60)
    assert len(found) == 1


def test_stored_episodes_are_counted() -> None:
    model = small_model(DummyVecEnv([PointEnv] * 3), learning_starts=10**6, buffer_size=60)
    assert model.replay_buffer.n_episodes == 0
    model.learn(3 * 7)
    assert model.replay_buffer.n_episodes == 3
    model.learn(3 * 6, reset_num_timesteps=False)
    assert model.replay_buffer.n_episodes == 6
    model.learn(3 * 47, reset_num_timesteps=False)  # 60 steps each, of which 20 are left
    assert model.replay_buffer.n_episodes == 6


@pytest.mark.parametrize(
    "policy_kwargs", [{"standardize": False}, {"features_extractor_class": CombinedExtractor, "standardize": False}]
)
def test_networks_can_see_the_observations_themselves(policy_kwargs: dict[str, Any]) -> None:
    model = small_model(PointEnv(), policy_kwargs=policy_kwargs).learn(30)
    assert type(model.actor.features_extractor) is CombinedExtractor
    assert not any("deviation" in name for name in weights(model))


def test_an_extractor_of_the_users_own_is_not_replaced() -> None:
    class Own(CombinedExtractor):
        pass

    model = small_model(PointEnv(), policy_kwargs={"features_extractor_class": Own}).learn(30)
    assert type(model.critic.features_extractor) is Own


def test_q_learning_has_it_too() -> None:
    model = GoalTD3("MultiInputPolicy", PointEnv(), learning_starts=10, batch_size=8, policy_kwargs={"net_arch": [8]})
    model.learn(30)
    assert extractors(model)[0].n_fitted == 22
    assert not is_untouched(extractors(model)[0])


@pytest.mark.parametrize("standardize", [True, False])
def test_the_suites_td3_sees_the_same(standardize: bool) -> None:
    model = make_her(standardize=standardize).learn(82)
    if not standardize:
        assert all(type(network.features_extractor) is CombinedExtractor for network in networks(model.policy))
        return
    states = {key: array[:82, 0] for key, array in model.replay_buffer.observations.items()}
    for network in networks(model.policy):
        extractor = network.features_extractor
        assert isinstance(extractor, StandardizingExtractor)
        assert extractor.n_fitted == 82
        for key in GOALS:
            mean, deviation = expected_statistics(states, key)
            np.testing.assert_allclose(extractor.mean[extractor._columns[key]], mean, rtol=1e-5)
            np.testing.assert_allclose(extractor.deviation[extractor._columns[key]], deviation, rtol=1e-5)

"""What the networks see has mean 0 and deviation 1: from which data, once, for goals as for what was achieved."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, GoalTD3
from sb3_clearning.common.standardizing_extractor import SMALLEST_DEVIATION, StandardizingExtractor
from tests.support.goal_envs import PointEnv
from tests.support.small_models import changed, same, small_model, weights

KEYS = ("observation", "achieved_goal", "desired_goal")


def extractors(model: CLearning) -> list[StandardizingExtractor]:
    found = [net.features_extractor for net in (model.actor, model.actor_target, model.critic, model.critic_target)]
    assert all(isinstance(extractor, StandardizingExtractor) for extractor in found)
    return found  # type: ignore[return-value]


def is_untouched(extractor: StandardizingExtractor) -> bool:
    return bool((extractor.mean == 0).all() and (extractor.deviation == 1).all())


def test_statistics_are_those_of_the_states_before_the_first_update() -> None:
    model = small_model(PointEnv(extra=True), learning_starts=40, buffer_size=500)
    seen: list[np.ndarray] = []

    def look(_: Any, __: Any) -> bool:
        assert isinstance(model._last_obs, dict)
        seen.append(model._last_obs["observation"][0].copy())
        return True

    model.learn(41, callback=look)
    assert model._n_updates > 0
    # By hand, from what the environment showed: the first 41 observations were stored when the first update came.
    states = model.replay_buffer.observations
    first = {key: states[key][:41, 0].astype(np.float64) for key in ("observation", "achieved_goal")}
    assert len(seen) == 41
    np.testing.assert_allclose(first["observation"], seen)
    for extractor in extractors(model):
        columns = dict.fromkeys(("observation", "achieved_goal", "desired_goal"))
        start = 0
        for key, space in model.observation_space.spaces.items():  # type: ignore[attr-defined]
            size = gym.spaces.flatdim(space)
            if key in columns:
                source = first["achieved_goal" if key == "desired_goal" else key]
                np.testing.assert_allclose(extractor.mean[start : start + size], source.mean(axis=0), rtol=1e-5)
                np.testing.assert_allclose(extractor.deviation[start : start + size], source.std(axis=0), rtol=1e-5)
            else:  # Discrete and MultiBinary
                assert (extractor.mean[start : start + size] == 0).all()
                assert (extractor.deviation[start : start + size] == 1).all()
            start += size
        assert start == len(extractor.mean)


def test_features_have_mean_zero_and_deviation_one_and_goals_those_of_achieved_ones() -> None:
    model = small_model(PointEnv(), learning_starts=200).learn(200)
    states = model.replay_buffer.float_states()
    model.policy.fit_extractors(states)
    goals = {**states, "desired_goal": states["achieved_goal"]}
    features = model.critic.extract_features({key: th.as_tensor(value) for key, value in goals.items()}, extractors(model)[2])
    th.testing.assert_close(features.mean(dim=0), th.zeros(7), rtol=0, atol=1e-5)
    th.testing.assert_close(features.std(dim=0, correction=0), th.ones(7), rtol=0, atol=1e-5)
    # The same place is the same number, as a state, as an achieved and as a commanded goal.
    columns = extractors(model)[0]._columns
    achieved, desired = features[:, columns["achieved_goal"]], features[:, columns["desired_goal"]]
    th.testing.assert_close(achieved, desired)
    th.testing.assert_close(features[:, columns["observation"]][:, :2], achieved)


def test_statistics_are_taken_once() -> None:
    model = small_model(PointEnv()).learn(40)
    before = [(extractor.mean.clone(), extractor.deviation.clone()) for extractor in extractors(model)]
    assert not is_untouched(extractors(model)[0])
    model.learn(40, reset_num_timesteps=False)
    model.learn(40)
    for (mean, deviation), extractor in zip(before, extractors(model), strict=True):
        assert th.equal(mean, extractor.mean)
        assert th.equal(deviation, extractor.deviation)


def test_an_agent_that_learned_elsewhere_keeps_its_own(tmp_path: Path) -> None:
    model = small_model(PointEnv()).learn(40)
    model.export(tmp_path / "agent")
    other = CLearning.from_export(tmp_path / "agent", env=PointEnv(length=7))
    assert other._n_updates == 0
    other.learn(33)
    assert other._n_updates > 0
    for one, two in zip(extractors(model), extractors(other), strict=True):
        assert th.equal(one.mean, two.mean)
        assert th.equal(one.deviation, two.deviation)


def test_coordinates_that_hardly_move_are_not_blown_up() -> None:
    space = gym.spaces.Dict(
        {key: gym.spaces.Box(-np.inf, np.inf, (5,)) for key in ("observation", "achieved_goal", "desired_goal")}
    )
    extractor = StandardizingExtractor(space)
    generator = np.random.default_rng(0)
    values = generator.standard_normal((1000, 5)) * [1.0, 2.0, 3.0, 1e-6, 0.0] + 7.0
    goals = np.full((1000, 5), 3.0)
    goals[0] += 1e-3  # touched once
    extractor.fit({"observation": values, "achieved_goal": goals})
    deviations = [array.std(axis=0) for array in (values, goals, goals)]
    floor = SMALLEST_DEVIATION * np.median(np.concatenate(deviations[:2]))
    columns = extractor._columns
    for key, deviation in zip(("observation", "achieved_goal", "desired_goal"), deviations, strict=True):
        np.testing.assert_allclose(extractor.deviation[columns[key]], np.maximum(deviation, floor), rtol=1e-6)
    assert 1e-7 < floor < 1e-5


def test_goals_that_hardly_move_are_measured_by_the_whole_state() -> None:
    # As in the first episode of Finger: the spinner was touched once, and only in one direction.
    space = gym.spaces.Dict(
        {
            "observation": gym.spaces.Box(-9, 9, (6,)),
            "achieved_goal": gym.spaces.Box(-9, 9, (2,)),
            "desired_goal": gym.spaces.Box(-9, 9, (2,)),
        }
    )
    extractor = StandardizingExtractor(space)
    generator = np.random.default_rng(0)
    goals = generator.standard_normal((1000, 2)) * [0.02, 3e-4]
    states = np.concatenate([generator.standard_normal((1000, 4)) * [1.5, 1.5, 3.0, 2.0], goals], axis=1)
    extractor.fit({"observation": states, "achieved_goal": goals})
    goal = extractor.deviation[extractor._columns["desired_goal"]]
    everything = np.concatenate([states.std(axis=0), goals.std(axis=0)])
    assert goal[1] == pytest.approx(SMALLEST_DEVIATION * np.median(everything))


def test_what_never_moves_is_only_shifted() -> None:
    space = gym.spaces.Dict({key: gym.spaces.Box(-9, 9, (2,)) for key in ("observation", "achieved_goal", "desired_goal")})
    extractor = StandardizingExtractor(space)
    extractor.fit({"observation": np.full((5, 2), 4.0), "achieved_goal": np.full((5, 2), 3.0)})
    assert (extractor.deviation == 1).all()
    assert (extractor.mean[extractor._columns["desired_goal"]] == 3).all()


def test_many_states_are_taken_evenly_over_the_buffer() -> None:
    model = small_model(PointEnv(), buffer_size=1000, learning_starts=1000).learn(700)
    every = model.replay_buffer.float_states()
    assert len(every["observation"]) == 700
    assert "desired_goal" not in every
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
        states = model.replay_buffer.float_states()
        for extractor in extractors(model):
            for key in KEYS:
                deviation = extractor.deviation[extractor._columns[key]].numpy()
                expected = states["achieved_goal" if key == "desired_goal" else key][:101].std(axis=0) if key in raw else 1
                np.testing.assert_allclose(deviation, expected, rtol=1e-4)
    env = VecNormalize(DummyVecEnv([PointEnv]), norm_reward=False, norm_obs_keys=["observation", "desired_goal"])
    assert all(is_untouched(extractor) for extractor in extractors(small_model(env).learn(40)))


def test_statistics_of_a_few_states_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="by the mean and deviation of 1 states.*give `learning_starts` some hundred"):
        small_model(PointEnv(), learning_starts=0).learn(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_model(PointEnv(), learning_starts=0, policy_kwargs={"standardize": False}).learn(5)
        small_model(PointEnv()).learn(20)


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
    model = GoalTD3("MultiInputPolicy", PointEnv(), learning_starts=10, batch_size=8, policy_kwargs={"net_arch": [8]}).learn(
        30
    )
    assert not is_untouched(extractors(model)[0])  # type: ignore[arg-type]


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


def test_weights_without_statistics_are_of_the_observations_themselves() -> None:
    raw = small_model(PointEnv(), policy_kwargs={"standardize": False}).learn(30)
    model = small_model(PointEnv(), seed=5)
    model.policy.load_state_dict(raw.policy.state_dict())
    assert all(is_untouched(extractor) for extractor in extractors(model))
    observation = PointEnv().reset(seed=3)[0]
    np.testing.assert_array_equal(model.predict(observation, True)[0], raw.predict(observation, True)[0])  # type: ignore[arg-type]


def test_acting_after_the_first_update_sees_what_the_update_saw() -> None:
    model = small_model(PointEnv()).learn(40)
    assert model._plain is not None
    observation = {key: value[None] for key, value in PointEnv().reset(seed=8)[0].items()}
    fast = model._act(observation)
    model._plain = None
    general = model.policy.scale_action(model.predict(observation, deterministic=True)[0])
    np.testing.assert_allclose(fast, general, atol=1e-6)
    before = weights(model)
    model.train(5)
    assert changed(before, weights(model), "actor.mu")


@pytest.mark.parametrize("standardize", [True, False])
def test_the_suites_td3_sees_the_same(standardize: bool) -> None:
    import sb3_clearning.envs  # noqa: F401
    from sb3_clearning.experiments.suite.her_td3 import HerTD3

    arguments: dict[str, Any] = {"learning_starts": 40, "batch_size": 8, "buffer_size": 500, "seed": 0, "device": "cpu"}
    kwargs = {"net_arch": [8], "standardize": standardize}
    env = gym.make("ContinuousGridworld-v0", max_episode_steps=10)
    model = HerTD3("MultiInputPolicy", env, policy_kwargs=kwargs, **arguments).learn(41)
    networks = (model.actor, model.actor_target, model.critic, model.critic_target)
    if not standardize:
        assert all(type(network.features_extractor) is CombinedExtractor for network in networks)
        return
    states = model.replay_buffer.observations["achieved_goal"][:41, 0]  # type: ignore[union-attr]
    for network in networks:
        extractor = network.features_extractor
        assert isinstance(extractor, StandardizingExtractor)
        for key in ("achieved_goal", "desired_goal"):
            np.testing.assert_allclose(extractor.mean[extractor._columns[key]], states.mean(axis=0), rtol=1e-5)
            np.testing.assert_allclose(extractor.deviation[extractor._columns[key]], states.std(axis=0), rtol=1e-5)

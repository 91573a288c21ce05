import pathlib
import pickle
import re
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import HerReplayBuffer, td3
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, GoalReplayBuffer, GoalTD3
from tests.support.goal_envs import BrokenEnv, PointEnv, make
from tests.support.small_models import changed, small_model, weights

# -- the environment ---------------------------------------------------------------------------------------------------


def _with_spaces(action: spaces.Space | None = None, remove: str | None = None, **keys: spaces.Space) -> PointEnv:
    """A point environment that claims to have other spaces."""
    env = PointEnv()
    if action is not None:
        env.action_space = action
    assert isinstance(env.observation_space, spaces.Dict)
    claimed = {**env.observation_space.spaces, **keys}
    env.observation_space = spaces.Dict({key: space for key, space in claimed.items() if key != remove})
    return env


def test_an_environment_without_goals() -> None:
    with pytest.raises(ValueError, match=r"needs a goal environment.*has Box.*GoalFromObservation"):
        CLearning("MultiInputPolicy", "Pendulum-v1")


@pytest.mark.parametrize("key", ["observation", "achieved_goal", "desired_goal"])
def test_a_missing_key(key: str) -> None:
    with pytest.raises(ValueError, match=rf"lacks \['{key}'\].*Add them, or say which key the goal is in"):
        small_model(_with_spaces(remove=key))


@pytest.mark.parametrize(
    "action", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)], ids=lambda space: type(space).__name__
)
def test_actions_that_are_not_continuous(action: spaces.Space) -> None:
    with pytest.raises(
        ValueError, match=rf"continuous actions: a Box action space of floats, not {type(action).__name__}.*wrap"
    ):
        small_model(_with_spaces(action))


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (-1.0, np.inf), (-np.inf, 1.0)])
def test_actions_without_bounds(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=r"bounded action space.*finite bounds.*RescaleAction"):
        small_model(_with_spaces(spaces.Box(low, high, (2,))))


@pytest.mark.parametrize(
    ("achieved", "desired"),
    [
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (3,))),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2, 1))),
        (spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)),
        (spaces.Box(0, 255, (2,), dtype=np.uint8), spaces.Box(0, 1, (2,))),
        (spaces.Discrete(3), spaces.Discrete(4)),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([3, 2])),
    ],
    ids=str,
)
def test_goal_spaces_that_do_not_match(achieved: spaces.Space, desired: spaces.Space) -> None:
    with pytest.raises(ValueError, match=r"goal spaces do not match: achieved_goal is .* and desired_goal is .* same shape"):
        small_model(_with_spaces(achieved_goal=achieved, desired_goal=desired))


def test_goal_spaces_that_differ_in_bounds_or_precision_only_match() -> None:
    small_model(
        _with_spaces(achieved_goal=spaces.Box(-2, 2, (2,), dtype=np.float64), desired_goal=spaces.Box(-np.inf, np.inf, (2,)))
    )


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bc_coef": -0.1}, r"`bc_coef` must be at least 0 \(0: no behavior cloning\), not -0\.1"),
        ({"n_steps": 0}, r"`n_steps` must be at least 1 \(float\(.inf.\): to the end of the recorded episode\), not 0"),
        ({"n_steps": 2.5}, r"`n_steps` must be a whole number of at least 1.*not 2\.5"),
        ({"n_steps": 3, "lambda_": 0.5, "lambda_on_w": False}, r"`n_steps` above 1 needs `lambda_on_w=True` \(or `lambda_=1`"),
        ({"lambda_": "0.5"}, r"`lambda_` must be at least 0 and at most 1.*not '0\.5'"),
        ({"replay_buffer_kwargs": {"n_sampled_goal": 4}}, "are HerReplayBuffer's.*Leave them out"),
        ({"lambda_": -0.1}, r"`lambda_` must be at least 0 and at most 1.*not -0\.1"),
        ({"lambda_": 1.01}, r"`lambda_` must be at least 0 and at most 1.*not 1\.01"),
        ({"lambda_": float("nan")}, r"`lambda_` must be at least 0 and at most 1.*not nan"),
        ({"lambda_on_w": "no"}, r"`lambda_on_w` must be True or False, not 'no'"),
        ({"gamma": 1.0}, r"`gamma` must be at least 0 and below 1, not 1\.0"),
        ({"gamma": -0.5}, r"`gamma` must be at least 0 and below 1, not -0\.5"),
        ({"gamma": float("nan")}, r"`gamma` must be at least 0 and below 1, not nan"),
        ({"w_clip": 0.0}, r"`w_clip` must be above 0 \(None: from gamma and n_steps; inf: no limit\), not 0\.0"),
        ({"w_clip": -3}, r"`w_clip` must be above 0.*not -3"),
        ({"w_clip": float("nan")}, r"`w_clip` must be above 0.*not nan"),
        ({"commanded_goal_fraction": 1.5}, r"`commanded_goal_fraction` must be at least 0 and at most 1, not 1\.5"),
        ({"commanded_goal_fraction": -1}, r"`commanded_goal_fraction` must be at least 0 and at most 1, not -1"),
        ({"classifier_loss": "hinge"}, r"`classifier_loss` must be one of \('bce', 'mse'\), not 'hinge'"),
        ({"actor_loss": "logit"}, r"`actor_loss` must be one of \('log_prob', 'prob', 'log_ratio'\), not 'logit'"),
        ({"terminal": "bootstrap"}, r"`terminal` must be one of \('ignore', 'absorbing'\), not 'bootstrap'"),
        ({"warmup_noise": "white"}, r'`warmup_noise` must be "uniform" or "pink", not \'white\''),
        (
            {"action_noise": "white"},
            r'`action_noise` must be "auto", "gaussian", "pink", None or an ActionNoise, not \'white\'',
        ),
        ({"action_noise": 0.1}, r"`action_noise` must be .* not 0\.1"),
        ({"policy_delay": 0}, r"`policy_delay` must be at least 1, not 0"),
        ({"action_rate_penalty": -1.0}, r"`action_rate_penalty` must be at least 0 \(0: none\), not -1.0"),
        ({"pre_tanh_penalty": -1.0}, r"`pre_tanh_penalty` must be at least 0 \(0: none\), not -1.0"),
        ({"batch_size": 1}, r"`batch_size` must be at least 2 .* not 1"),
        ({"policy_kwargs": {"n_critics": 0}}, r"`n_critics` must be at least 1, not 0"),
        ({"replay_buffer_class": DictReplayBuffer}, r"`replay_buffer_class` must be GoalReplayBuffer.*not DictReplayBuffer"),
        ({"replay_buffer_class": HerReplayBuffer}, r"not HerReplayBuffer: goals are relabelled without rewards. Leave"),
        ({"train_freq": (1, "minute")}, r"must be either 'step' or 'episode' not 'minute'"),
    ],
    ids=str,
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_model(PointEnv(), **arguments)


def test_unknown_policies_and_arguments() -> None:
    with pytest.raises(ValueError, match="You must use `MultiInputPolicy`"):
        CLearning("MlpPolicy", PointEnv())
    with pytest.raises(TypeError, match="use_sde"):
        CLearning("MultiInputPolicy", PointEnv(), use_sde=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="n_quantiles"):
        small_model(PointEnv(), policy_kwargs={"n_quantiles": 3})


def test_unknown_kinds_of_goals() -> None:
    model = small_model(PointEnv(), learning_starts=100).learn(10)
    with pytest.raises(ValueError, match=r"Unknown kinds of goals \['past'\]: use some of"):
        model.replay_buffer.sample_goals(8, {"past": 0.5, "next": 0.5})
    with pytest.raises(ValueError, match="add up to 1"):
        model.replay_buffer.sample_goals(8, {"random": 0.3, "next": 0.5})


def test_an_empty_buffer() -> None:
    model = small_model(PointEnv())
    with pytest.raises(ValueError, match=r"buffer is empty: fill it before `learn_offline`.*load_dataset.*load_replay_buffer"):
        model.learn_offline(10)
    with pytest.raises(ValueError, match="buffer is empty: collect or load at least one transition"):
        model.replay_buffer.sample(4)


def test_a_foreign_space_for_the_buffer() -> None:
    with pytest.raises(ValueError, match="needs a goal environment"):
        GoalReplayBuffer(10, spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))


# -- values that are not finite ----------------------------------------------------------------------------------------

STEPS_BEFORE = {"reset": 20, "step": 24, "terminal": 30}  # at the third episode of ten steps


def _assert_whole(folder: pathlib.Path, steps: int) -> None:
    """The last checkpoint loads, is finite and trains on."""
    model = CLearning.load(folder / f"model_{steps}_steps.zip", env=PointEnv(), device="cpu")
    assert not changed(weights(model), weights(model))  # asserts that all are finite
    model.load_replay_buffer(folder / f"model_replay_buffer_{steps}_steps.pkl")
    buffer = model.replay_buffer
    assert buffer.size() > 0
    for kind in ("original", "next", "future", "random"):
        batch = buffer.sample_goals(300, {kind: 1.0})[0]
        for obs in (batch.observations, batch.next_observations):
            assert all(np.isfinite(value.numpy()).all() for value in obs.values())
    before = weights(model)
    model.learn(20, reset_num_timesteps=False)
    assert changed(before, weights(model), "actor.")


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("when", ["step", "reset", "terminal"])
@pytest.mark.parametrize("key", ["observation", "achieved_goal", "desired_goal"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_bad_value_stops_training_and_names_its_key(n_envs: int, when: str, key: str, value: float) -> None:
    env = DummyVecEnv([make(PointEnv)] * (n_envs - 1) + [make(BrokenEnv, key, when, value=value)])
    model = small_model(env)
    message = rf"NaN or inf in the observation\'s key `{key}`\..*before it reached the replay buffer.*Fix the environment"
    with pytest.raises(ValueError, match=message):
        model.learn(200)
    assert model.num_timesteps == n_envs * STEPS_BEFORE[when]
    assert model.replay_buffer.size() == STEPS_BEFORE[when] - 1
    assert all(np.isfinite(values).all() for values in model.replay_buffer.observations.values())
    assert not changed(weights(model), weights(model))


@pytest.mark.parametrize("when", ["step", "reset", "terminal"])
@pytest.mark.parametrize("save_freq", [1, 4])
def test_a_bad_value_leaves_the_last_checkpoint_whole(when: str, save_freq: int, tmp_path: pathlib.Path) -> None:
    # With a checkpoint after every step the last one is taken at the very step of the bad value.
    model = small_model(BrokenEnv("achieved_goal", when))
    checkpoints = CheckpointCallback(save_freq, str(tmp_path), name_prefix="model", save_replay_buffer=True)
    with pytest.raises(ValueError, match="achieved_goal"):
        model.learn(200, callback=checkpoints)
    _assert_whole(tmp_path, STEPS_BEFORE[when] // save_freq * save_freq)


def test_a_bad_value_at_the_first_reset() -> None:
    for episode, learn in ((1, "learn"), (2, "learn again")):
        env = BrokenEnv("desired_goal", "reset", episode=episode)
        model = small_model(env)
        if learn == "learn again":
            model.learn(5)
        with pytest.raises(ValueError, match="`desired_goal`"):
            model.learn(5)


@pytest.mark.parametrize("when", ["step", "reset", "terminal"])
def test_a_bad_value_behind_a_normalization(when: str, tmp_path: pathlib.Path) -> None:
    model = small_model(VecNormalize(DummyVecEnv([make(BrokenEnv, "observation", when)])))
    with pytest.raises(ValueError, match="`observation`"):
        model.learn(200)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    with open(tmp_path / "buffer.pkl", "rb") as file:
        buffer = pickle.load(file)
    assert buffer.size() == STEPS_BEFORE[when] - 1
    assert all(np.isfinite(values).all() for values in buffer.observations.values())


@pytest.mark.parametrize("when", ["step", "reset"])
def test_an_infinite_value_does_not_hide_behind_the_clip_of_a_normalization(when: str) -> None:
    # Without training VecNormalize clips inf to its limit, a finite number.
    env = VecNormalize(DummyVecEnv([make(BrokenEnv, "observation", when, episode=1, value=np.inf)]), training=False)
    model = small_model(env)
    with pytest.raises(ValueError, match="`observation`"):
        model.learn(200)
    assert all(np.isfinite(values).all() for values in model.replay_buffer.observations.values())


def test_offline_learning_that_diverged_is_no_success() -> None:
    model = small_model(PointEnv(), learning_starts=1000).learn(60)
    model.lr_schedule = lambda _: 1e30
    with pytest.raises(ValueError, match=r"The weights .* are not finite: training has diverged"):
        model.learn_offline(30)


def test_an_actor_that_diverged_stops_training() -> None:
    model = small_model(PointEnv()).learn(20)
    for parameter in model.actor.parameters():
        parameter.data.fill_(float("nan"))
    size = model.replay_buffer.size()
    with pytest.raises(ValueError, match=re.escape("training has diverged") + r".*lower `learning_rate` or `w_clip`"):
        model.learn(20, reset_num_timesteps=False)
    assert model.replay_buffer.size() == size


def test_the_checks_do_not_mind_environments_that_are_right() -> None:
    env: gym.Env = BrokenEnv(episode=10**6)
    small_model(env).learn(30)


# -- what SB3's users write --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, Fraction])
def test_numbers_of_other_libraries_are_numbers(kind: Any, tmp_path: pathlib.Path) -> None:
    arguments = {"gamma": 0.75, "lambda_": 0.5, "w_clip": 3.5, "commanded_goal_fraction": 0.25, "tau": 0.25}
    model = small_model(PointEnv(), **{name: kind(value) for name, value in arguments.items()}, policy_delay=np.int64(2))
    model.learn(20)
    for name, value in {**arguments, "policy_delay": 2}.items():
        assert getattr(model, name) == value
        assert type(getattr(model, name)) is type(value)
    model.export(tmp_path / "agent")
    loaded = CLearning.from_export(tmp_path / "agent")
    assert {name: getattr(loaded, name) for name in arguments} == arguments


@pytest.mark.parametrize("name", ["gamma", "lambda_", "w_clip", "commanded_goal_fraction"])
def test_a_bool_is_no_number(name: str) -> None:
    for value in (True, np.True_):
        with pytest.raises(ValueError, match=rf"`{name}` must be .*, not .*True"):
            small_model(PointEnv(), **{name: value})


def test_timeouts_are_handled_in_any_case() -> None:
    kwargs = {"handle_timeout_termination": True}
    assert small_model(PointEnv(), replay_buffer_kwargs=kwargs).learn(20)._n_updates > 0
    assert kwargs == {"handle_timeout_termination": True}
    with pytest.raises(
        ValueError, match=r"`handle_timeout_termination` in `replay_buffer_kwargs` must be True.*GoalReplayBuffer"
    ):
        small_model(PointEnv(), replay_buffer_kwargs={"handle_timeout_termination": False})


@pytest.mark.parametrize("policy", [td3.MultiInputPolicy, td3.MlpPolicy])
def test_a_policy_class_of_td3(policy: Any) -> None:
    with pytest.raises(ValueError, match=r'`policy` must be "MultiInputPolicy", CLearningPolicy.*not stable_baselines3'):
        CLearning(policy, PointEnv())


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_no_environment(algorithm: Any) -> None:
    with pytest.raises(ValueError, match=r"`env` is None.*Pass an environment, or use `load`"):
        algorithm("MultiInputPolicy", None)


def test_integer_actions() -> None:
    with pytest.raises(ValueError, match=r"Box action space of floats, not Box.*int64.*wrap"):
        small_model(_with_spaces(spaces.Box(-3, 3, (2,), np.int64)))


@pytest.mark.parametrize(("one", "other"), [(CLearning, GoalTD3), (GoalTD3, CLearning)])
def test_a_file_of_the_other_algorithm(one: Any, other: Any, tmp_path: pathlib.Path) -> None:
    one("MultiInputPolicy", PointEnv()).save(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"saved by {one.__name__}: load it with `{one.__name__}.load`"):
        other.load(tmp_path / "model")
    assert type(one.load(tmp_path / "model")) is one

# ruff: noqa: E501 (a row of the table is a line)
"""Wrong types, shapes, ranges and spaces for every public function and constructor: the input, and what it is answered."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from goal_envs import PointEnv
from gymnasium import spaces
from small_models import small_model
from stable_baselines3.common.vec_env import DummyVecEnv

import sb3_clearning
from sb3_clearning import (
    ClassifierCritic,
    CLearning,
    CLearningPolicy,
    FutureStateEstimator,
    GoalReplayBuffer,
    GoalTD3,
    HindsightQEstimator,
    OneStepModel,
    PinkActionNoise,
    PolicyFuture,
    ResumableCheckpoint,
    StepTimeout,
    TablePolicy,
    evaluate_goals,
    losses,
)
from sb3_clearning.envs import GoalFromObservation, NoisyGoal

SPACE, ACTIONS = PointEnv().observation_space, PointEnv().action_space
SIX = np.zeros(6)
NAN = float("nan")
LOGITS = th.zeros(4)


def algorithm(**arguments: Any) -> Callable[[], Any]:
    return lambda: CLearning("MultiInputPolicy", PointEnv(), **{"buffer_size": 100, "device": "cpu", **arguments})


def baseline(**arguments: Any) -> Callable[[], Any]:
    return lambda: GoalTD3("MultiInputPolicy", PointEnv(), **{"buffer_size": 100, "device": "cpu", **arguments})


def buffer(*arguments: Any, **named: Any) -> Callable[[], Any]:
    return lambda: GoalReplayBuffer(*arguments, **named)


def filled() -> GoalReplayBuffer:
    return small_model(PointEnv(), learning_starts=100).learn(12).replay_buffer


def add(**changed: Any) -> Callable[[], Any]:
    def call() -> None:
        one = GoalReplayBuffer(10, SPACE, ACTIONS)
        obs = {"observation": np.zeros((1, 3)), "achieved_goal": np.zeros((1, 2)), "desired_goal": np.zeros((1, 2))}
        step: dict[str, Any] = {"obs": obs, "next_obs": obs, "action": np.zeros((1, 2)), "reward": np.zeros(1)}
        before = one._kept.copy()
        try:
            one.add(**{**step, "done": np.zeros(1, bool), "infos": [{}], **changed})
        finally:
            assert one.size() == 0
            assert np.array_equal(one._kept, before)

    return call


def sample(**changed: Any) -> Callable[[], Any]:
    return lambda: filled().sample_goals(**{"batch_size": 4, "relabel": {"next": 1.0}, **changed})


def arrays(**changed: Any) -> Callable[[], Any]:
    data: dict[str, Any] = {"observations": np.zeros((6, 3)), "actions": np.zeros((6, 2)), "crop": [0, 1]}
    return lambda: GoalReplayBuffer(10, SPACE, ACTIONS).load_arrays(
        **{**data, "terminations": SIX, "truncations": SIX, **changed}
    )


def critic(**changed: Any) -> Callable[[], Any]:
    def call() -> ClassifierCritic:
        policy = small_model(PointEnv()).policy
        return (
            policy.make_critic()
            if not changed
            else ClassifierCritic(**{**policy._update_features_extractor(policy.critic_kwargs, None), **changed})
        )

    return call


def policy(**changed: Any) -> Callable[[], Any]:
    return lambda: CLearningPolicy(SPACE, ACTIONS, lambda _: 1e-3, **changed)  # type: ignore[arg-type]


def learned(method: str, *arguments: Any, **named: Any) -> Callable[[], Any]:
    return lambda: getattr(small_model(PointEnv()), method)(*arguments, **named)


def future_of_an_untrained_model() -> None:
    obs = {"observation": np.zeros((1, 3)), "achieved_goal": np.zeros((1, 2))}
    PolicyFuture(small_model(PointEnv())).expected_future_state(obs, np.zeros((1, 2)))


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    # -- CLearning: types that a range alone would not catch; ranges are in test_errors.py
    ("CLearning", algorithm(gamma="0.9"), r"`gamma` must be at least 0 and below 1, not '0\.9'"),
    ("CLearning", algorithm(buffer_size=0), "`buffer_size` must be at least 1, not 0"),
    ("CLearning", algorithm(buffer_size=1e6), r"`buffer_size` must be a whole number of at least 1, not 1000000\.0"),
    ("CLearning", algorithm(batch_size=2.5), r"`batch_size` must be a whole number of at least 2 .*, not 2\.5"),
    ("CLearning", algorithm(batch_size=None), "`batch_size` must be a whole number of at least 2 .*, not None"),
    ("CLearning", algorithm(learning_starts=-1), "`learning_starts` must be at least 0, not -1"),
    ("CLearning", algorithm(learning_starts="10"), "`learning_starts` must be at least 0, not '10'"),
    ("CLearning", algorithm(gradient_steps=-2), "`gradient_steps` must be at least -1, not -2"),
    ("CLearning", algorithm(tau=1.5), r"`tau` must be at least 0 and at most 1, not 1\.5"),
    ("CLearning", algorithm(tau=NAN), "`tau` must be at least 0 and at most 1, not nan"),
    ("CLearning", algorithm(learning_rate="3e-4"), "`learning_rate` must be at least 0 and below inf, not '3e-4'"),
    ("CLearning", algorithm(learning_rate=float("inf")), "`learning_rate` must be at least 0 and below inf, not inf"),
    ("CLearning", algorithm(policy_delay=1.5), r"`policy_delay` must be a whole number of at least 1, not 1\.5"),
    ("CLearning", algorithm(target_policy_noise=-0.1), r"`target_policy_noise` must be at least 0, not -0\.1"),
    ("CLearning", algorithm(target_noise_clip=None), "`target_noise_clip` must be at least 0, not None"),
    ("CLearning", algorithm(noise_std=NAN), "`noise_std` must be at least 0 and below inf, not nan"),
    ("CLearning", algorithm(stats_window_size=0), "`stats_window_size` must be at least 1, not 0"),
    ("CLearning", algorithm(seed=-1), r"`seed` must be at least 0 and at most 4\.29497e\+09, not -1"),
    ("CLearning", algorithm(seed="0"), "`seed` must be a whole number of at least 0 .*, not '0'"),
    ("CLearning", algorithm(n_steps=None), "`n_steps` must be a whole number of at least 1, not None"),
    ("CLearning", algorithm(w_clip="2"), "`w_clip` must be above 0 .*, not '2'"),
    ("CLearning", algorithm(lambda_=None), r"`lambda_` must be within \[0, 1\] .*, not None"),
    ("CLearning", algorithm(commanded_goal_fraction="all"), r"`commanded_goal_fraction` must be within \[0, 1\], not 'all'"),
    ("CLearning", algorithm(replay_buffer_class="her"), "`replay_buffer_class` must be GoalReplayBuffer .*, not 'her'"),
    ("CLearning", algorithm(train_freq=(1, "hour")), "unit of the `train_freq` must be either 'step' or 'episode'"),
    ("CLearning", algorithm(train_freq=1.5), r"frequency of `train_freq` must be an integer and not 1\.5"),
    ("CLearning", lambda: CLearning("MultiInputPolicy", gym.make("Pendulum-v1")), "needs a goal environment.*GoalFromObservation"),
    ("CLearning", lambda: CLearning("CnnPolicy", PointEnv()), "You must use `MultiInputPolicy`"),
    ("CLearning", lambda: CLearning("MyPolicy", PointEnv()), "Policy MyPolicy unknown"),
    # -- its methods
    ("CLearning.learn_offline", learned("learn_offline", 5), "The replay buffer is empty: fill it before `learn_offline`"),
    ("CLearning.load_replay_buffer", learned("load_replay_buffer", Path(__file__).parent / "no.pkl"), "No such file|no.pkl"),
    ("CLearning.export", learned("export", Path(__file__).parent / "no" / "agent"), "No such file or directory"),
    ("CLearning.from_export", lambda: CLearning.from_export("no such file"), "There is no file no such file"),
    ("CLearning.from_export", lambda: CLearning.from_export(__file__), "was not written by sb3_clearning"),
    ("CLearning.resume", lambda: CLearning.resume("no such folder", PointEnv()), "There is no checkpoint in no such folder"),
    ("CLearning.resume", lambda: CLearning.resume(".", None), "`resume` needs the environment"),  # type: ignore[arg-type]
    # -- GoalTD3
    ("GoalTD3", baseline(relabel="all"), r"`relabel` must be one of \('none', 'next', 'her', 'her_half'\)"),
    ("GoalTD3", baseline(relabel={"next": 0.5}), "shares of the goals must be at least 0 and add up to 1"),
    ("GoalTD3", baseline(relabel={"past": 1.0}), r"Unknown kinds of goals \['past'\]"),
    ("GoalTD3", baseline(q_loss="huber"), '`q_loss` must be "mse" or "bce", not \'huber\''),
    ("GoalTD3", baseline(gamma=1), "`gamma` must be at least 0 and below 1, not 1"),
    ("GoalTD3", lambda: GoalTD3("MultiInputPolicy", gym.make("Pendulum-v1")), "needs a goal environment"),
    # -- the buffer
    ("GoalReplayBuffer", buffer(0, SPACE, ACTIONS), "`buffer_size` must be at least 1, not 0"),
    ("GoalReplayBuffer", buffer("10", SPACE, ACTIONS), "`buffer_size` must be a whole number of at least 1, not '10'"),
    ("GoalReplayBuffer", buffer(10, SPACE, ACTIONS, n_envs=0), "`n_envs` must be at least 1, not 0"),
    ("GoalReplayBuffer", buffer(10, spaces.Box(-1, 1, (2,)), ACTIONS), "needs a goal environment"),
    ("GoalReplayBuffer", buffer(10, SPACE, spaces.Discrete(2)), r"needs a Box action space, not Discrete\(2\)"),
    ("GoalReplayBuffer.add", add(obs={}), r"needs arrays for every key of \['achieved_goal'.*KeyError"),
    ("GoalReplayBuffer.add", add(obs=np.zeros(3)), "needs arrays for every key"),
    ("GoalReplayBuffer.add", add(action=np.zeros((1, 3))), r"2 actions for each, not .* and \(1, 3\)"),
    ("GoalReplayBuffer.add", add(done=np.zeros(2, bool)), "with 2 dones and 1 infos"),
    ("GoalReplayBuffer.add", add(infos=[]), "with 1 dones and 0 infos"),
    (
        "GoalReplayBuffer.add",
        add(next_obs={"observation": np.zeros(4), "achieved_goal": np.zeros(2), "desired_goal": np.zeros(2)}),
        r"needs the shapes .*\(4,\)",
    ),
    ("GoalReplayBuffer.sample", lambda: filled().sample(0), "`batch_size` must be at least 1, not 0"),
    ("GoalReplayBuffer.sample", lambda: buffer(10, SPACE, ACTIONS)().sample(4), "The replay buffer is empty"),
    ("GoalReplayBuffer.sample_goals", sample(batch_size=2.0), r"`batch_size` must be a whole number of at least 1, not 2\.0"),
    ("GoalReplayBuffer.sample_goals", sample(gamma=1.1), r"`gamma` must be within \[0, 1\], not 1\.1"),
    ("GoalReplayBuffer.sample_goals", sample(gamma=NAN), r"`gamma` must be within \[0, 1\], not nan"),
    ("GoalReplayBuffer.sample_goals", sample(relabel={}), "add up to 1"),
    ("GoalReplayBuffer.sample_goals", sample(relabel={"next": 2.0, "random": -1.0}), "at least 0 and add up to 1"),
    ("GoalReplayBuffer.load_arrays", arrays(actions=np.zeros((6, 3))), r"actions have the shape \(6, 3\), but \(6, 2\) is needed"),
    ("GoalReplayBuffer.load_arrays", arrays(actions=np.ones((6, 2))), "outside of the environment's action space"),
    ("GoalReplayBuffer.load_arrays", arrays(actions={}), "`actions` is a dict"),
    ("GoalReplayBuffer.load_arrays", arrays(terminations=np.zeros(5)), "need the same length, above 0"),
    ("GoalReplayBuffer.load_arrays", arrays(observations=np.zeros((6, 4))), r"has the shape \(5, 4\), but \(5, 3\) is needed"),
    ("GoalReplayBuffer.load_arrays", arrays(observations={"state": SIX}), 'no key "observation"'),
    ("GoalReplayBuffer.load_arrays", arrays(observations=np.full((6, 3), NAN)), "NaN or inf in the key"),
    ("GoalReplayBuffer.load", lambda: filled().load("no such file"), "There is no file"),
    ("GoalReplayBuffer.load", lambda: filled().load(__file__), "was not written by sb3_clearning"),
    # -- noise
    ("PinkActionNoise", lambda: PinkActionNoise(0.1), "one value per action dimension"),  # type: ignore[arg-type]
    ("PinkActionNoise", lambda: PinkActionNoise(np.array([])), "one value per action dimension"),
    ("PinkActionNoise", lambda: PinkActionNoise("loud"), "sigma must be an array of numbers"),  # type: ignore[arg-type]
    ("PinkActionNoise", lambda: PinkActionNoise(np.array([-1.0])), "finite and not negative"),
    ("PinkActionNoise", lambda: PinkActionNoise(np.ones(2), length=0), "length must be at least 1 step, got 0"),
    ("PinkActionNoise", lambda: PinkActionNoise(np.ones(2), length="9"), "at least 1 step, got '9'"),  # type: ignore[arg-type]
    ("PinkActionNoise", lambda: PinkActionNoise(np.ones(2), beta=NAN), "beta must be finite and not negative, got nan"),
    ("PinkActionNoise", lambda: PinkActionNoise(np.ones(2), beta=None), "beta must be finite"),  # type: ignore[arg-type]
    # -- networks
    ("CLearningPolicy", policy(n_critics=0), "`n_critics` must be at least 1, not 0"),
    ("CLearningPolicy", policy(n_critics="2"), "`n_critics` must be a whole number of at least 1, not '2'"),
    ("CLearningPolicy", policy(net_arch=[0]), "`net_arch` must be at least 1, not 0"),
    ("CLearningPolicy", policy(n_quantiles=5), "unexpected keyword argument 'n_quantiles'"),
    ("ClassifierCritic", critic(n_critics=-1), "`n_critics` must be at least 1, not -1"),
    ("ClassifierCritic", critic(net_arch=["big"]), "`net_arch` must be a whole number of at least 1, not 'big'"),
    # -- the future; more in the tests of its modules
    ("FutureStateEstimator", lambda: FutureStateEstimator(gamma=1.5), "`gamma` must be"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(n_classifiers=0), "`n_classifiers` must be at least 1, not 0"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(depth=3), r"Unknown arguments \['depth'\]"),
    ("HindsightQEstimator", lambda: HindsightQEstimator(reading="value"), "`reading` must be one of .*, not 'value'"),
    ("OneStepModel", lambda: OneStepModel(gamma=1.0), r"`gamma` must be at least 0 and below 1, not 1\.0"),
    ("OneStepModel", lambda: OneStepModel(horizon=0), "`horizon` and `n_rollouts` must be at least 1"),
    ("TablePolicy", lambda: TablePolicy(np.ones((2, 2)), len), "rows of probabilities that add up to 1"),  # type: ignore[arg-type]
    ("PolicyFuture", future_of_an_untrained_model, "replay buffer is empty, so there are no visited goals.*pass `candidates`"),
    # -- evaluation
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), "FetchReach-v4"), "`env` must be a Gymnasium env.*, not str"),  # type: ignore[arg-type]
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), gym.make("Pendulum-v1")), "needs a goal environment"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), PointEnv, n_episodes=0), "`n_episodes` must be .* not 0"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), PointEnv, n_envs=1.5), r"`n_envs` must be .* not 1\.5"),  # type: ignore[arg-type]
    # -- checkpoints and timeouts
    ("ResumableCheckpoint", lambda: ResumableCheckpoint(""), "`folder` must be a path, not ''"),
    ("ResumableCheckpoint", lambda: ResumableCheckpoint(None), "`folder` must be a path, not None"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", every=0), "`every` must be a whole number of at least 1, not 0"),
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", every=2.5), r"`every` must be a whole .*, not 2\.5"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", every=NAN), "`every` must be a whole .*, not nan"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", keep=0), "`keep` must be a whole number of at least 1, not 0"),
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", keep="2"), "`keep` must be a whole .*, not '2'"),  # type: ignore[arg-type]
    ("StepTimeout", lambda: StepTimeout(DummyVecEnv([PointEnv]), 0), "`seconds` must be a number above 0, not 0"),
    # -- the losses
    ("losses.importance_weight", lambda: losses.importance_weight(LOGITS, 0.0), r"`clip` must be above 0 .*, not 0\.0"),
    ("losses.importance_weight", lambda: losses.importance_weight(LOGITS, "2"), "`clip` must be above 0"),  # type: ignore[arg-type]
    ("losses.mc_loss", lambda: losses.mc_loss(LOGITS.numpy(), LOGITS), "`future_logits` must be a tensor of floats, not ndarray"),  # type: ignore[arg-type]
    ("losses.mc_loss", lambda: losses.mc_loss(LOGITS, LOGITS.long()), "`random_logits` must be a tensor of floats, not .*int64"),
    ("losses.td_loss", lambda: losses.td_loss(LOGITS, LOGITS, th.zeros(3), 0.9), "batches of different sizes: .*'w': .3,"),
    ("losses.td_loss", lambda: losses.td_loss(LOGITS, LOGITS, LOGITS, 2.0), r"`gamma` must be at least 0 and at most 1, not 2\.0"),
    ("losses.mixed_loss", lambda: losses.mixed_loss(LOGITS, LOGITS, LOGITS, LOGITS, 0.9, -1), "`lambda_` must be at least 0"),
    ("losses.mc_cross_entropy", lambda: losses.mc_cross_entropy(LOGITS, LOGITS, "hinge"), r"`form` must be one of \('bce', 'mse'\)"),
    ("losses.td_cross_entropy", lambda: losses.td_cross_entropy(LOGITS, LOGITS, th.zeros(3), 0.9), "batches of different sizes"),
    ("losses.mixed_cross_entropy", lambda: losses.mixed_cross_entropy(LOGITS, LOGITS, LOGITS, LOGITS, 0.9, NAN), "`lambda_` must be .* not nan"),
    ("losses.hindsight_q_loss", lambda: losses.hindsight_q_loss(LOGITS, LOGITS, th.zeros(3), 0.9, 0.5), "batches of different sizes"),
    ("losses.hindsight_q_loss", lambda: losses.hindsight_q_loss(LOGITS, LOGITS, LOGITS, 0.9, 2.0), "`lambda_` must be at least 0"),
    # -- the wrappers; more in test_wrappers.py
    ("GoalFromObservation", lambda: GoalFromObservation(PointEnv()), "is a goal env already"),
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), crop=[9]), "9"),
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), goal_sampler="far"), "Unknown goal_sampler 'far'"),
    ("NoisyGoal", lambda: NoisyGoal(gym.make("Pendulum-v1"), 0.1), "goal"),
    ("NoisyGoal", lambda: NoisyGoal(PointEnv(), 0.1, distance_threshold=-1.0), "must not be negative"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "message"), WRONG, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(WRONG)])
def test_wrong_input(name: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        call()


#: What is made by the package alone, or is no function.
NOT_CALLED_BY_USERS = {"GoalBatch", "__version__"}


def test_every_public_name_is_in_the_table() -> None:
    named = {name for name, _, _ in WRONG}
    assert set(sb3_clearning.__all__) - NOT_CALLED_BY_USERS <= {name.split(".")[0] for name in named}
    losses_of_logits = {
        f"losses.{name}"
        for name, function in inspect.getmembers(losses, inspect.isfunction)
        if function.__module__ == losses.__name__
        and name.endswith(("_loss", "_entropy", "_weight"))
        and name != "cross_entropy"
    }
    assert losses_of_logits - {"losses.random_label_and_weight"} <= named

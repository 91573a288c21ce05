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
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

import sb3_clearning
from sb3_clearning import (
    ClassifierCritic,
    CLearning,
    CLearningPolicy,
    Experience,
    FutureStateEstimator,
    GoalEvalCallback,
    GoalReplayBuffer,
    GoalTD3,
    HindsightQEstimator,
    OneStepModel,
    PinkActionNoise,
    PolicyFuture,
    ResumableCheckpoint,
    StepTimeout,
    TablePolicy,
    collect,
    evaluate_goals,
    load_from_hub,
    losses,
    push_to_hub,
)
from sb3_clearning.common.input_scaling import fit_extractors
from sb3_clearning.envs import (
    BatchedGridworld,
    BatchedPointMaze,
    GoalFromObservation,
    GoalSampler,
    NoisyGoal,
    VecGoalFromObservation,
)
from tests.support.goal_envs import ImageGoalEnv, PointEnv
from tests.support.small_models import small_model

SPACE, ACTIONS = PointEnv().observation_space, PointEnv().action_space
SIX = np.zeros(6)
NAN = float("nan")
LOGITS = th.zeros(4)
OBS = {"observation": np.zeros(3), "achieved_goal": np.zeros(2), "desired_goal": np.zeros(2)}


def wrapped() -> GoalFromObservation:
    env = GoalFromObservation(gym.make("Pendulum-v1"))
    env.reset(seed=0)
    return env


def flat(n_envs: int = 2, low: float = -2.0, high: float = 2.0, **arguments: Any) -> VecGoalFromObservation:
    env = DummyVecEnv([lambda: gym.make("Pendulum-v1")] * n_envs)
    env.action_space = spaces.Box(low, high, (1,))
    return VecGoalFromObservation(env, **arguments)


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
        before = one.next_slot.copy()
        try:
            one.add(**{**step, "done": np.zeros(1, bool), "infos": [{}], **changed})
        finally:
            assert one.size() == 0
            assert np.array_equal(one.next_slot, before)

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


def of_baseline(method: str, *arguments: Any, **named: Any) -> Callable[[], Any]:
    return lambda: getattr(baseline(policy_kwargs={"net_arch": [4]})(), method)(*arguments, **named)


def estimator(kind: str) -> Any:
    """:return: An estimator of each kind that has learned from a little data"""
    if kind not in FITTED:
        data: dict[str, np.ndarray] = {"observations": np.linspace(0, 1, 60).reshape(20, 3), "actions": np.zeros((20, 2))}
        data.update(terminations=np.zeros(20), truncations=np.zeros(20))
        if kind == "PolicyFuture":
            FITTED[kind] = PolicyFuture(small_model(PointEnv(), learning_starts=100).learn(12))
        else:
            FITTED[kind] = getattr(sb3_clearning, kind)(gamma=0.5).fit(data, steps=2)
    return FITTED[kind]


FITTED: dict[str, Any] = {}
STATES, GOALS, TWO_ACTIONS = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 2))


def asked(kind: str, method: str, *arguments: Any, **named: Any) -> tuple[str, Callable[[], Any]]:
    """:return: The name of a method, and a call of it with these arguments"""
    if kind == "PolicyFuture":
        states = {"observation": STATES, "achieved_goal": STATES[:, :2]}
        arguments = (states if arguments[0] is STATES else arguments[0], *arguments[1:])
    return f"{kind}.{method}", lambda: getattr(estimator(kind), method)(*arguments, **named)


def files_of(kind: str) -> list[tuple[str, Callable[[], Any], str]]:
    """:return: What the estimators that have a file answer to wrong paths"""
    found = getattr(sb3_clearning, kind)
    return [
        (f"{kind}.save", lambda: found().save("unfitted"), rf"The {kind} is not fitted: call `fit\(dataset\)` first"),
        (*asked(kind, "save", None), "not NoneType|not 'NoneType'"),
        (*asked(kind, "save", Path("no") / "such" / "folder"), "There is no folder no/such to write folder into"),
        (f"{kind}.load", lambda: found.load("nowhere"), "There is no file nowhere"),
        (f"{kind}.load", lambda: found.load(__file__), "was not written by sb3_clearning"),
    ]


def questions(kind: str) -> list[tuple[str, Callable[[], Any], str]]:
    """:return: What all estimators answer to wrong questions"""
    five, event = np.zeros((2, 5)), lambda goals: np.zeros(3)
    rows = [
        (*asked(kind, "log_ratio", five, TWO_ACTIONS, GOALS), "bservations (need the shape|are a dict)"),
        (*asked(kind, "log_ratio", STATES, five, GOALS), r"actions need the shape \(n, 2\), not \(2, 5\)"),
        (*asked(kind, "log_ratio", STATES, "left", GOALS), r"actions need the shape \(n, 2\)"),
        (*asked(kind, "log_ratio", STATES, TWO_ACTIONS, five), r"goals need the shape .*, not \(2, 5\)"),
        (*asked(kind, "density", STATES, TWO_ACTIONS, five), r"goals need the shape .*, not \(2, 5\)"),
        (*asked(kind, "expected_future_state", STATES, five), r"actions need the shape \(n, 2\)"),
    ]
    if kind == "OneStepModel":
        values = "makes its own states: pass a function of goals"
        return [
            *rows,
            (*asked(kind, "probability", STATES, TWO_ACTIONS, np.zeros(3)), values),
            (*asked(kind, "expected_reward", STATES, TWO_ACTIONS, 3), values),
            (*asked(kind, "unroll", STATES, five), r"actions need the shape \(n, 2\)"),
        ]
    return [
        *rows,
        (*asked(kind, "density", STATES, TWO_ACTIONS, five[:, :3] if kind != "PolicyFuture" else five[:, :2], marginal="flat"), '`marginal` must be .*, "data" or None, not \'flat\''),
        (*asked(kind, "expected_future_state", STATES, TWO_ACTIONS, candidates=five), "goals need the shape"),
        (*asked(kind, "expected_future_state", STATES, TWO_ACTIONS, candidates=five[:0, :3] if kind != "PolicyFuture" else five[:0, :2]), "There are no candidates"),
        (*asked(kind, "probability", STATES, TWO_ACTIONS, event), "event must give one value for each of the .* candidates"),
        (*asked(kind, "probability", STATES, TWO_ACTIONS, "left"), "event must give one value for each of the .* candidates"),
        (*asked(kind, "expected_reward", STATES, TWO_ACTIONS, 3), "reward function must give one value for each"),
        (*asked(kind, "expected_reward", STATES, TWO_ACTIONS, lambda goals: np.full(len(goals), NAN)), "not finite numbers"),
    ]  # fmt: skip


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
    ("CLearning", algorithm(n_steps=None), "`n_steps` must be a whole number of at least 1 .*, not None"),
    ("CLearning", algorithm(w_clip="2"), "`w_clip` must be above 0 .*, not '2'"),
    ("CLearning", algorithm(lambda_=None), r"`lambda_` must be at least 0 and at most 1 .*, not None"),
    ("CLearning", algorithm(commanded_goal_fraction="all"), r"`commanded_goal_fraction` must be at least 0 and at most 1, not 'all'"),
    ("CLearning", algorithm(replay_buffer_class="her"), "`replay_buffer_class` must be GoalReplayBuffer .*, not 'her'"),
    ("CLearning", algorithm(train_freq=(1, "hour")), "unit of the `train_freq` must be either 'step' or 'episode'"),
    ("CLearning", algorithm(train_freq=0), "`train_freq` must be at least 1, not 0"),
    ("CLearning", algorithm(train_freq=(-1, "episode")), "`train_freq` must be at least 1, not -1"),
    ("CLearning", algorithm(train_freq=1.5), r"frequency of `train_freq` must be an integer and not 1\.5"),
    ("CLearning", lambda: CLearning("MultiInputPolicy", gym.make("Pendulum-v1")), "needs a goal environment.*GoalFromObservation"),
    ("CLearning", lambda: CLearning("CnnPolicy", PointEnv()), "You must use `MultiInputPolicy`"),
    ("CLearning", lambda: CLearning("MyPolicy", PointEnv()), "Policy MyPolicy unknown"),
    ("CLearning", algorithm(tensorboard_log=True), "`tensorboard_log` must be a folder's path or None, not True"),
    # -- its methods
    ("CLearning.learn", learned("learn", "10"), "`total_timesteps` must be a whole number of at least 0, not '10'"),
    ("CLearning.learn", learned("learn", -5), "`total_timesteps` must be at least 0, not -5"),
    ("CLearning.learn", learned("learn", NAN), "`total_timesteps` must be a whole number of at least 0, not nan"),
    ("CLearning.learn", learned("learn", 10, callback=3), "`callback` must be a BaseCallback, a function, or a list .*, not 3"),
    ("CLearning.learn", learned("learn", 10, callback=["log"]), "`callback` must be .*, not 'log'"),
    ("CLearning.learn", learned("learn", 10, log_interval=-1), r"`log_interval` must be at least 0 \(0 or None: no logs\), not -1"),
    ("CLearning.train", learned("train", "1"), "`gradient_steps` must be a whole number of at least 0, not '1'"),
    ("CLearning.train", learned("train", 1, batch_size=0), "`batch_size` must be at least 2, not 0"),
    ("CLearning.predict", learned("predict", np.zeros((2, 3))), "dict with the keys .* are missing"),
    ("CLearning.predict", learned("predict", {"observation": np.zeros(3), "achieved_goal": np.zeros(2)}), r"\['desired_goal'\] are missing"),
    ("CLearning.predict", learned("predict", {**OBS, "observation": np.zeros(4)}), r"Unexpected observation shape \(4,\)"),
    ("CLearning.predict", learned("predict", {**OBS, "desired_goal": np.full(2, NAN)}), "NaN or inf in its key `desired_goal`"),
    ("CLearning.learn_offline", learned("learn_offline", -1), "`gradient_steps` must be at least 0, not -1"),
    ("CLearning.learn_offline", learned("learn_offline", 5, log_interval=0), "`log_interval` must be at least 1, not 0"),
    ("CLearning.learn_offline", learned("learn_offline", 5, callback="log"), "`callback` must be .*, not 'log'"),
    ("CLearning.load_replay_buffer", learned("load_replay_buffer", __file__), "is not a replay buffer that `save_replay_buffer` wrote"),
    ("CLearning.save", learned("save", 3), "Path 3 parameter has invalid type"),
    ("CLearning.load", lambda: CLearning.load("no such file"), "No such file or directory: 'no such file.zip'"),
    ("CLearning.load", lambda: CLearning.load(__file__), "wasn't a zip-file"),
    ("CLearning.set_env", learned("set_env", gym.make("Pendulum-v1")), "Observation spaces do not match"),
    ("CLearning.learn_offline", learned("learn_offline", 5), "The replay buffer is empty: fill it before `learn_offline`"),
    ("CLearning.load_replay_buffer", learned("load_replay_buffer", Path(__file__).parent / "no.pkl"), "No such file|no.pkl"),
    ("CLearning.export", learned("export", Path(__file__).parent / "no" / "agent"), "There is no folder .*no to write"),
    ("CLearning.export_policy", learned("export_policy", Path(__file__).parent), "`path` must be a file in a folder that exists"),
    ("CLearning.export_policy", learned("export_policy", 3), "`path` must be a file's path such as 'policy.onnx', not 3"),
    ("CLearning.export_policy", learned("export_policy", "policy.onnx", PointEnv()), "`vec_normalize` must be a VecNormalize or None, not PointEnv"),
    ("CLearning.from_export", lambda: CLearning.from_export("no such file"), "There is no file no such file"),
    ("CLearning.from_export", lambda: CLearning.from_export(__file__), "was not written by sb3_clearning"),
    ("CLearning.resume", lambda: CLearning.resume("no such folder", PointEnv()), "There is no checkpoint in no such folder"),
    ("CLearning.resume", lambda: CLearning.resume("no such folder", None), "There is no checkpoint in no such folder"),
    ("CLearning.from_spaces", lambda: CLearning.from_spaces(ACTIONS, ACTIONS), "C-learning needs a goal environment"),
    ("CLearning.from_spaces", lambda: CLearning.from_spaces(SPACE, spaces.Discrete(2)), "needs continuous actions"),
    ("CLearning.from_spaces", lambda: CLearning.from_spaces(SPACE, ACTIONS, gamma=1), "`gamma` must be at least 0 and below 1"),
    ("CLearning.learn", lambda: CLearning.from_spaces(SPACE, ACTIONS).learn(5), r"no environment: call `model.set_env\(env\)`"),
    # -- GoalTD3
    ("GoalTD3.from_spaces", lambda: GoalTD3.from_spaces(SPACE, ACTIONS, relabel="all"), "`relabel` must be one of"),
    ("GoalTD3", baseline(relabel="all"), r"`relabel` must be one of \('none', 'next', 'her', 'her_half'\)"),
    ("GoalTD3", baseline(relabel=None), "`relabel` must be one of .*, not None"),
    ("GoalTD3", baseline(relabel={"next": "half", "random": 0.5}), "`relabel` must be one of .*, or shares of goals like"),
    ("GoalTD3", baseline(relabel={"next": 0.5}), "shares of the goals must be at least 0 and add up to 1"),
    ("GoalTD3", baseline(relabel={"past": 1.0}), r"Unknown kinds of goals \['past'\]"),
    ("GoalTD3", baseline(q_loss="huber"), '`q_loss` must be "mse" or "bce", not \'huber\''),
    ("GoalTD3", baseline(gamma=1), "`gamma` must be at least 0 and below 1, not 1"),
    ("GoalTD3.learn", of_baseline("learn", 2.5), r"`total_timesteps` must be a whole number of at least 0, not 2\.5"),
    ("GoalTD3.learn", of_baseline("learn", 5, callback="log"), "`callback` must be .*, not 'log'"),
    ("GoalTD3.train", of_baseline("train", -1), "`gradient_steps` must be at least 0, not -1"),
    ("GoalTD3.predict", of_baseline("predict", np.zeros(3)), "dict with the keys .* are missing"),
    ("GoalTD3.learn_offline", of_baseline("learn_offline", "5"), "`gradient_steps` must be a whole number of at least 0, not '5'"),
    ("GoalTD3.load_replay_buffer", of_baseline("load_replay_buffer", __file__), "is not a replay buffer"),
    ("GoalTD3.export", of_baseline("export", None), "os.PathLike object"),
    ("GoalTD3.export_policy", of_baseline("export_policy", ""), "`path` must be a file's path"),
    ("GoalTD3.from_export", lambda: GoalTD3.from_export(__file__), "was not written by sb3_clearning"),
    ("GoalTD3.resume", lambda: GoalTD3.resume("no such folder", PointEnv()), "There is no checkpoint in no such folder"),
    # -- the buffer
    ("GoalReplayBuffer", buffer(0, SPACE, ACTIONS), "`buffer_size` must be at least 1, not 0"),
    ("GoalReplayBuffer", buffer("10", SPACE, ACTIONS), "`buffer_size` must be a whole number of at least 1, not '10'"),
    ("GoalReplayBuffer", buffer(10, SPACE, ACTIONS, n_envs=0), "`n_envs` must be at least 1, not 0"),
    ("GoalReplayBuffer", buffer(10, spaces.Box(-1, 1, (2,)), ACTIONS), "needs a goal environment"),
    ("GoalReplayBuffer", buffer(10, SPACE, ACTIONS, "cpu", buffer_device="gpu"), "`buffer_device` must be a device such as"),
    ("GoalReplayBuffer", buffer(10, SPACE, ACTIONS, "cpu", buffer_device=1.5), "`buffer_device` must be a device such as"),
    ("GoalReplayBuffer", buffer(10, SPACE, spaces.Discrete(2)), r"needs a Box action space, not Discrete\(2\)"),
    ("GoalReplayBuffer.move_to", lambda: filled().move_to(th.device("cpu"), "gpu"), "`buffer_device` must be a device such as"),
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
    ("GoalReplayBuffer.add_transitions", lambda: filled().add_transitions(filled().transitions()._replace(actions=np.zeros((12, 3)))), r"12 transitions need the shapes .*\(12, 3\)"),
    ("GoalReplayBuffer.add_pieces", lambda: filled().add_pieces([filled().transitions()._replace(terminations=SIX)], 12), "with 6 terminations and 12 truncations"),
    ("GoalReplayBuffer.float_states", lambda: filled().float_states(0), "`at_most` must be at least 1, not 0"),
    ("GoalReplayBuffer.random_goals", lambda: filled().random_goals(0), "`at_most` must be at least 1, not 0"),
    ("GoalReplayBuffer.random_goals", lambda: filled().random_goals(5, 2), "`commanded_fraction` must be at least 0 and at most 1, not 2"),
    ("GoalReplayBuffer.sample", lambda: filled().sample(0), "`batch_size` must be at least 1, not 0"),
    ("GoalReplayBuffer.sample", lambda: buffer(10, SPACE, ACTIONS)().sample(4), "The replay buffer is empty"),
    ("GoalReplayBuffer.sample_goals", sample(batch_size=2.0), r"`batch_size` must be a whole number of at least 1, not 2\.0"),
    ("GoalReplayBuffer.sample_goals", sample(gamma=1.1), r"`gamma` must be within \[0, 1\], not 1\.1"),
    ("GoalReplayBuffer.sample_goals", sample(gamma=NAN), r"`gamma` must be within \[0, 1\], not nan"),
    ("GoalReplayBuffer.sample_goals", sample(relabel={}), "add up to 1"),
    ("GoalReplayBuffer.sample_goals", sample(relabel={"next": 2.0, "random": -1.0}), "at least 0 and add up to 1"),
    ("GoalReplayBuffer.load_arrays", arrays(actions=np.zeros((6, 3))), r"actions have the shape \(5, 3\), but \(5, 2\) is needed"),
    ("GoalReplayBuffer.load_arrays", arrays(actions=np.ones((6, 2))), "outside of the environment's action space"),
    ("GoalReplayBuffer.load_arrays", arrays(actions={}), "`actions` is a dict"),
    ("GoalReplayBuffer.load_arrays", arrays(terminations=np.zeros(5)), "need the same length, above 0"),
    ("GoalReplayBuffer.load_arrays", arrays(observations=np.zeros((6, 4))), r"has the shape \(5, 4\), but \(5, 3\) is needed"),
    ("GoalReplayBuffer.load_arrays", arrays(observations={"state": SIX}), 'no key "observation"'),
    ("GoalReplayBuffer.load_arrays", arrays(observations=np.full((6, 3), NAN)), "NaN or inf in the key"),
    ("GoalReplayBuffer.load_minari", lambda: buffer(10, SPACE, ACTIONS)().load_minari(None), "A NoneType is not a Minari dataset"),
    ("GoalReplayBuffer.load_minari", lambda: buffer(10, SPACE, ACTIONS)().load_minari("no/such-v0"), "run `minari download no/such-v0` first|not installed"),
    # files, and what they may hold, are in test_load_dataset.py
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset(None), "A NoneType is not a dataset"),
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset({}), r"lacks \['observations', 'actions'\]"),
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset("no/such-v0"), "run `minari download no/such-v0` first|not installed"),
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset("none.npz"), "none.npz: There is no such file"),
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset("none.safetensors"), "There is no file none.safetensors"),
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset(buffer(10, SPACE, ACTIONS)()), "The dataset is empty"),
    ("GoalReplayBuffer.load_dataset", lambda: filled().load_dataset(collect("random", "CartPole-v1", 9)), r"actions have the shape \(9,\), but \(9, 2\)"),
    ("Experience", lambda: Experience(SIX[:0], SIX[:0], SIX[:0], SIX[:0], SIX[:0], SPACE, ACTIONS), "The dataset is empty"),
    ("Experience.save", lambda: collect("random", PointEnv(), 5).save(Path(__file__).parent / "no" / "data"), "There is no folder .*no to write data into"),
    ("Experience.save", lambda: collect("random", PointEnv(), 5).save(None), "os.PathLike object"),  # type: ignore[arg-type]
    ("Experience.load", lambda: Experience.load("no such file"), "There is no file"),
    ("Experience.load", lambda: Experience.load(__file__), "was not written by sb3_clearning"),
    ("collect", lambda: collect("greedy", PointEnv(), 5), "`policy` must be a model, a function of observations, or \"random\", not 'greedy'"),
    ("collect", lambda: collect(None, PointEnv(), 5), "`policy` must be a model, .*, not None"),
    ("collect", lambda: collect("random", None, 5), "`env` must be a Gymnasium environment, a VecEnv or an id, not NoneType"),  # type: ignore[arg-type]
    ("collect", lambda: collect("random", PointEnv(), 0), "`n_steps` must be at least 1, not 0"),
    ("collect", lambda: collect("random", PointEnv(), 2.5), r"`n_steps` must be a whole number of at least 1, not 2\.5"),  # type: ignore[arg-type]
    ("collect", lambda: collect("random", PointEnv(), 5, seed=-1), "`seed` must be at least 0 .*, not -1"),
    ("collect", lambda: collect(lambda obs: np.zeros(2), PointEnv(), 5), r"actions have the shape \(2,\), not \(1, 2\)"),
    ("GoalReplayBuffer.save", lambda: filled().save(Path(__file__).parent / "no" / "buffer"), "There is no folder .*no to write"),
    ("GoalReplayBuffer.save", lambda: filled().save(None), "os.PathLike object"),  # type: ignore[arg-type]
    ("GoalReplayBuffer.load", lambda: filled().load("no such file"), "There is no file"),
    ("GoalReplayBuffer.load", lambda: filled().load(__file__), "was not written by sb3_clearning"),
    # -- noise
    ("PinkActionNoise.batched", lambda: PinkActionNoise(np.ones(2)).batched(0), "`n_envs` must be at least 1"),
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
    ("CLearningPolicy.log_prob", lambda: small_model(PointEnv()).policy.log_prob({}, th.zeros(1, 2)), "Only a stochastic actor has densities"),
    ("CLearningPolicy.actions_and_pre_tanh", lambda: small_model(PointEnv()).policy.actions_and_pre_tanh({key: th.zeros(2, 9) for key in OBS}), "must match the size"),
    ("fit_extractors", lambda: fit_extractors(small_model(PointEnv()).policy, {"observation": np.zeros((4, 9))}, 4), r"arrays \(n, 3\) for 'observation', not \(4, 9\)"),
    ("fit_extractors", lambda: fit_extractors(small_model(PointEnv()).policy, {"observation": np.zeros((0, 3))}, 4), r"not \(0, 3\)"),
    ("CLearningPolicy", policy(standardize="yes"), "`standardize` in `policy_kwargs` must be True or False, not 'yes'"),
    ("ClassifierCritic.forward", lambda: small_model(PointEnv()).critic({key: th.zeros(2, len(value)) for key, value in OBS.items()}, th.zeros(2, 5)), "Expected size|shapes"),
    ("ClassifierCritic.logits", lambda: small_model(PointEnv()).critic.logits(th.zeros(2, 5)), "Expected size|shapes"),
    ("ClassifierCritic", critic(n_critics=-1), "`n_critics` must be at least 1, not -1"),
    ("ClassifierCritic", critic(net_arch=["big"]), "`net_arch` must be a whole number of at least 1, not 'big'"),
    # -- the future; more in the tests of its modules
    ("FutureStateEstimator", lambda: FutureStateEstimator(gamma=1.5), "`gamma` must be"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(n_classifiers=0), "`n_classifiers` must be at least 1, not 0"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(depth=3), r"Unknown arguments \['depth'\]"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(gamma="0.9"), "`gamma` must be at least 0 and below 1, not '0.9'"),  # type: ignore[arg-type]
    ("FutureStateEstimator", lambda: FutureStateEstimator(batch_size=2.5), r"`batch_size` must be a whole number of at least 1, not 2\.5"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(hidden=256), r"`hidden` must be the sizes of the hidden layers such as \(256, 256\), not 256"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(hidden=(32, 0)), r"`hidden` must be the sizes of .*, not \(32, 0\)"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(hidden="64"), "`hidden` must be the sizes of .*, not '64'"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(learning_rate="fast"), "`learning_rate` must be above 0, or a function of the remaining progress, not 'fast'"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(learning_rate=0), "`learning_rate` must be above 0, .*, not 0"),
    ("FutureStateEstimator", lambda: FutureStateEstimator(policy_samples=None), "`policy_samples` must be a whole number"),  # type: ignore[arg-type]
    ("FutureStateEstimator.fit", lambda: FutureStateEstimator().fit(None), "A NoneType is not a dataset"),
    ("FutureStateEstimator.fit", lambda: FutureStateEstimator().fit(filled(), steps="3"), "`steps` must be a whole number of at least 1, not '3'"),  # type: ignore[arg-type]
    ("FutureStateEstimator.fit", lambda: FutureStateEstimator().fit(filled(), method="sarsa"), "`method` must be one of .*, not 'sarsa'"),
    ("FutureStateEstimator.fit", lambda: FutureStateEstimator().fit(filled(), "pi"), "A policy is an SB3 model, a callable, a table or None"),
    ("FutureStateEstimator.density", lambda: FutureStateEstimator().density(STATES, None, GOALS), r"call `fit\(dataset\)` first"),
    *[row for kind in ("FutureStateEstimator", "HindsightQEstimator", "OneStepModel") for row in files_of(kind)],
    ("HindsightQEstimator", lambda: HindsightQEstimator(hidden=[2.5]), r"`hidden` must be the sizes of .*, not \[2\.5\]"),
    ("HindsightQEstimator.fit", lambda: HindsightQEstimator().fit({}), "lacks|is not a dataset|empty"),
    ("HindsightQEstimator.log_q", lambda: HindsightQEstimator().log_q(STATES, TWO_ACTIONS, GOALS), r"call `fit\(dataset\)` first"),
    ("OneStepModel.fit", lambda: OneStepModel().fit(filled(), steps=0), "`steps` must be at least 1, not 0"),
    ("OneStepModel.fit", lambda: OneStepModel().fit(filled()), "needs observations of a Box, not of Dict"),
    ("OneStepModel", lambda: OneStepModel(n_rollouts="many"), "`n_rollouts` must be a whole number of at least 1, not 'many'"),  # type: ignore[arg-type]
    ("OneStepModel", lambda: OneStepModel(hidden=256), r"`hidden` must be the sizes of the hidden layers such as \(256, 256\), not 256"),  # type: ignore[arg-type]
    ("OneStepModel", lambda: OneStepModel(hidden=(None,)), r"`hidden` must be the sizes of .*, not \(None,\)"),  # type: ignore[arg-type]
    ("OneStepModel", lambda: OneStepModel(learning_rate=-1e-3), r"`learning_rate` must be above 0, not -0\.001"),
    ("OneStepModel", lambda: OneStepModel(learning_rate=lambda progress: 1e-3), "`learning_rate` must be above 0, not <function"),  # type: ignore[arg-type]
    ("PolicyFuture", lambda: PolicyFuture(baseline()()), "needs a CLearning, whose critic is a classifier"),
    ("PolicyFuture", lambda: PolicyFuture(None), "needs a CLearning"),  # type: ignore[arg-type]
    *[row for kind in ("FutureStateEstimator", "HindsightQEstimator", "OneStepModel", "PolicyFuture") for row in questions(kind)],
    ("HindsightQEstimator", lambda: HindsightQEstimator(reading="value"), "`reading` must be one of .*, not 'value'"),
    ("OneStepModel", lambda: OneStepModel(gamma=1.0), r"`gamma` must be at least 0 and below 1, not 1\.0"),
    ("OneStepModel", lambda: OneStepModel(horizon=0), "`horizon` must be at least 1, not 0"),
    ("TablePolicy", lambda: TablePolicy(np.ones((2, 2)), len), "rows of probabilities that add up to 1"),  # type: ignore[arg-type]
    (*asked("PolicyFuture", "log_ratio", STATES, np.full((2, 2), 50.0), GOALS[:, :2]), "The actions lie outside of .* range from 50 to 50"),
    ("PolicyFuture", future_of_an_untrained_model, "replay buffer is empty, so there are no visited goals.*pass `candidates`"),
    ("GoalReplayBuffer.to_torch", lambda: filled().to_torch([1.0], copy=False), r"expected np.ndarray \(got list\)"),  # type: ignore[arg-type]
    # -- evaluation
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), 4), "`env` must be a Gymnasium env.*, not int"),  # type: ignore[arg-type]
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), "Pendulum-v1"), "needs a goal environment"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), DummyVecEnv([PointEnv]), 2, n_envs=3), "is a VecEnv, which has 1: leave"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), lambda: DummyVecEnv([PointEnv])), "must make Gymnasium env.*, not DummyVecEnv"),  # type: ignore[arg-type, return-value]
    ("CLearning", lambda: CLearning("MlpPolicy", gym.make("Pendulum-v1")), "needs a goal environment"),
    ("CLearning", lambda: small_model(VecFrameStack(VecNormalize(DummyVecEnv([PointEnv])), 2)), r"Put VecNormalize outermost: `VecNormalize\(VecFrameStack"),
    ("CLearning", lambda: small_model(VecNormalize(DummyVecEnv([lambda: ImageGoalEnv(False)]), norm_obs_keys=["time"])), "images whose channels are last"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), PointEnv, n_episodes=0), "`n_episodes` must be .* not 0"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), PointEnv, n_envs=1.5), r"`n_envs` must be .* not 1\.5"),  # type: ignore[arg-type]
    # -- checkpoints and timeouts
    ("ResumableCheckpoint", lambda: ResumableCheckpoint(""), "`folder` must be a path, not ''"),
    ("ResumableCheckpoint", lambda: ResumableCheckpoint(None), "`folder` must be a path, not None"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", every=0), "`every` must be at least 1, not 0"),
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", replay="no"), "`replay` must be True or False, not 'no'"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", every=2.5), r"`every` must be a whole .*, not 2\.5"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", every=NAN), "`every` must be a whole .*, not nan"),  # type: ignore[arg-type]
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", keep=0), "`keep` must be at least 1, not 0"),
    ("ResumableCheckpoint", lambda: ResumableCheckpoint("run", keep="2"), "`keep` must be a whole .*, not '2'"),  # type: ignore[arg-type]
    ("ResumableCheckpoint.subfolder", lambda: ResumableCheckpoint("run").subfolder(""), "`name` must be the name of a folder, not ''"),
    ("ResumableCheckpoint.subfolder", lambda: ResumableCheckpoint("run").subfolder("../other"), "`name` must be the name of a folder"),
    ("ResumableCheckpoint.subfolder", lambda: ResumableCheckpoint("run").subfolder(3), "`name` must be the name of a folder, not 3"),  # type: ignore[arg-type]
    ("StepTimeout", lambda: StepTimeout(PointEnv(), 60), "StepTimeout needs vectorized environments"),  # type: ignore[arg-type]
    ("StepTimeout", lambda: StepTimeout(DummyVecEnv([PointEnv]), 0), "`seconds` must be a number above 0, not 0"),
    # -- the losses
    ("losses.importance_weight", lambda: losses.importance_weight(LOGITS, 0.0), r"`clip` must be above 0 .*, not 0\.0"),
    ("losses.importance_weight", lambda: losses.importance_weight(LOGITS, "2"), "`clip` must be above 0"),  # type: ignore[arg-type]
    ("losses.mc_loss", lambda: losses.mc_loss(LOGITS.numpy(), LOGITS), "`future_logits` must be a tensor of floats, not ndarray"),  # type: ignore[arg-type]
    ("losses.mc_loss", lambda: losses.mc_loss(LOGITS, LOGITS.long()), "`random_logits` must be a tensor of floats, not .*int64"),
    ("losses.td_loss", lambda: losses.td_loss(LOGITS, LOGITS, th.zeros(3), 0.9), "batches of different sizes: .*'w': .3,"),
    ("losses.td_loss", lambda: losses.td_loss(LOGITS, LOGITS, LOGITS, 2.0), r"`gamma` must be at least 0 and at most 1, not 2\.0"),
    ("losses.mixed_loss", lambda: losses.mixed_loss(LOGITS, LOGITS, LOGITS, LOGITS, 0.9, -1), "`lambda_` must be at least 0"),
    ("losses.hindsight_q_loss", lambda: losses.hindsight_q_loss(LOGITS, LOGITS, th.zeros(3), 0.9, 0.5), "batches of different sizes"),
    ("losses.hindsight_q_loss", lambda: losses.hindsight_q_loss(LOGITS, LOGITS, LOGITS, 0.9, 2.0), "`lambda_` must be at least 0"),
    # -- the wrappers; more in test_wrappers.py
    ("BatchedPointMaze", lambda: BatchedPointMaze(0), "`n_envs` must be at least 1"),
    ("BatchedPointMaze", lambda: BatchedPointMaze(2).step(np.zeros((3, 2))), "takes actions of shape \\(2, 2\\)"),
    ("BatchedGridworld", lambda: BatchedGridworld("two"), "`n_envs` must be"),  # type: ignore[arg-type]
    ("VecGoalFromObservation", lambda: flat(high=np.inf), "no useful bounds.*action_low=-1"),
    ("VecGoalFromObservation", lambda: flat(low=-100.0, high=100.0), "no useful bounds.*`Sb3VecEnvWrapper"),
    ("VecGoalFromObservation", lambda: flat(crop=[9]), "out of range for an observation of 3 entries"),
    ("VecGoalFromObservation", lambda: flat(crop=lambda obs: obs[0]), "crop must return goals \\(3, n\\) for a batch of 3"),
    ("VecGoalFromObservation", lambda: flat(goal_sampler="far"), "Unknown goal_sampler 'far'"),
    ("VecGoalFromObservation", lambda: flat(n_envs=1), "takes goals of other environments"),
    ("VecGoalFromObservation", lambda: flat(goal_sampler=lambda rng: rng), "a function of a NumPy Generator and a number"),
    ("VecGoalFromObservation", lambda: flat(goal_sampler=lambda rng, n: np.zeros(3)).reset(), r"has the shape \(3,\), expected \(2, 3\)"),
    ("VecGoalFromObservation", lambda: flat(goal_sampler=3), "goal_sampler must be a string, a function or an array"),
    ("VecGoalFromObservation", lambda: flat(distance_threshold=-1), "distance_threshold must not be negative"),
    ("VecGoalFromObservation", lambda: VecGoalFromObservation(gym.make("Pendulum-v1")), "use GoalFromObservation"),  # type: ignore[arg-type]
    ("VecGoalFromObservation", lambda: VecGoalFromObservation(BatchedPointMaze(2)), "needs vectors as observations"),
    ("VecGoalFromObservation.step", lambda: flat().step(np.zeros((2, 1))), "Call VecGoalFromObservation.reset"),
    ("GoalFromObservation", lambda: GoalFromObservation(PointEnv()), "is a goal env already"),
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), crop=[9]), "9"),
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), goal_sampler="far"), "Unknown goal_sampler 'far'"),
    ("GoalFromObservation", lambda: GoalFromObservation(None), "Expected env to be a `gymnasium.Env`"),  # type: ignore[arg-type]
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("FrozenLake-v1")), "needs a Box observation space, got Discrete"),
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), crop="all"), "crop must be a sequence of indices"),  # type: ignore[arg-type]
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), distance_threshold="near"), "distance_threshold must not be negative, got 'near'"),  # type: ignore[arg-type]
    ("GoalFromObservation", lambda: GoalFromObservation(gym.make("Pendulum-v1"), crop={"angle": [0]}), "names a key, but the env's observation is no Dict"),
    ("GoalFromObservation.reset", lambda: wrapped().reset(options={"goal": np.zeros(9)}), r"has the shape \(9,\), expected \(3,\)"),
    ("GoalFromObservation.reset", lambda: wrapped().reset(seed="one"), "seed"),  # type: ignore[arg-type]
    ("GoalFromObservation.step", lambda: GoalFromObservation(gym.make("Pendulum-v1")).step(np.zeros(1)), "before calling env.reset"),
    ("GoalFromObservation.crop", lambda: wrapped().crop("left"), "could not convert string to float: 'left'"),  # type: ignore[arg-type]
    ("GoalFromObservation.distance", lambda: wrapped().distance(np.zeros(2), np.zeros(3)), r"shapes \(2,\) \(3,\)"),
    ("GoalFromObservation.is_success", lambda: wrapped().is_success(np.zeros(2), np.zeros(3)), r"shapes \(2,\) \(3,\)"),
    ("GoalFromObservation.compute_reward", lambda: wrapped().compute_reward(np.zeros((2, 3)), np.zeros((4, 3)), None), r"shapes \(2,3\) \(4,3\)"),
    ("NoisyGoal", lambda: NoisyGoal(gym.make("Pendulum-v1"), 0.1), "goal"),
    ("NoisyGoal", lambda: NoisyGoal(PointEnv(), "loud"), "noise must be a finite scale that is not negative, or a function, got 'loud'"),  # type: ignore[arg-type]
    ("NoisyGoal", lambda: NoisyGoal(PointEnv(), np.ones(5)), r"noise has the shape \(5,\), which does not fit goals"),
    ("NoisyGoal.reset", lambda: NoisyGoal(wrapped(), 0.1).reset(seed="one"), "seed"),  # type: ignore[arg-type]
    ("NoisyGoal.step", lambda: NoisyGoal(GoalFromObservation(gym.make("Pendulum-v1")), 0.1).step(np.zeros(1)), "before calling env.reset"),
    ("NoisyGoal.compute_reward", lambda: NoisyGoal(wrapped(), 0.1).compute_reward(np.zeros((2, 3)), np.zeros((4, 3)), None), "shapes"),
    ("GoalSampler", lambda: GoalSampler(gym.make("Pendulum-v1")), "GoalSampler needs a goal env with observation, achieved_goal"),
    ("GoalSampler", lambda: GoalSampler(PointEnv(), lambda: np.zeros(2)), "sampler must be a function of a NumPy Generator"),  # type: ignore[misc]
    ("GoalSampler", lambda: GoalSampler(PointEnv(), np.zeros((4, 3))), r"The sampler array has the shape \(4, 3\), expected \(4, 2\)"),
    ("GoalSampler", lambda: GoalSampler(PointEnv(), np.zeros(2)), r"has the shape \(2,\) of one goal"),
    ("GoalSampler", lambda: GoalSampler(PointEnv(), np.zeros((0, 2))), "sampler is an empty array"),
    ("GoalSampler", lambda: GoalSampler(PointEnv(), [[0.0, 2.0]]), "outside of the observations' bounds"),
    ("GoalSampler", lambda: GoalSampler(PointEnv(), set_goal="goal"), "set_goal must be a function of the env and a goal, got 'goal'"),  # type: ignore[arg-type]
    ("GoalSampler.set_sampler", lambda: GoalSampler(PointEnv()).set_sampler("D4RL/pointmaze"), r"a Minari dataset \(minari.load_dataset\(name\)\)"),
    ("GoalSampler.set_sampler", lambda: GoalSampler(wrapped()).set_sampler(filled()), r"goals have the shape \(2,\), those of the env \(3,\)"),
    ("GoalSampler.reset", lambda: GoalSampler(PointEnv()).reset(options={"goal": [0.0]}), r"has the shape \(1,\), expected \(2,\)"),
    ("GoalSampler.reset", lambda: GoalSampler(PointEnv(), lambda rng: np.array([NAN, 0.0])).reset(), "The goal of sampler has entries that are not finite"),
    ("GoalSampler.step", lambda: GoalSampler(gym.make("PointUMaze-v0")).step(np.zeros(2)), "before calling env.reset"),
    # -- tasks and evaluation
    ("tasks", lambda: gym.make("ContinuousGridworld-v0", walls=3), "unexpected keyword argument 'walls'"),
    ("tasks", lambda: gym.make("ContinuousGridworld-v0", max_episode_steps=0), "`max_episode_steps` to be positive"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), PointEnv, 2, n_envs=0), "`n_envs` must be at least 1, not 0"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), lambda: gym.make("Pendulum-v1")), "needs a goal environment"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), PointEnv(), 2, n_envs=3), "`n_envs` is 3, but `env` is an environment"),
    ("evaluate_goals", lambda: evaluate_goals(small_model(PointEnv()), DummyVecEnv([lambda: gym.make("Pendulum-v1")])), "needs a goal environment"),
    ("GoalEvalCallback", lambda: GoalEvalCallback(4), "`env` must be a Gymnasium environment.*, not int"),  # type: ignore[arg-type]
    ("GoalEvalCallback", lambda: GoalEvalCallback(PointEnv(), eval_freq=0), "`eval_freq` must be at least 1, not 0"),
    ("GoalEvalCallback", lambda: GoalEvalCallback(PointEnv(), n_eval_episodes=0), "`n_eval_episodes` must be at least 1, not 0"),
    ("GoalEvalCallback", lambda: GoalEvalCallback(PointEnv(), stop_at_success=95), "`stop_at_success` must be at least 0 and at most 1, not 95"),
    ("NoisyGoal", lambda: NoisyGoal(PointEnv(), 0.1, distance_threshold=-1.0), "must not be negative"),
    # -- the Hub; that nothing is sent is in tests/test_hub.py
    ("push_to_hub", lambda: push_to_hub("reach.zip", "someone/reach"), "`model` must be a CLearning or GoalTD3 model, not str"),  # type: ignore[arg-type]
    ("push_to_hub", lambda: push_to_hub(small_model(PointEnv()), "reach"), "`repo_id` must be 'user/name' or 'organization/name', not 'reach'"),
    ("push_to_hub", lambda: push_to_hub(small_model(PointEnv()), "a/b", 0.9), "`results` must be a dict as `evaluate_goals` returns, not float"),  # type: ignore[arg-type]
    ("push_to_hub", lambda: push_to_hub(small_model(PointEnv()), "a/b", film=__file__), "`film` must be the path of an .mp4 or .gif file"),
    ("load_from_hub", lambda: load_from_hub("reach.zip"), "`repo_id` must be 'user/name' or 'organization/name', not 'reach.zip'"),
    ("load_from_hub", lambda: load_from_hub("a/b", api="hf_token"), "`api` must be a huggingface_hub.HfApi or None, not str"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "message"), WRONG, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(WRONG)])
def test_wrong_input(name: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, OSError, ResetNeeded, RuntimeError, ImportError), match=message):
        call()


#: What is made by the package alone, or is no function.
ERRORS = {"DivergedError", "EnvironmentDiedError", "FolderInUseError", "UnreadableFileError", "UntrustedAnswerWarning"}
NOT_CALLED_BY_USERS = {"GoalBatch", "__version__", *ERRORS}
#: What SB3 or the package calls with what it has made itself.
CALLED_BY_SB3 = {
    # of the package's own checkpoints
    *("begin_episodes", "replay_environments", "reserve_slots", "restore", "restore_generators", "restore_run"),
    "collect_rollouts",
    "make_actor",
    "make_critic",
    "set_training_mode",
    "step_async",
    "upgraded",
}


def _methods(owner: type) -> set[str]:
    """:return: The public methods of a class that are ours and take arguments"""
    found = set()
    for name, member in inspect.getmembers(owner, callable):
        function = inspect.unwrap(getattr(member, "__func__", member))
        if name.startswith("_") or name in CALLED_BY_SB3 or not inspect.isfunction(function):
            continue
        arguments = set(inspect.signature(function).parameters) - {"self", "cls"}
        if function.__module__.startswith("sb3_clearning.") and arguments:
            found.add(f"{owner.__name__}.{name}")
    return found


def test_every_public_name_is_in_the_table() -> None:
    named = {name for name, _, _ in WRONG}
    assert set(sb3_clearning.__all__) - NOT_CALLED_BY_USERS <= {name.split(".")[0] for name in named}
    classes = [getattr(sb3_clearning, name) for name in set(sb3_clearning.__all__) - NOT_CALLED_BY_USERS]
    methods = set().union(*map(_methods, [*classes, GoalFromObservation, GoalSampler, NoisyGoal]))
    assert methods <= named, sorted(methods - named)
    losses_of_logits = {
        f"losses.{name}"
        for name, function in inspect.getmembers(losses, inspect.isfunction)
        if function.__module__ == losses.__name__ and name.endswith(("_loss", "_weight"))
    }
    assert losses_of_logits - {"losses.random_label_and_weight"} <= named

"""Builds the envs and the model once before a run folder exists, so that a mistake is one line and leaves nothing behind."""

import contextlib
import copy
import difflib
import io
from collections.abc import Collection
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_clearning.checks import UsageError, is_number
from sb3_clearning.common.arguments import argument_names
from sb3_clearning.goal_spaces import check_action_space, check_goal_space
from sb3_clearning.runs.random_states import preserved_random_states
from sb3_clearning.zoo.algorithms import algorithms

#: The additional columns of monitor.csv, for envs whose infos have them.
GOAL_COLUMNS = ("is_success", "distance")

#: What constructors of envs, wrappers, policies and algorithms raise for invalid values.
WRONG_VALUE = (ValueError, TypeError, RuntimeError, AssertionError, LookupError, AttributeError, gym.error.Error)

#: The size of the trial model's replay buffer.
SMALL_BUFFER = 1000


def reason(error: Exception) -> str:
    """:return: An error's message in one line, with its type unless that is ValueError"""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def check_hyperparams(algo: str, hyperparams: dict[str, Any]) -> None:
    """Raise an error for a hyperparameter that the algorithm does not have."""
    known = ["policy", "env", *argument_names(algorithms()[algo]), "noise_type"]  # rl-zoo3 makes the action noise of the last
    for name in hyperparams:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(sorted(known))}"
            raise UsageError(f"{algo} has no hyperparameter `{name}`: {hint}")


def check_learning_rate(rate: Any) -> None:
    """Raise an error for text other than ``lin_0.001``, which rl-zoo3 splits at its underscore."""
    if isinstance(rate, str):
        _, _, value = rate.partition("_")
        try:
            float(value)
        except ValueError as error:
            raise UsageError(
                f"`learning_rate` must be a number or `lin_` and a number, not {rate!r}. 1e-3 is text in YAML: write "
                "`!!float 1e-3`."
            ) from error


def make_env(manager: Any, eval_env: bool = False) -> VecEnv:
    """:return: A single env of an ExperimentManager, with all wrappers"""
    try:
        return manager.create_envs(1, eval_env=eval_env, no_log=True)
    except WRONG_VALUE as error:
        use = " for evaluation" if eval_env else ""
        raise UsageError(
            f"{manager.env_name.gym_id} cannot be created{use} with these arguments and wrappers. {reason(error)}"
        ) from error


def probe_env(algo: str, env_id: str, env: VecEnv) -> list[str]:
    """:return: The goal columns that the env's infos have, found by taking one step"""
    try:
        check_goal_space(env.observation_space)
        check_action_space(env.action_space)
        env.reset()
        info = env.step(np.array([env.action_space.sample()]))[-1][0]
    except ValueError as error:
        hint = ""
        if not isinstance(env.observation_space, gym.spaces.Dict):
            hint = (
                " In rl-zoo3 the wrapper stands in a file for `-conf`: "
                "`env_wrapper: [{sb3_clearning.envs.GoalFromObservation: {crop: [0, 1]}}]`."
            )
        raise UsageError(f"{algo} cannot learn on {env_id}. {error}{hint}") from error
    return [key for key in GOAL_COLUMNS if key in info]


def make_model(manager: Any, hyperparams: dict[str, Any], env: VecEnv, drawn: Collection[str]) -> None:
    """Build the model, or load the agent to continue with, to see whether it works with what trials do not draw."""
    # Copies, because a constructor may write into its arguments.
    hyperparams = {name: dict(value) if isinstance(value, dict) else value for name, value in hyperparams.items()}
    try:
        get_device(manager.device)
        hyperparams = manager._preprocess_action_noise(hyperparams, {}, env)  # noqa: SLF001 (rl-zoo3's own step)
        hyperparams = {name: value for name, value in hyperparams.items() if name not in drawn}
        if is_number(hyperparams.get("buffer_size", SMALL_BUFFER), whole=True):
            hyperparams["buffer_size"] = min(hyperparams.get("buffer_size", SMALL_BUFFER), SMALL_BUFFER)
        algorithm: Any = algorithms()[manager.algo]
        # The arguments that rl-zoo3 passes itself. A seed would seed the whole process.
        shared: dict[str, Any] = {"env": env, "tensorboard_log": None, "seed": None, "verbose": 0, "device": "cpu"}
        if manager.continue_training:
            hyperparams = {name: value for name, value in hyperparams.items() if name not in ("policy", "policy_kwargs")}
            algorithm.load(manager.trained_agent, **shared, **hyperparams)
        else:
            algorithm(**shared, **hyperparams)
    except WRONG_VALUE as error:
        agent = f" and {manager.trained_agent}" if manager.continue_training else ""
        raise UsageError(f"{manager.algo} cannot use these hyperparameters{agent}. {reason(error)}") from error


def preflight(manager: Any, hyperparams: dict[str, Any], drawn: Collection[str]) -> list[str]:
    """
    Build the envs and the model of a run, on a copy of the manager, on the CPU, with a small buffer, without output. The
    random states are restored.

    :param drawn: arguments that the trials of a study draw
    :return: the goal columns that the env's infos have
    """
    manager = copy.copy(manager)
    manager.verbose = 0
    if manager.vec_env_class is SubprocVecEnv:
        manager.vec_env_class = DummyVecEnv  # a process would take seconds to start
    manager.monitor_kwargs = {**manager.monitor_kwargs, "info_keywords": ()}
    with contextlib.redirect_stdout(io.StringIO()), preserved_random_states():
        if manager.eval_env_kwargs is not manager.env_kwargs:
            make_env(manager, eval_env=True).close()
        env = make_env(manager)
        try:
            keys = probe_env(manager.algo, manager.env_name.gym_id, env)
            make_model(manager, hyperparams, env, drawn)
        finally:
            env.close()
    return keys

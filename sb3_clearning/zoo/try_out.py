"""Makes the envs and the model once before a run folder is made for them: what can not work is found there, in one line."""

import contextlib
import copy
import difflib
import inspect
import io
import random
from collections.abc import Collection, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_clearning.checks import is_number
from sb3_clearning.goal_spaces import check_action_space, check_goal_space
from sb3_clearning.zoo.algorithms import algorithms
from sb3_clearning.zoo.goal_logs import GoalColumns
from sb3_clearning.zoo.input_error import InputError

#: The columns of monitor.csv beyond SB3's own; `is_success` only where the env says so.
SUCCESS, DISTANCE = "is_success", "distance"

#: What constructors of envs, wrappers, policies and algorithms raise for values that they can not use.
WRONG_VALUE = (ValueError, TypeError, RuntimeError, AssertionError, LookupError, AttributeError, gym.error.Error)

#: Transitions in the replay buffer of a model that is only tried.
SMALL_BUFFER = 1000


def reason(error: Exception) -> str:
    """
    :param error: an error of rl-zoo3, an env or an algorithm
    :return: what it says, in one line, with its type, unless that is a plain ValueError, which says it all
    """
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def check_hyperparams(algo: str, hyperparams: dict[str, Any]) -> None:
    """
    :param algo: the algorithm's name in rl-zoo3
    :param hyperparams: what rl-zoo3 is about to pass to the algorithm
    """
    known = [name for name in inspect.signature(algorithms()[algo].__init__).parameters if not name.startswith(("_", "self"))]
    # rl-zoo3 makes the action noise of this one.
    known.append("noise_type")
    for name in hyperparams:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(sorted(known))}"
            raise InputError(f"{algo} has no hyperparameter `{name}`: {hint}")


def check_learning_rate(rate: Any) -> None:
    """
    :param rate: the learning rate of a configuration. rl-zoo3 takes any text apart at its underscore, as in ``lin_0.001``
    """
    if isinstance(rate, str):
        _, _, value = rate.partition("_")
        try:
            float(value)
        except ValueError as error:
            raise InputError(
                f"`learning_rate` must be a number or `lin_` and a number, not {rate!r}. 1e-3 is text in YAML: write "
                "`!!float 1e-3`."
            ) from error


@contextlib.contextmanager
def same_random_states() -> Iterator[None]:
    """Give back the random states of the CPU, as if nothing had been drawn: a run is the same with and without a trial."""
    python, numpy = random.getstate(), np.random.get_state()
    with th.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def make_env(manager: Any, eval_env: bool = False) -> VecEnv:
    """
    :param manager: an ExperimentManager
    :param eval_env: whether it is the env of evaluations
    :return: a single env with all wrappers
    """
    try:
        return manager.create_envs(1, eval_env=eval_env, no_log=True)
    except WRONG_VALUE as error:
        use = " for evaluation" if eval_env else ""
        raise InputError(
            f"{manager.env_name.gym_id} can not be made{use} with these arguments and wrappers. {reason(error)}"
        ) from error


def look_at_env(algo: str, env_id: str, env: VecEnv) -> list[str]:
    """
    Take a step.

    :param algo: the algorithm's name in rl-zoo3
    :param env_id: the env's id
    :param env: the env
    :return: what every info of the env has out of ``is_success`` and ``distance``
    """
    try:
        check_goal_space(env.observation_space)
        check_action_space(env.action_space)
        env.reset()
        info = env.step(np.array([env.action_space.sample()]))[-1][0]
    except ValueError as error:
        raise InputError(f"{algo} can not learn on {env_id}. {error}") from error
    return [key for key in (SUCCESS, DISTANCE) if key in info]


def make_model(manager: Any, hyperparams: dict[str, Any], env: VecEnv, drawn: Collection[str]) -> None:
    """
    :param manager: an ExperimentManager
    :param hyperparams: what it would make the model with
    :param env: the env
    :param drawn: the arguments that the trials of a study draw, whatever the hyperparameters say
    """
    # Copies, as a constructor may write into its arguments.
    hyperparams = {name: dict(value) if isinstance(value, dict) else value for name, value in hyperparams.items()}
    try:
        get_device(manager.device)
        hyperparams = manager._preprocess_action_noise(hyperparams, {}, env)
        hyperparams = {name: value for name, value in hyperparams.items() if name not in drawn}
        if is_number(hyperparams.get("buffer_size", SMALL_BUFFER), whole=True):
            hyperparams["buffer_size"] = min(hyperparams.get("buffer_size", SMALL_BUFFER), SMALL_BUFFER)
        algorithm: Any = algorithms()[manager.algo]
        # The arguments that rl-zoo3 passes itself. A seed would be the whole process's.
        shared: dict[str, Any] = {"env": env, "tensorboard_log": None, "seed": None, "verbose": 0, "device": "cpu"}
        if manager.continue_training:
            hyperparams = {name: value for name, value in hyperparams.items() if name not in ("policy", "policy_kwargs")}
            algorithm.load(manager.trained_agent, **shared, **hyperparams)
        else:
            algorithm(**shared, **hyperparams)
    except WRONG_VALUE as error:
        agent = f" and {manager.trained_agent}" if manager.continue_training else ""
        raise InputError(f"{manager.algo} can not use these hyperparameters{agent}. {reason(error)}") from error


def try_out(manager: Any, hyperparams: dict[str, Any], drawn: Collection[str]) -> list[str]:
    """
    Make the envs and the model of a run. Nothing of the run changes: this works on a copy of the manager, on the CPU, with a
    small buffer, prints nothing and gives back the random states.

    :param manager: rl-zoo3's ExperimentManager, which has its wrappers already
    :param hyperparams: what it would make the model with
    :param drawn: the arguments that the trials of a study draw, whatever the hyperparameters say
    :return: what every info of the env has out of ``is_success`` and ``distance``
    """
    manager = copy.copy(manager)
    manager.verbose = 0
    if manager.vec_env_class is SubprocVecEnv:
        manager.vec_env_class = DummyVecEnv  # a process would take seconds to start
    if manager.vec_env_wrapper is None:
        manager.monitor_kwargs = {**manager.monitor_kwargs, "info_keywords": GoalColumns()}
    with contextlib.redirect_stdout(io.StringIO()), same_random_states():
        if manager.eval_env_kwargs is not manager.env_kwargs:
            make_env(manager, eval_env=True).close()
        env = make_env(manager)
        try:
            keys = look_at_env(manager.algo, manager.env_name.gym_id, env)
            make_model(manager, hyperparams, env, drawn)
        finally:
            env.close()
    return keys

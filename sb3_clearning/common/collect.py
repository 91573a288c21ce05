"""Records what a policy does, as a dataset."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import create_empty_array
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize, unwrap_vec_normalize

from sb3_clearning.checks import check_number, check_steps
from sb3_clearning.goal_spaces import is_image
from sb3_clearning.prediction.next_actions import answer_of
from sb3_clearning.progress import progress
from sb3_clearning.replay.experience import Experience
from sb3_clearning.replay.goal_transitions import is_outside
from sb3_clearning.runs.random_states import preserved_random_states
from sb3_clearning.runs.vec_normalize import check_normalization


def collect(
    policy: Any,
    env: gym.Env | VecEnv | str,
    n_steps: int,
    deterministic: bool = False,
    seed: int | None = None,
    progress_bar: bool = False,
) -> Experience:
    """
    Record the transitions of a policy::

        model.replay_buffer.load_dataset(collect("random", env, 10_000, seed=0))

    :param policy: An SB3 model or anything with its ``predict``, a function from observations ``(n_envs, …)`` to actions
        ``(n_envs, …)``, or "random". An SB3 model sees observations through its VecNormalize, if it has one
    :param env: An environment, several as a VecEnv, or the id of one. It is reset first, and left where the last step leads.
        With a VecNormalize the policy sees normalized observations, and the dataset holds the original ones
    :param n_steps: Number of transitions, rounded up to a whole number of steps of all environments
    :param seed: Of environments, random actions and a model's own randomness. Global random states stay as they are. None:
        nothing is seeded
    :param progress_bar: Whether to show a progress bar (needs tqdm)
    :return: The transitions, one environment after the other. The last episode of each is truncated, if it is not over
    """
    steps = check_steps("n_steps", n_steps, 1)
    if seed is not None:
        check_number("seed", seed, 0, 2**32 - 1, whole=True)
        seed = int(seed)  # Gymnasium takes no NumPy scalars
    if not (policy == "random" if isinstance(policy, str) else hasattr(policy, "predict") or callable(policy)):
        raise ValueError(f'`policy` must be a model, a function of observations, or "random", not {policy!r}.')
    vec_env, normalize = _environments(env)
    try:
        if normalize is None and isinstance(policy, BaseAlgorithm):
            normalize = policy.get_vec_normalize_env()
        if isinstance(policy, BaseAlgorithm):
            _check_spaces(policy, vec_env)
            check_normalization(policy, normalize)
        act = _actions_of(policy, vec_env, normalize, deterministic, seed)
        with nullcontext() if seed is None else preserved_random_states():
            if seed is not None:
                set_random_seed(seed)
                vec_env.seed(seed)
            return _record(act, vec_env, -(-steps // vec_env.num_envs), progress_bar)
    finally:
        if isinstance(env, str):
            vec_env.close()


def _environments(env: Any) -> tuple[VecEnv, VecNormalize | None]:
    """:return: The environments, with observations that are not normalized, and what normalizes them"""
    if isinstance(env, str):
        env = gym.make(env)
    if isinstance(env, gym.Env):
        env = DummyVecEnv([lambda: env])
    if not isinstance(env, VecEnv):
        raise ValueError(f"`env` must be a Gymnasium environment, a VecEnv or an id, not {type(env).__name__}.")
    # Not through it: it would count these steps in its statistics, and clip the final observations of episodes.
    if isinstance(env, VecNormalize):
        return env.venv, env
    if unwrap_vec_normalize(env) is not None:
        raise ValueError("Wrap the environments so that the VecNormalize is the outermost wrapper.")
    return env, None


def _check_spaces(model: BaseAlgorithm, env: VecEnv) -> None:
    """Raise an error if a model was made for other observations or actions. Bounds may differ: arrays do not show them."""
    for name in ("observation", "action"):
        own, other = getattr(model, f"{name}_space"), getattr(env, f"{name}_space")
        if _layout(own) != _layout(other):
            raise ValueError(f"The model was made for the {name} space {own}, but the environment has {other}.")


def _layout(space: gym.Space) -> Any:
    """:return: A space without its bounds; SB3's models see images with channels first, whatever the environment has"""
    if isinstance(space, gym.spaces.Dict):
        return {key: _layout(part) for key, part in space.items()}
    if isinstance(space, gym.spaces.Box):
        return sorted(space.shape) if is_image(space.shape, space.dtype) else space.shape
    return space


def _actions_of(
    policy: Any, env: VecEnv, normalize: VecNormalize | None, deterministic: bool, seed: int | None
) -> Callable[[Any, np.ndarray], np.ndarray]:
    """:return: A function from observations, and whether they begin an episode, to actions"""
    if isinstance(policy, str):
        space = copy.deepcopy(env.action_space)  # the environment's own keeps its random state
        space.seed(seed)
        return lambda obs, starts: np.array([space.sample() for _ in starts])
    state = None

    def act(obs: Any, starts: np.ndarray) -> np.ndarray:
        nonlocal state
        obs = obs if normalize is None else normalize.normalize_obs(obs)
        if not hasattr(policy, "predict"):
            return answer_of(policy, obs)
        actions, state = policy.predict(obs, state=state, episode_start=starts, deterministic=deterministic)
        return actions

    return act


def _record(act: Callable[[Any, np.ndarray], np.ndarray], env: VecEnv, steps: int, progress_bar: bool) -> Experience:
    n = env.num_envs * steps
    first = np.arange(0, n, steps)  # one environment after the other
    kept = (env.observation_space, env.observation_space, env.action_space)
    empty: list[Any] = [create_empty_array(space, n) for space in kept]
    observations, next_observations, actions = empty
    terminations, ends = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    obs: Any = env.reset()
    starts = np.ones(env.num_envs, dtype=bool)
    with progress(progress_bar, "Collecting", steps * env.num_envs) as bar:
        for t in range(steps):
            action, rows = act(obs, starts), first + t
            _check_actions(np.asarray(action), actions[rows].shape, env.action_space, t)
            _put(observations, rows, obs)
            actions[rows] = action
            obs, _, starts, infos = env.step(action)
            _put(next_observations, rows, obs)
            for index in np.flatnonzero(starts):
                _put(next_observations, rows[index], infos[index]["terminal_observation"])
                terminations[rows[index]] = not infos[index].get("TimeLimit.truncated", False)
            ends[rows] = starts
            if bar is not None:
                bar.update(env.num_envs)
    ends[rows] = True
    return Experience(observations, actions, next_observations, terminations, ends, env.observation_space, env.action_space)


def _check_actions(actions: np.ndarray, shape: tuple[int, ...], space: gym.Space, step: int) -> None:
    """Raise an error for actions that the environment may not understand, and no learner would take."""
    if actions.shape != shape:
        raise ValueError(
            f"The policy's actions have the shape {actions.shape}, not {shape}: it is called with the observations of all "
            f"{shape[0]} environments, and returns an action for each."
        )
    if actions.dtype.kind not in "biuf":
        raise ValueError(f"The policy's actions are {actions.dtype}, not numbers.")
    if isinstance(space, gym.spaces.Box):
        if not np.isfinite(actions).all():
            raise ValueError(f"The policy's actions in step {step} have NaN or inf.")
        if is_outside(actions, space).any():
            raise ValueError(
                f"The policy's actions in step {step} lie outside of the action space {space}: they range from "
                f"{actions.min():.3g} to {actions.max():.3g}. Clip or rescale them."
            )
    elif actions.dtype.kind == "f":
        raise ValueError(f"The policy's actions are {actions.dtype}, but {space} has whole numbers.")


def _put(values: Any, place: Any, new: Any) -> None:
    """Write observations to their place, for each key of a dict."""
    if isinstance(values, dict):
        for key, part in values.items():
            part[place] = new[key]
    else:
        values[place] = new

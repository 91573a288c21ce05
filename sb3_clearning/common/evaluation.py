"""Evaluation as in the paper: deterministic policy, fixed seeds that training does not use, distance at the episode's end."""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize, VecTransposeImage, unwrap_vec_normalize

from sb3_clearning.checks import check_number
from sb3_clearning.common.distances import DistanceTracker, EpisodeDistances
from sb3_clearning.goal_spaces import check_goal_space, goal_distance
from sb3_clearning.runs.resumable_td3 import ResumableTD3
from sb3_clearning.runs.vec_normalize import check_normalization

#: Evaluation episodes are reset with this seed and the following ones. Training takes small seeds.
EVALUATION_SEED = 1_000_000
#: The keys of every result.
RESULT_KEYS = ("success", "success_any_time", "initial_success", *EpisodeDistances._fields)
#: Environments of the tables of results. With another number, networks round differently.
N_ENVS_OF_TABLES = 10

EnvOrMaker = gym.Env | str | Callable[[], gym.Env] | VecEnv


def scored_distance(achieved_goal: np.ndarray, goal: np.ndarray, info: dict[str, Any]) -> np.ndarray:
    """
    :return: The distance to the goal that the action was chosen for, ``(1,)``: over all coordinates, or the task's own
        ``distance`` in the same step's info, if it scores some coordinates only, as Sawyer Push does
    """
    if "distance" in info:
        return np.array([info["distance"]], dtype=np.float64)
    return goal_distance(np.asarray(achieved_goal)[None], np.asarray(goal)[None])  # a Discrete's may be ints


def evaluate_goals(
    model: BaseAlgorithm, env: EnvOrMaker, n_episodes: int = 50, seed: int = EVALUATION_SEED, n_envs: int = 1
) -> dict[str, float]:
    """
    Run episodes with fixed seeds and the deterministic policy::

        evaluate_goals(model, gym.make("FetchReach-v4"))["success"]

    If the model was trained with a ``VecNormalize``, its observations are normalized with the same statistics.

    :param env: A goal environment or its id, a function that makes one, or a VecEnv. Distances are those of the environment
        itself, before a VecEnv's frame stack or normalization. It may be the one that the model was trained in, but not while
        ``learn`` runs. A later ``learn`` then begins with a reset
    :param seed: The seed of the first episode; the next ones follow. A VecEnv resets itself, so that it gets a seed once
    :param n_envs: Number of environments that take steps together, if there is an id or a function to make them. More are
        faster
    :return: ``success`` is the success rate at the episode's end, ``success_any_time`` the share of episodes with success
        after at least one step; both are NaN, with a warning, if the environment reports neither ``is_success`` nor
        ``success``. ``initial_success`` is the share of episodes that begin at their goal, NaN unless the environment reports
        ``is_success`` at resets. ``initial``, ``final``, ``minimum``, ``average`` and ``change`` are means of distances
    """
    check_number("n_episodes", n_episodes, 1, whole=True)
    envs = make_environments(env, n_envs, n_episodes)
    try:
        return run_episodes(model, envs, n_episodes, seed).result()
    finally:
        if isinstance(envs, list) and not isinstance(env, gym.Env):
            for made in envs:
                made.close()


def make_environments(env: EnvOrMaker, n_envs: int, n_episodes: int) -> list[gym.Env] | VecEnv:
    """:return: The VecEnv, or the environments; at most one for each episode"""
    check_number("n_envs", n_envs, 1, whole=True)
    if isinstance(env, str):
        env = partial(gym.make, env)
    if not isinstance(env, (gym.Env, VecEnv)) and not callable(env):
        raise ValueError(
            "`env` must be a Gymnasium environment or its id, a function that makes one, or a VecEnv, not "
            f"{type(env).__name__}."
        )
    if n_envs > 1 and isinstance(env, VecEnv):
        raise ValueError(f"`n_envs` is {n_envs}, but `env` is a VecEnv, which has {env.num_envs}: leave `n_envs` out.")
    if n_envs > 1 and isinstance(env, gym.Env):
        raise ValueError(f"`n_envs` is {n_envs}, but `env` is an environment: pass a function that makes one.")
    if isinstance(env, VecEnv):
        check_goal_space(env.observation_space)
        return env
    envs = [env] if isinstance(env, gym.Env) else [env() for _ in range(min(n_envs, n_episodes))]
    if not isinstance(envs[0], gym.Env):
        raise ValueError(f"`env` must make Gymnasium environments, not {type(envs[0]).__name__}: pass a VecEnv itself.")
    check_goal_space(envs[0].observation_space)
    return envs


def are_trained_in(model: BaseAlgorithm, envs: list[gym.Env] | VecEnv) -> bool:
    """:return: Whether some of the environments are the model's own, in whatever wrappers"""
    own = model.get_env()
    return own is not None and any(one is other for one in _unwrapped(own) for other in _unwrapped(envs))


def _unwrapped(envs: list[gym.Env] | VecEnv) -> list[gym.Env | VecEnv]:
    """:return: The environments without their wrappers, and the VecEnv: those in other processes cannot be compared"""
    if not isinstance(envs, VecEnv):
        return [env.unwrapped for env in envs]
    return [envs.unwrapped, *(env.unwrapped for env in getattr(envs.unwrapped, "envs", []))]


class EpisodeRecord:
    """What evaluation episodes gave, in the order in which they end."""

    def __init__(self, n_envs: int, n_episodes: int):
        self.successes: list[float] = []
        self.any_time: list[float] = []
        self.rewards: list[float] = []
        self.lengths: list[int] = []
        self.final_distances: list[float] = []
        self._at_goal: list[float] = []
        self._trackers = [DistanceTracker(1, window=n_episodes) for _ in range(n_envs)]
        self._initial = [np.zeros(1)] * n_envs
        self._reached = [np.nan] * n_envs
        self._rewards = [0.0] * n_envs
        self._lengths = [0] * n_envs

    def begin(self, index: int, observation: dict[str, Any], info: dict[str, Any]) -> None:
        """An episode begins in an environment."""
        self._initial[index] = scored_distance(observation["achieved_goal"], observation["desired_goal"], info)
        self._at_goal.append(float(info.get("is_success", np.nan)))
        self._reached[index] = np.nan  # the reset is no step
        self._rewards[index], self._lengths[index] = 0.0, 0

    def step(self, index: int, goal: Any, achieved_goal: Any, reward: Any, info: dict[str, Any], done: bool) -> None:
        """:param goal: The goal that the action was chosen for"""
        after = scored_distance(achieved_goal, goal, info)
        self._trackers[index].step(self._initial[index], after, np.array([done]))
        success = float(info.get("is_success", info.get("success", np.nan)))
        self._reached[index] = float(np.fmax(self._reached[index], success))
        self._rewards[index] += float(reward)
        self._lengths[index] += 1
        if done:
            self.successes.append(success)
            self.any_time.append(self._reached[index])
            self.rewards.append(self._rewards[index])
            self.lengths.append(self._lengths[index])
            self.final_distances.append(float(after[0]))

    def result(self) -> dict[str, float]:
        """:return: The means, by :data:`RESULT_KEYS`"""
        distances = DistanceTracker(1, window=len(self.successes))
        for tracker in self._trackers:
            distances.episodes.extend(tracker.episodes)
        rates = (self.successes, self.any_time, self._at_goal)
        found = {name: float(np.mean(values)) for name, values in zip(RESULT_KEYS, rates, strict=False)}
        if np.isnan(found["success"]):
            warnings.warn(
                "`success` is NaN: the environment's info has neither `is_success` nor `success` at an episode's end. Add it "
                "in a wrapper, or judge by `final`, the distance.",
                stacklevel=3,
            )
        return {**found, **distances.means()}


def run_episodes(model: BaseAlgorithm, envs: list[gym.Env] | VecEnv, n_episodes: int, seed: int) -> EpisodeRecord:
    """:return: What the deterministic policy reached"""
    if isinstance(model, ResumableTD3) and are_trained_in(model, envs):
        model.leave_environments()
    if isinstance(envs, VecEnv):
        return _run_vec_env(model, envs, n_episodes, seed)
    return _run_envs(model, envs, n_episodes, seed)


def _run_envs(model: BaseAlgorithm, envs: list[gym.Env], n_episodes: int, seed: int) -> EpisodeRecord:
    _check_shapes(model, envs[0].observation_space)
    normalize = model.get_vec_normalize_env()
    check_normalization(model, normalize)
    record = EpisodeRecord(len(envs), n_episodes)
    waiting = list(range(seed, seed + n_episodes))
    observations: dict[int, Any] = {}

    def begin(index: int) -> None:
        observations[index], info = envs[index].reset(seed=waiting.pop(0))
        record.begin(index, observations[index], info)

    for index in range(min(len(envs), n_episodes)):
        begin(index)
    while observations:
        running = list(observations)
        batch = {key: np.stack([observations[index][key] for index in running]) for key in observations[running[0]]}
        if normalize is not None:
            batch = normalize.normalize_obs(batch)  # type: ignore[assignment]
        actions, _ = model.predict(batch, deterministic=True)
        for index, action in zip(running, actions, strict=True):
            goal = observations[index]["desired_goal"]
            observations[index], reward, terminated, truncated, info = envs[index].step(action)
            done = terminated or truncated
            record.step(index, goal, observations[index]["achieved_goal"], reward, info, done)
            if done and waiting:
                begin(index)
            elif done:
                del observations[index]
    return record


class _GoalRecorder(VecEnvWrapper):
    """Keeps what the environments return, before frame stacks and normalization change it."""

    observations: Any

    def reset(self) -> Any:
        """:return: The first observations"""
        self.observations = self.venv.reset()
        return self.observations

    def step_wait(self) -> Any:
        """:return: What the environments return"""
        self.observations, self.rewards, self.dones, infos = self.venv.step_wait()
        self.infos = [dict(info) for info in infos]
        for info in self.infos:  # wrappers replace the parts of theirs
            if "terminal_observation" in info:
                info["terminal_observation"] = dict(info["terminal_observation"])
        return self.observations, self.rewards, self.dones, infos

    def observation(self, index: int) -> dict[str, Any]:
        """:return: One environment's"""
        return {key: values[index] for key, values in self.observations.items()}

    def reset_info(self, index: int) -> dict[str, Any]:
        """:return: The info of the last reset"""
        return self.unwrapped.reset_infos[index]


@contextlib.contextmanager
def _recorded(env: VecEnv) -> Iterator[tuple[VecEnv, _GoalRecorder]]:
    """:return: The VecEnv with a recorder at its lowest layer that has goals, and this recorder"""
    outer, inner = None, env
    while isinstance(inner, VecEnvWrapper) and _has_goals(inner.venv.observation_space):
        outer, inner = inner, inner.venv
    recorder = _GoalRecorder(inner)
    if outer is None:
        yield recorder, recorder
        return
    outer.venv = recorder
    try:
        yield env, recorder
    finally:
        outer.venv = inner


def _has_goals(space: gym.Space) -> bool:
    return isinstance(space, gym.spaces.Dict) and {"achieved_goal", "desired_goal"} <= set(space.spaces)


@contextlib.contextmanager
def _frozen(statistics: VecNormalize | None, source: VecNormalize | None) -> Iterator[None]:
    """Evaluation does not change an environment's statistics; they are those of the training environment, if there is one."""
    if statistics is None:
        yield
        return
    if source is not None and source is not statistics:
        statistics.obs_rms = copy.deepcopy(source.obs_rms)
    training, statistics.training = statistics.training, False
    try:
        yield
    finally:
        statistics.training = training


def _run_vec_env(model: BaseAlgorithm, env: VecEnv, n_episodes: int, seed: int) -> EpisodeRecord:
    _check_shapes(model, env.observation_space)
    own, source = unwrap_vec_normalize(env), model.get_vec_normalize_env()
    check_normalization(model, source or own)
    record = EpisodeRecord(env.num_envs, n_episodes)
    # As in SB3: a fixed number for each environment. The first ones to end would be the short ones.
    left = [(n_episodes + index) // env.num_envs for index in range(env.num_envs)]
    with _frozen(own, source), _recorded(env) as (outer, raw):
        outer.seed(seed)
        observations: Any = outer.reset()
        for index in np.flatnonzero(left).tolist():
            record.begin(index, raw.observation(index), raw.reset_info(index))
        while any(left):
            if own is None and source is not None:
                observations = source.normalize_obs(observations)
            actions, _ = model.predict(observations, deterministic=True)
            before = raw.observations["desired_goal"].copy()
            observations, _, _, _ = outer.step(actions)
            for index in np.flatnonzero(left).tolist():
                done, info = bool(raw.dones[index]), raw.infos[index]
                after = info["terminal_observation"] if done else raw.observation(index)
                record.step(index, before[index], after["achieved_goal"], raw.rewards[index], info, done)
                left[index] -= done
                if done and left[index]:
                    record.begin(index, raw.observation(index), raw.reset_info(index))
    return record


def _check_shapes(model: BaseAlgorithm, space: gym.Space) -> None:
    """Another crop would otherwise be an error deep in the networks. Bounds may differ: a VecNormalize has none."""
    assert isinstance(space, gym.spaces.Dict)
    own, other = _shapes(model.observation_space), _shapes(space)
    # SB3 moves the channels of images first, in its models' spaces and in `predict`.
    parts = {key: _channels_first(part) for key, part in space.items()}
    if own not in (other, _shapes(gym.spaces.Dict(parts))):
        raise ValueError(f"The environment's observations have the shapes {other}, but the model was made for {own}.")


def _channels_first(space: gym.Space) -> gym.Space:
    if not isinstance(space, gym.spaces.Box) or not is_image_space(space) or is_image_space_channels_first(space):
        return space
    return VecTransposeImage.transpose_space(space)


def _shapes(space: gym.Space) -> Any:
    return {key: part.shape for key, part in space.items()} if isinstance(space, gym.spaces.Dict) else space.shape

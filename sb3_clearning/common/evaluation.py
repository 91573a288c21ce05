"""Evaluation as in the paper: deterministic policy, fixed seeds that training does not use, distance at the episode's end."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecTransposeImage

from sb3_clearning.checks import check_number
from sb3_clearning.common.distances import DistanceTracker
from sb3_clearning.goal_spaces import check_goal_space, goal_distance

#: Evaluation episodes are reset with this seed and the following ones. Training takes small seeds.
EVALUATION_SEED = 1_000_000


def scored_distance(achieved_goal: np.ndarray, goal: np.ndarray, info: dict[str, Any]) -> np.ndarray:
    """
    :return: The distance to the goal that the action was chosen for, ``(1,)``: over all coordinates, or the task's own
        ``distance`` in the same step's info, if it scores some coordinates only, as Sawyer Push does
    """
    if "distance" in info:
        return np.array([info["distance"]], dtype=np.float64)
    return goal_distance(np.asarray(achieved_goal)[None], np.asarray(goal)[None])  # a Discrete's may be ints


def evaluate_goals(
    model: BaseAlgorithm,
    env: gym.Env | Callable[[], gym.Env],
    n_episodes: int = 50,
    seed: int = EVALUATION_SEED,
    n_envs: int = 10,
) -> dict[str, float]:
    """
    Run episodes with fixed seeds and the deterministic policy::

        evaluate_goals(model, lambda: gym.make("FetchReach-v4"))["success"]

    If the model was trained with a ``VecNormalize``, its observations are normalized with the same statistics.

    :param env: A goal environment, or a function that makes one: then several take steps together, which is faster
    :param seed: The seed of the first episode; the next ones follow
    :param n_envs: Number of environments, if there is a function to make them
    :return: ``success`` is the success rate at the episode's end, ``success_any_time`` the share of episodes with success
        after at least one step; both are NaN if the environment reports neither ``is_success`` nor ``success``. The means of
        initial, final, minimum, average distance and change; where the environment says it at a reset, ``initial_success``,
        too: the share of episodes that begin at their goal
    """
    check_number("n_episodes", n_episodes, 1, whole=True)
    check_number("n_envs", n_envs, 1, whole=True)
    envs = _environments(env, min(n_envs, n_episodes))
    _check_shapes(model, envs[0])
    normalize = model.get_vec_normalize_env()
    distances, successes, any_time, at_goal = DistanceTracker(1, window=n_episodes), [], [], []
    trackers = [DistanceTracker(1, window=n_episodes) for _ in envs]
    waiting = list(range(seed, seed + n_episodes))
    observations, initial, reached = {}, {}, {}

    def begin(index: int) -> None:
        observation, info = envs[index].reset(seed=waiting.pop(0))
        observations[index] = observation
        initial[index] = scored_distance(observation["achieved_goal"], observation["desired_goal"], info)
        at_goal.append(float(info.get("is_success", np.nan)))
        reached[index] = np.nan  # the reset is no step

    for index in range(len(envs)):
        begin(index)
    while observations:
        running = list(observations)
        batch = {key: np.stack([observations[index][key] for index in running]) for key in observations[running[0]]}
        if normalize is not None:
            batch = normalize.normalize_obs(batch)  # type: ignore[assignment]
        actions, _ = model.predict(batch, deterministic=True)
        for index, action in zip(running, actions, strict=True):
            goal = observations[index]["desired_goal"]
            observations[index], _, terminated, truncated, info = envs[index].step(action)
            done = np.array([terminated or truncated])
            after = scored_distance(observations[index]["achieved_goal"], goal, info)
            trackers[index].step(initial[index], after, done)
            success = float(info.get("is_success", info.get("success", np.nan)))
            reached[index] = np.fmax(reached[index], success)
            if done[0]:
                successes.append(success)
                any_time.append(reached[index])
                if waiting:
                    begin(index)
                else:
                    del observations[index]
    for tracker in trackers:
        distances.episodes.extend(tracker.episodes)
    if callable(env):
        for made in envs:
            made.close()
    begun = {} if np.isnan(at_goal).any() else {"initial_success": float(np.mean(at_goal))}
    rates = {"success": float(np.mean(successes)), "success_any_time": float(np.mean(any_time))}
    return {**rates, **begun, **distances.means()}


def _environments(env: gym.Env | Callable[[], gym.Env], count: int) -> list[gym.Env]:
    """:return: The environment, or as many as asked for"""
    if not isinstance(env, gym.Env) and not callable(env):
        raise ValueError(f"`env` must be a Gymnasium environment or a function that makes one, not {type(env).__name__}.")
    envs = [env] if isinstance(env, gym.Env) else [env() for _ in range(count)]
    if not isinstance(envs[0], gym.Env):
        raise ValueError(f"`env` must make Gymnasium environments, not {type(envs[0]).__name__}: several are made as needed.")
    check_goal_space(envs[0].observation_space)
    return envs


def _check_shapes(model: BaseAlgorithm, env: gym.Env) -> None:
    """Another crop would otherwise be an error deep in the networks. Bounds may differ: a VecNormalize has none."""
    assert isinstance(env.observation_space, gym.spaces.Dict)
    own, other = _shapes(model.observation_space), _shapes(env.observation_space)
    # SB3 moves the channels of images first, in its models' spaces and in `predict`.
    parts = {key: _channels_first(part) for key, part in env.observation_space.items()}
    if own not in (other, _shapes(gym.spaces.Dict(parts))):
        raise ValueError(f"The environment's observations have the shapes {other}, but the model was made for {own}.")


def _channels_first(space: gym.Space) -> gym.Space:
    if not isinstance(space, gym.spaces.Box) or not is_image_space(space) or is_image_space_channels_first(space):
        return space
    return VecTransposeImage.transpose_space(space)


def _shapes(space: gym.Space) -> Any:
    return {key: part.shape for key, part in space.items()} if isinstance(space, gym.spaces.Dict) else space.shape

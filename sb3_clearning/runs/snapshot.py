"""
The state of a run between two steps, beyond the model and its buffer: counters, random states, noises, the normalization, the
logs, and where the environments are.

An environment can not be saved in general. So a run with checkpoints resets the environments at each of them, with a seed that
is in the checkpoint; whoever goes on resets them with the same seed and has the same environments. A checkpoint between two
such resets holds the actions since the last one, and whoever goes on takes them again.
"""

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.runs.random_states import set_random_states, take_random_states

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm

_OBS = ("last_obs", "last_original_obs")
_COUNTERS = ("num_timesteps", "_episode_num", "_n_updates", "_total_timesteps", "_call_started_at")


class EpisodesStart:
    """
    A reset of all environments with a known seed, and the actions since.

    :param seed: The seed
    """

    def __init__(self, seed: int):
        self.seed = seed
        self.actions: list[np.ndarray] = []


def begin_episodes(model: "GoalAlgorithm", seed: int, reset: bool = True) -> None:
    """
    End the episodes that go on, as truncated, and begin new ones.

    :param model: The model
    :param seed: The seed of the new ones
    :param reset: Whether to reset the environments; else only whoever goes on from the checkpoint does
    """
    model.replay_buffer.truncate_last_trajectory()
    model._distances.restart()
    model._warmup.reset()
    if model.action_noise is not None:
        model.action_noise.reset()
    model._episodes_start = EpisodesStart(seed)
    model._last_obs = None
    if reset:
        _reset(model, seed)
        model._check_finite(_original(model))


def _reset(model: "GoalAlgorithm", seed: int) -> None:
    assert model.env is not None
    model.env.seed(seed)
    model._last_obs = model.env.reset()  # type: ignore[assignment]
    if model._vec_normalize_env is not None:
        model._last_original_obs = model._vec_normalize_env.get_original_obs()


def _original(model: "GoalAlgorithm") -> dict[str, np.ndarray]:
    obs = model._last_obs if model._vec_normalize_env is None else model._last_original_obs
    assert isinstance(obs, dict)
    return obs


# -- taking ------------------------------------------------------------------------------------------------------------


def can_go_on_within_episodes(model: "GoalAlgorithm") -> bool:
    """:return: Whether the middle of an episode can be saved, which depends on the action noise"""
    return model.noises_can_be_saved()


def take_run(model: "GoalAlgorithm", online: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """
    :param model: The model, between two steps
    :param online: Whether the run collects experience
    :return: What JSON can hold of the run's state, and its arrays
    """
    random, arrays = take_random_states(model.action_space)
    content: dict[str, Any] = {
        "online": online,
        "counters": {name: getattr(model, name) for name in _COUNTERS},
        "random": random,
        "logs": _take_logs(model),
        "noise": {},
        "seed": None,
    }
    if online:
        assert model._episodes_start is not None
        content["seed"] = model._episodes_start.seed
        if model._episodes_start.actions:
            arrays["replay"] = np.stack(model._episodes_start.actions)
        for name, obs in (("last_obs", model._last_obs), ("last_original_obs", model._last_original_obs)):
            if isinstance(obs, dict) and model._last_obs is not None:
                arrays.update({f"{name}/{key}": np.asarray(value) for key, value in obs.items()})
        content["noise"] = model.snapshot_noises(arrays)
    arrays.update(model._distances.snapshot())
    if model._vec_normalize_env is not None:
        arrays.update(take_normalization(model._vec_normalize_env))
    return content, arrays


def normalized_keys(env: VecNormalize | None) -> set[str]:
    """
    :param env: A VecNormalize of Dict observations, or None
    :return: The keys that it normalizes
    """
    return set() if env is None or not env.norm_obs else set(env.obs_rms)


def take_normalization(env: VecNormalize) -> dict[str, np.ndarray]:
    """
    :param env: A VecNormalize
    :return: The arrays of its statistics
    """
    statistics: dict[str, RunningMeanStd] = {"reward": env.ret_rms}
    if env.norm_obs:
        assert isinstance(env.obs_rms, dict)
        statistics.update({f"obs/{key}": value for key, value in env.obs_rms.items()})
    arrays = {
        f"normalize/{name}/{part}": np.asarray(getattr(value, part), dtype=np.float64)
        for name, value in statistics.items()
        for part in ("mean", "var", "count")
    }
    return {**arrays, "normalize/returns": env.returns}


def set_normalization(env: VecNormalize, arrays: dict[str, np.ndarray]) -> None:
    """
    :param env: A VecNormalize
    :param arrays: What :func:`take_normalization` returned, among others
    """
    own, found = take_normalization(env), {key: value for key, value in arrays.items() if key.startswith("normalize/")}
    if {key: value.shape for key, value in own.items()} != {key: value.shape for key, value in found.items()}:
        raise UnreadableFileError("The file has not the statistics of this VecNormalize: make it with the same arguments.")
    for key, value in found.items():
        name, part = key.removeprefix("normalize/").rpartition("/")[::2]
        if key == "normalize/returns":
            env.returns = value.copy()
            continue
        statistics = env.ret_rms if name == "reward" else env.obs_rms[name.removeprefix("obs/")]
        setattr(statistics, part, value.item() if part == "count" else value.copy())


def _take_logs(model: "GoalAlgorithm") -> dict[str, Any]:
    episodes = [
        {key: float(value) for key, value in episode.items() if isinstance(value, (int, float, np.number))}
        for episode in model.ep_info_buffer or ()
    ]
    return {
        "episodes": [{key: value for key, value in episode.items() if np.isfinite(value)} for episode in episodes],
        "successes": [float(success) for success in model.ep_success_buffer or ()],
        "distances": [list(episode) for episode in model._distances.episodes],
        "metrics": {name: [total.item(), model._metrics._counts[name]] for name, total in model._metrics._sums.items()},
    }


# -- going on ----------------------------------------------------------------------------------------------------------


def check_run(model: "GoalAlgorithm", content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """
    Raise an error for a state that no run can have been in, before anything is changed.

    :param model: A model with the same spaces and number of environments
    :param content: What :func:`take_run` returned
    :param arrays: Its arrays
    """
    online, seed, logs = content["online"], content["seed"], content["logs"]
    if type(online) is not bool or not (_is_count(seed, 2**32) if online else seed is None):
        raise UnreadableFileError(f"The checkpoint's environments had the seed {str(seed)[:50]}, which is none.")
    if not isinstance(content["noise"], dict) or not isinstance(content["random"], dict):
        raise UnreadableFileError("The checkpoint has no states of the noises or of the random generators.")
    action_shape, observation_space = model.action_space.shape, model.observation_space
    assert action_shape is not None
    assert isinstance(observation_space, spaces.Dict)
    replay = arrays.get("replay")
    shape = (model.n_envs, *action_shape)
    if replay is not None and (replay.shape[1:] != shape or replay.dtype.kind != "f" or not np.isfinite(replay).all()):
        raise UnreadableFileError("The checkpoint's actions since the last reset are not of this action space.")
    known = {
        f"{name}/{key}": (model.n_envs, *(space.shape or ())) for name in _OBS for key, space in observation_space.items()
    }
    found = {name: array.shape for name, array in arrays.items() if name.startswith(tuple(f"{kind}/" for kind in _OBS))}
    wholly = all(sum(name.startswith(f"{kind}/") for name in found) in (0, len(observation_space.spaces)) for kind in _OBS)
    if not wholly or any(known.get(name) != shape for name, shape in found.items()):
        raise UnreadableFileError("The checkpoint's last observations are not of this observation space.")
    right = all(
        [
            all(_are_numbers(episode.values()) and {"r", "l"} <= set(episode) for episode in logs["episodes"]),
            _are_numbers(logs["successes"]),
            all(_are_numbers(episode) and len(episode) == model._distances.n_measures for episode in logs["distances"]),
            all(_are_numbers([total]) and _is_count(count, 2**62) for total, count in logs["metrics"].values()),
        ]
    )
    if not right:
        raise UnreadableFileError("The checkpoint's logs are none.")


def _is_count(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _are_numbers(values: Any) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e300 for value in values)


def set_counters(model: "GoalAlgorithm", content: dict[str, Any]) -> None:
    """
    :param model: A model
    :param content: What :func:`take_run` returned
    """
    counters = content["counters"]
    if set(counters) != set(_COUNTERS) or not all(_is_count(value, 2**62) for value in counters.values()):
        raise UnreadableFileError(f"The checkpoint's counters are {str(counters)[:200]}.")
    for name, value in counters.items():
        setattr(model, name, value)


def set_logs(model: "GoalAlgorithm", content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """
    :param model: A model
    :param content: What :func:`take_run` returned
    :param arrays: Its arrays
    """
    logs = content["logs"]
    model.ep_info_buffer = deque(logs["episodes"], maxlen=model._stats_window_size)
    model.ep_success_buffer = deque(logs["successes"], maxlen=model._stats_window_size)
    model._distances.restore(logs["distances"], arrays)
    for name, (total, count) in logs["metrics"].items():
        model._metrics._sums[name] = th.tensor(float(total), device=model.device)
        model._metrics._counts[name] = int(count)


def find_environments(model: "GoalAlgorithm", content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    """
    Bring the environments to where they were: a reset with the same seed, then the same actions.

    :param model: The model; it gets its last observations
    :param content: What :func:`take_run` returned
    :param arrays: Its arrays
    :return: Whether they came out where they were; if not, their episodes are truncated
    """
    assert model.env is not None
    seed, actions = content["seed"], arrays.get("replay", ())
    normalize = model._vec_normalize_env
    expected = {
        name: {key.removeprefix(f"{name}/"): value.copy() for key, value in arrays.items() if key.startswith(f"{name}/")}
        for name in _OBS
    }
    if normalize is not None and not expected["last_obs"]:
        set_normalization(normalize, arrays)  # the reset goes into the statistics
    _reset(model, seed)
    for action in actions:
        model._last_obs = model.env.step(action)[0]  # type: ignore[assignment]
        if normalize is not None:
            model._last_original_obs = normalize.get_original_obs()
    model._episodes_start = EpisodesStart(seed)
    model._episodes_start.actions = [action.copy() for action in actions]
    if not expected["last_obs"]:
        return True
    found = _original(model)
    wanted = expected["last_obs" if normalize is None else "last_original_obs"]
    if normalize is not None:
        set_normalization(normalize, arrays)
    if found.keys() == wanted.keys() and all(np.array_equal(found[key], wanted[key]) for key in found):
        model._last_obs = expected["last_obs"]
        return True
    warnings.warn(
        "The environment did not come out where it was: after `reset(seed=…)` and the same actions its observations differ, "
        "so its randomness is not governed by the seed. The run goes on, with new episodes, but not to the same weights as an "
        "undisturbed one.",
        stacklevel=2,
    )
    begin_episodes(model, seed)
    return False


def set_generators(model: "GoalAlgorithm", content: dict[str, Any], arrays: dict[str, np.ndarray], noises: bool) -> None:
    """
    The last thing before the run goes on: nothing may be drawn in between.

    :param model: The model
    :param content: What :func:`take_run` returned
    :param arrays: Its arrays
    :param noises: Whether the noises go on, too; else new episodes have begun
    """
    if noises:
        model.restore_noises(content["noise"], arrays)
    set_random_states(model.action_space, content["random"], arrays)

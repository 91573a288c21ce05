"""The statistics of a VecNormalize, for checkpoints and exports."""

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.files.array_file import UnreadableFileError


def normalized_keys(env: VecNormalize | None) -> set[str]:
    """:return: The keys of Dict observations that a VecNormalize normalizes"""
    return set() if env is None or not env.norm_obs else set(env.obs_rms)


def check_normalization(model: BaseAlgorithm, env: VecNormalize | None) -> None:
    """Raise an error if the model learned from normalized observations, and this would not normalize them."""
    if not getattr(model, "learned_normalized", False):
        return
    statistics = [env.obs_rms[key] for key in normalized_keys(env)] if env is not None else []
    if not statistics or any(one.count < 1 for one in statistics):
        found = "the VecNormalize here has seen no observations" if statistics else "the environment here has no such wrapper"
        raise ValueError(
            f"The agent was trained with a VecNormalize, and {found}: load the agent with the statistics of its training, "
            "`load(path, env=VecNormalize.load(statistics, venv))` or `from_export(path, env=VecNormalize(venv))`."
        )


def changed_normalization(learned: bool, env: VecNormalize | None) -> str | None:
    """
    :param learned: Whether the observations of the training so far were normalized
    :return: What is wrong if training continues here, and only one of both is normalized; else None
    """
    if learned == bool(normalized_keys(env)):
        return None
    if learned:
        return (
            "has learned from normalized observations, and the environment here has no VecNormalize: wrap it in one, with the "
            "statistics of the training."
        )
    return "has learned from raw observations, and the environment here has a VecNormalize: pass the environment without it."


def check_normalization_is_outermost(model: BaseAlgorithm) -> None:
    """Raise an error if a wrapper around the VecNormalize changes shapes: the replay buffer stores what is before it."""
    env = model.get_vec_normalize_env()
    if env is None or not isinstance(model.observation_space, spaces.Dict):
        return
    assert isinstance(env.observation_space, spaces.Dict)
    inner, outer = (
        {key: part.shape for key, part in space.items()} for space in (env.observation_space, model.observation_space)
    )
    if inner != outer:
        raise ValueError(
            f"VecNormalize has observations of the shapes {inner}, but a wrapper around it makes them {outer}. Put "
            "VecNormalize outermost: `VecNormalize(VecFrameStack(venv, n))`, and `VecNormalize(VecTransposeImage(venv))` for "
            "images whose channels are last."
        )


def _statistics(env: VecNormalize) -> dict[str, RunningMeanStd]:
    observations = env.obs_rms if env.norm_obs else {}
    assert isinstance(observations, dict)
    return {"reward": env.ret_rms, **{f"obs/{key}": value for key, value in observations.items()}}


def snapshot_normalization(env: VecNormalize) -> dict[str, np.ndarray]:
    """:return: The arrays of a VecNormalize's statistics"""
    arrays = {
        f"normalize/{name}/{part}": np.asarray(getattr(value, part), dtype=np.float64)
        for name, value in _statistics(env).items()
        for part in ("mean", "var", "count")
    }
    return {**arrays, "normalize/returns": env.returns}


def restore_normalization(env: VecNormalize, arrays: dict[str, np.ndarray]) -> None:
    """Set a VecNormalize's statistics from what :func:`snapshot_normalization` returned, among other arrays."""
    own, found = snapshot_normalization(env), {key: value for key, value in arrays.items() if key.startswith("normalize/")}
    if {key: value.shape for key, value in own.items()} != {key: value.shape for key, value in found.items()}:
        raise UnreadableFileError(
            "The file's statistics do not fit this VecNormalize: create it with the saved run's arguments."
        )
    env.returns = found["normalize/returns"].copy()
    for name, statistics in _statistics(env).items():
        mean, var, count = (found[f"normalize/{name}/{part}"] for part in ("mean", "var", "count"))
        statistics.mean, statistics.var, statistics.count = mean.copy(), var.copy(), count.item()

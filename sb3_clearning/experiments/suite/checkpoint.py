"""A run's checkpoint: model, replay buffer and rows together, whole or not there at all."""

import gzip
import io
import os
import pickle
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_clearning.experiments.rows import read_rows, write_rows

PREFIX = "step_"


def newest(folder: Path) -> Path | None:
    """
    :param folder: A run's folder
    :return: Its newest checkpoint, or None
    """
    # Names have leading zeros: the last one is the newest.
    return max(folder.glob(f"{PREFIX}*"), default=None)


def rows_of(folder: Path) -> list[dict[str, str]]:
    """
    :param folder: A run's folder
    :return: The rows up to its newest checkpoint. The run may be writing another one at the same time
    """
    while (found := newest(folder)) is not None:
        rows = read_rows(found / "rows.csv")
        if rows:
            return rows
        # It was replaced by a newer one between the two lines above.
    return []


def save(folder: Path, model: OffPolicyAlgorithm, rows: Sequence[Mapping[str, Any]]) -> None:
    """
    :param folder: The run's folder
    :param model: The model
    :param rows: All rows of the run
    """
    half = folder / "half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    model.save(half / "model.zip")
    # SB3's own buffers save their empty part, which are zeros: fast to compress.
    with gzip.open(half / "buffer.pkl.gz", "wb", compresslevel=1) as file:
        pickle.dump(model.replay_buffer, file, protocol=pickle.HIGHEST_PROTOCOL)
    write_rows(half / "rows.csv", rows, list(rows[-1]))
    for file_path in half.iterdir():
        # After a power cut, too, the new name must not stand on files that are not there yet.
        with file_path.open("rb") as file:
            os.fsync(file.fileno())
    target = folder / f"{PREFIX}{model.num_timesteps:010d}"
    half.rename(target)
    for old in folder.glob(f"{PREFIX}*"):
        if old != target:
            shutil.rmtree(old, ignore_errors=True)


def load(folder: Path, algorithm: type[OffPolicyAlgorithm], env: gym.Env) -> OffPolicyAlgorithm | None:
    """
    :param folder: A run's folder
    :param algorithm: The algorithm's class
    :param env: The environment to go on in; it is reset
    :return: The model as its newest checkpoint has it, or None
    """
    found = newest(folder)
    if found is None:
        return None
    model = algorithm.load(found / "model.zip", env=env)
    with gzip.open(found / "buffer.pkl.gz", "rb") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The last trajectory in the replay buffer will be truncated")
        model.load_replay_buffer(io.BufferedReader(file))  # SB3 asks for this very class
    return model

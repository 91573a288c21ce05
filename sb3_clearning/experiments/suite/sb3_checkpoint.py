"""
Checkpoints of SB3's own algorithms, such as TD3 with its HerReplayBuffer. SB3 pickles model and buffer; the file around them
is ours: it is written atomically, and its checksum is verified before anything is unpickled. Only the run that wrote it
reads it; do not share it.
"""

import gzip
import io
import pickle
import warnings
from pathlib import Path
from typing import TypeVar

import gymnasium as gym
import numpy as np
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_clearning.files.array_file import read_arrays, write_arrays

Model = TypeVar("Model", bound=OffPolicyAlgorithm)

_NAME, _KIND = "model.safetensors", "sb3_checkpoint"


def save(folder: Path, model: OffPolicyAlgorithm) -> None:
    """:param folder: The folder of the checkpoint, which is overwritten"""
    folder.mkdir(parents=True, exist_ok=True)
    zipped = io.BytesIO()
    model.save(zipped)
    # SB3's own buffers save their empty part, which are zeros: fast to compress.
    buffer = gzip.compress(pickle.dumps(model.replay_buffer, protocol=pickle.HIGHEST_PROTOCOL), compresslevel=1)
    content = {"algorithm": type(model).__name__, "num_timesteps": model.num_timesteps}
    arrays = {"model": np.frombuffer(zipped.getvalue(), np.uint8), "buffer": np.frombuffer(buffer, np.uint8)}
    write_arrays(folder / _NAME, _KIND, content, arrays)


def load(folder: Path, algorithm: type[Model], env: gym.Env) -> Model | None:
    """:return: The model of the checkpoint, or None. The environment is reset"""
    path = folder / _NAME
    if not path.exists():
        return None
    _, arrays = read_arrays(path, _KIND)
    model = algorithm.load(io.BytesIO(arrays["model"].tobytes()), env=env)
    with gzip.open(io.BytesIO(arrays["buffer"].tobytes())) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The last trajectory in the replay buffer will be truncated")
        model.load_replay_buffer(io.BufferedReader(file))  # SB3 asks for this very class
    return model

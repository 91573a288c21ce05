"""The time of one action: the exported policy in onnxruntime, against torch's ``predict``."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.peers import make_models
from benchmarks.timing import Row, compare, repeat, seconds


def latency(env_id: str, rounds: int, threads: int, actions: int = 200) -> list[Row]:
    """
    :param env_id: The environment's id
    :param rounds: Number of rounds
    :param threads: Number of threads, for both
    :param actions: Number of actions in a round, one after the other
    :return: The rows
    """
    import onnxruntime

    model = make_models(env_id)["CLearning"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        model.export_policy(path)
        policy = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    observation, _ = model.env.envs[0].reset(seed=0)

    def act() -> np.ndarray:
        (action,) = policy.run(["action"], {key: value[None] for key, value in observation.items()})
        return action[0]

    subjects = {
        "exported policy": repeat(actions, act),
        "predict": repeat(actions, model.predict, observation, deterministic=True),
    }
    setting = f"{env_id}, one observation, {threads} thread{'s' * (threads > 1)}"
    return compare("actions", setting, seconds(subjects, rounds), actions, "actions", ours="exported policy")

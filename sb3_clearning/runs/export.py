"""Agents to share: weights as safetensors, arguments and spaces as JSON. Loading one runs no code."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch as th
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.type_aliases import GymEnv

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, write_arrays
from sb3_clearning.runs.model_state import build_model, check_finite_weights, take_model
from sb3_clearning.runs.snapshot import set_normalization, take_normalization

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm

Model = TypeVar("Model", bound="GoalAlgorithm")

#: What concerns the machine that trained, and not the agent.
_OF_THE_MACHINE = ("tensorboard_log", "verbose")


def export_model(model: "GoalAlgorithm", path: str | Path) -> None:
    """
    :param model: A model
    :param path: The file
    """
    check_finite_weights(model)
    content, arrays = take_model(model)
    for name in _OF_THE_MACHINE:
        content["arguments"].pop(name, None)
        content["not_held"].pop(name, None)
    if model._vec_normalize_env is not None:
        arrays.update(take_normalization(model._vec_normalize_env))
        # It is of the environments that trained, and others may use more or fewer.
        del arrays["normalize/returns"]
    write_arrays(Path(path), "export", content, arrays)


def model_from_export(
    algorithm: type[Model], path: str | Path, env: GymEnv | str | None, device: th.device | str, given: dict[str, Any]
) -> Model:
    """
    :param algorithm: The model's class
    :param path: The file
    :param env: The environment; None: for prediction only
    :param device: The device
    :param given: Arguments in the place of the exported ones
    :return: The model
    """
    content, arrays = read_arrays(Path(path), "export")
    if env is not None:
        env = algorithm._wrap_env(maybe_make_env(env, 0), 0)
    statistics = {name: array for name, array in arrays.items() if name.startswith("normalize/")}
    try:
        model = build_model(algorithm, content, arrays, env, device, given, str(path))
        normalize = model._vec_normalize_env
        if (normalize is None) == bool(statistics) and env is not None:
            raise UnreadableFileError(
                f"{path} was exported {'with' if statistics else 'without'} a VecNormalize: pass an environment "
                f"{'wrapped in one, with the same arguments' if statistics else 'without one'}."
            )
        if normalize is not None:
            set_normalization(normalize, {**statistics, "normalize/returns": normalize.returns})
    except UnreadableFileError:
        raise
    except Exception as error:  # whatever constructors raise for arguments that are none
        raise UnreadableFileError(f"{path} is not an agent that can be made ({type(error).__name__}: {error}).") from error
    return model

"""Going on from a checkpoint: the model, then, when it starts to learn, environments and generators."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch as th
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.type_aliases import GymEnv

from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.replay.ring_file import restore_ring
from sb3_clearning.runs.lock import run_lock
from sb3_clearning.runs.model_state import build_model
from sb3_clearning.runs.snapshot import check_run, find_environments, set_counters, set_generators, set_logs, set_normalization
from sb3_clearning.runs.store import Checkpoint, CheckpointFolder

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm


Model = TypeVar("Model", bound="GoalAlgorithm")


class ResumedRun(NamedTuple):
    """
    What a resumed model still needs when it starts to learn.

    :param checkpoint: The checkpoint
    :param files: Its folder
    """

    checkpoint: Checkpoint
    files: CheckpointFolder


def resume_model(
    algorithm: type[Model], folder: str | Path, env: GymEnv | str, device: th.device | str | None, given: dict[str, Any]
) -> Model:
    """
    :param algorithm: The model's class
    :param folder: A folder of checkpoints
    :param env: The environment
    :param device: The device; None: the one of the checkpoint, if there is one here
    :param given: Arguments in the place of the saved ones
    :return: The model of the newest whole checkpoint. Its next ``learn`` goes on
    """
    if env is None:
        raise ValueError("`resume` needs the environment that the run learned in: pass `env`.")
    path = Path(folder)
    files = CheckpointFolder(path)
    if not files.paths():
        raise UnreadableFileError(f"There is no checkpoint in {path}: start a run with `callback=ResumableCheckpoint(…)`.")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # nobody writes into a folder that can not be written to
            stack.enter_context(run_lock(path))
        checkpoint = files.newest()
    env = algorithm._wrap_env(maybe_make_env(env, 0), 0)
    content, arrays = checkpoint.content, checkpoint.arrays
    where = str(checkpoint.path)
    try:
        model = build_model(algorithm, content, arrays, env, device, given, where)
        if model.n_envs != content["n_envs"]:
            raise UnreadableFileError(
                f"{where} is of {content['n_envs']} environments, not of {model.n_envs}: pass as many, or use `load`."
            )
        head = {name.removeprefix("buffer/"): array for name, array in arrays.items() if name.startswith("buffer/")}
        check_run(model, content, arrays)
        _check_numbers(content, where)
        restore_ring(model.replay_buffer, content["buffer"], head, checkpoint.buffer)
        set_counters(model, content)
        set_logs(model, content, arrays)
        if model._vec_normalize_env is not None:
            set_normalization(model._vec_normalize_env, arrays)
    except UnreadableFileError:
        raise
    except Exception as error:  # whatever constructors raise for arguments that are none
        raise UnreadableFileError(f"{where} is not a checkpoint that fits ({type(error).__name__}: {error}).") from error
    files.go_on(checkpoint, model.replay_buffer)
    model._resumed = ResumedRun(checkpoint, files)
    model._last_checkpoint = checkpoint.path.resolve()
    return model


def _check_numbers(content: dict[str, Any], where: str) -> None:
    """Raise an error unless the callback can count on from here."""
    counts = [content["number"], content["key"], 0 if content["regular_at"] is None else content["regular_at"]]
    if not all(isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**62 for count in counts):
        raise UnreadableFileError(f"{where} has not the number, the key and the step of a checkpoint: {str(counts)[:200]}.")


def before_going_on(model: "GoalAlgorithm", total: int) -> tuple[int, bool]:
    """
    :param model: A resumed model
    :param total: The steps of the call of ``learn``, as it was the first time
    :return: The steps that are left of it, and whether the environments are where they were
    """
    assert model._resumed is not None
    checkpoint = model._resumed.checkpoint
    same = find_environments(model, checkpoint.content, checkpoint.arrays) if checkpoint.content["online"] else True
    return model._call_started_at + total - model.num_timesteps, same


def after_going_on(model: "GoalAlgorithm", same: bool) -> None:
    """
    :param model: A resumed model, about to take its next step
    :param same: Whether the environments are where they were
    """
    assert model._resumed is not None
    checkpoint = model._resumed.checkpoint
    set_generators(model, checkpoint.content, checkpoint.arrays, noises=same and checkpoint.content["online"])
    model._resumed = None

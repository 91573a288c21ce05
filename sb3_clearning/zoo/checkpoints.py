"""rl-zoo3 with :class:`ResumableCheckpoint` among the callbacks of a configuration: the same command goes on."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from sb3_clearning.runs.checkpoint import ResumableCheckpoint
from sb3_clearning.zoo.input_error import InputError

#: The trial that this thread of a study is at.
_trial = threading.local()


def checkpoint_to_go_on_from(callbacks: Iterable[BaseCallback]) -> ResumableCheckpoint | None:
    """
    :param callbacks: The callbacks of a run
    :return: The one whose folder has a checkpoint
    """
    found = (callback for callback in callbacks if isinstance(callback, ResumableCheckpoint) and callback.exists())
    return next(found, None)


def resume_run(algorithm: Any, checkpoint: ResumableCheckpoint, manager: Any, hyperparams: dict[str, Any], env: Any) -> Any:
    """
    :param algorithm: The algorithm's class
    :param checkpoint: Whose folder has the run
    :param manager: rl-zoo3's ExperimentManager
    :param hyperparams: What it would make a new model with; among them is what a checkpoint can not hold, like schedules
    :param env: The environments
    :return: The model
    """
    arguments = {"tensorboard_log": manager.tensorboard_log, "verbose": manager.verbose, **hyperparams}
    try:
        return algorithm.resume(checkpoint.folder, env, device=manager.device, **arguments)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"The run in {checkpoint.folder} can not go on. {error}") from error


@contextmanager
def trial_folders(number: int) -> Iterator[None]:
    """
    Give the checkpoints of a trial a folder of their own.

    :param number: The trial's number
    """
    _trial.number = number
    try:
        yield
    finally:
        del _trial.number


def callbacks_of_the_trial(original: Callable[..., list[BaseCallback]], hyperparams: dict[str, Any]) -> list[BaseCallback]:
    """
    :param original: rl-zoo3's function
    :param hyperparams: The hyperparameters, with or without callbacks
    :return: The callbacks
    """
    try:
        callbacks = original(hyperparams)
    except (TypeError, ValueError) as error:
        if "ResumableCheckpoint" not in str(hyperparams.get("callback")):
            raise
        raise InputError(
            f"The callback sb3_clearning.ResumableCheckpoint needs a `folder`, and takes `every` and `keep`: {error}"
        ) from error
    number = getattr(_trial, "number", None)
    return [
        callback.subfolder(f"trial_{number}") if number is not None and isinstance(callback, ResumableCheckpoint) else callback
        for callback in callbacks
    ]

"""The files that a model is saved to and built from: checkpoints, exports, replay buffers."""

import contextlib
import io
import pathlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Self

import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecTransposeImage, unwrap_vec_normalize

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, write_arrays
from sb3_clearning.files.json_values import is_count
from sb3_clearning.goal_spaces import check_action_space, check_goal_space
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer
from sb3_clearning.runs.checkpoint_folder import CheckpointFolder
from sb3_clearning.runs.lock import run_lock
from sb3_clearning.runs.model_state import DivergedError, build_model, check_finite_weights, snapshot_model
from sb3_clearning.runs.resumable_td3 import ResumableTD3
from sb3_clearning.runs.vec_normalize import (
    changed_normalization,
    check_normalization,
    restore_normalization,
    snapshot_normalization,
)

#: Arguments that concern the machine that trained, and not the agent.
_MACHINE_ARGUMENTS = ("tensorboard_log", "verbose")


def _channels_first(space: spaces.Space) -> spaces.Space:
    """:return: The space that SB3 gives a network for images of an environment, which may have their channels last"""
    if not is_image_space(space) or is_image_space_channels_first(space):  # type: ignore[arg-type]
        return space
    return VecTransposeImage.transpose_space(space)  # type: ignore[arg-type]


class ModelFiles(ResumableTD3):
    """The part of :class:`GoalAlgorithm` that reads and writes files."""

    @classmethod
    def from_spaces(
        cls,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        policy: str | type[BasePolicy] = "MultiInputPolicy",
        **arguments: Any,
    ) -> Self:
        """
        Build a model without an environment, for learning from a dataset, prediction and export. With ``model.set_env(env)``
        it can learn online, too.

        :param observation_space: A Dict with ``observation``, ``achieved_goal`` and ``desired_goal``. Images get their
            channels first, as those of an environment
        :return: The model
        """
        try:
            check_goal_space(observation_space)
        except ValueError as error:
            error.add_note(
                "There is no environment to wrap here: build the Dict with the state under `observation`, and with "
                "`achieved_goal` and `desired_goal`, Boxes of the goal's shape. `load_dataset(…, crop=…)` then fills them in."
            )
            raise
        check_action_space(action_space)
        assert isinstance(observation_space, spaces.Dict)
        observation_space = spaces.Dict({key: _channels_first(part) for key, part in observation_space.items()})
        model = cls(policy, env=None, **{**arguments, "_init_setup_model": False})  # type: ignore[arg-type]
        model.observation_space, model.action_space, model.n_envs = observation_space, action_space, 1
        model._setup_model()
        return model

    @classmethod
    def resume(
        cls, folder: str | pathlib.Path, env: GymEnv | str | None, device: th.device | str | None = None, **arguments: Any
    ) -> Self:
        """
        Resume a run that had a :class:`ResumableCheckpoint`. Afterwards call ``learn`` (or ``learn_offline``) as the run did,
        with the same number of steps: it takes those that are left.

        :param folder: The run's folder. Its newest complete checkpoint is used
        :param env: The same environment, newly created; None for a run of ``learn_offline`` without one
        :param device: The device; None: the one of the checkpoint, if it is available
        :param arguments: Arguments that replace the saved ones. Python objects such as functions are not saved and have to be
            passed again
        :return: The model
        """
        files = CheckpointFolder(pathlib.Path(folder))
        with contextlib.ExitStack() as stack:
            if files.paths():
                with contextlib.suppress(OSError):  # nobody writes into a read-only folder
                    stack.enter_context(run_lock(files.folder))
            checkpoint = files.read_newest()
        content, arrays, where = checkpoint.content, checkpoint.arrays, str(checkpoint.path)
        if env is None and content.get("online") is not False:
            raise ValueError("`resume` needs the environment that the run learned in: pass `env`.")
        wrapped = None if env is None else cls._wrap_env(maybe_make_env(env, 0), 0)
        learned_normalized = _has_normalized_observations(arrays)
        wrong = changed_normalization(learned_normalized, unwrap_vec_normalize(wrapped) if wrapped else None)
        if wrong:
            raise ValueError(f"The run in {folder} {wrong}")
        cls._check_names(arguments)
        with _unreadable(where, "checkpoint"):
            model = build_model(cls, content, arrays, wrapped, device, arguments, where)
            if model.n_envs != content["n_envs"]:
                raise UnreadableFileError(
                    f"{where} was written with {content['n_envs']} environments, but `env` has {model.n_envs}: pass as many, "
                    "or use `load`."
                )
            schedule = [content["number"], content["key"], 0 if content["regular_at"] is None else content["regular_at"]]
            if not all(is_count(count, 2**62) for count in schedule):
                raise UnreadableFileError(f"{where}: invalid number, key or step of the checkpoint: {str(schedule)[:200]}.")
            checkpoint.restore_buffer(model.replay_buffer)
            model.restore_run(checkpoint)
        model.learned_normalized = learned_normalized
        files.continue_from(checkpoint, model.replay_buffer)
        model.session.resume(checkpoint, files)
        return model

    def export(self, path: str | pathlib.Path) -> None:
        """
        Write the agent to a file to share: weights, optimizers and the statistics of a VecNormalize as safetensors, arguments
        and spaces as JSON. Unlike a .zip of :meth:`save`, it runs no code when it is loaded.

        :param path: The file, usually ``….safetensors``; it is written atomically
        """
        try:
            check_finite_weights(self)
        except DivergedError as error:
            error.add_note(f"Nothing was saved. {self.session.hint(self)}")
            raise
        check_normalization(self, self._vec_normalize_env)
        content, arrays = snapshot_model(self)
        for name in _MACHINE_ARGUMENTS:
            content["arguments"].pop(name, None)
            content["not_held"].pop(name, None)
        if self._vec_normalize_env is not None:
            arrays.update(snapshot_normalization(self._vec_normalize_env))
            # One per environment, and others may use more or fewer.
            del arrays["normalize/returns"]
        write_arrays(pathlib.Path(path), "export", content, arrays)

    @classmethod
    def from_export(
        cls, path: str | pathlib.Path, env: GymEnv | str | None = None, device: th.device | str = "auto", **arguments: Any
    ) -> Self:
        """
        Build a model from a file of :meth:`export`, for prediction, evaluation and further training.

        :param env: The environment to learn in, in a VecNormalize if the agent had one. Prediction needs none; its
            observations must be normalized already
        :param arguments: Arguments that replace the exported ones. Python objects such as functions are not exported and have
            to be passed again
        :return: The model
        """
        content, arrays = read_arrays(pathlib.Path(path), "export")
        wrapped = None if env is None else cls._wrap_env(maybe_make_env(env, 0), 0)
        statistics = {name: array for name, array in arrays.items() if name.startswith("normalize/")}
        cls._check_names(arguments)
        with _unreadable(path, "exported agent"):
            model = build_model(cls, content, arrays, wrapped, device, arguments, str(path))
            normalize = model.get_vec_normalize_env()
            if (normalize is None) == bool(statistics) and env is not None:
                raise UnreadableFileError(
                    f"{path} was exported {'with' if statistics else 'without'} a VecNormalize: pass an environment "
                    f"{'wrapped in one, with the same arguments' if statistics else 'without one'}."
                )
            if normalize is not None:
                restore_normalization(normalize, {**statistics, "normalize/returns": normalize.returns})
        model.learned_normalized = _has_normalized_observations(statistics)
        return model

    @classmethod
    def _check_names(cls, arguments: Iterable[str]) -> None:
        """Raise an error for arguments that the algorithm does not have. It is the caller's, not the file's."""
        names = [*cls.argument_names(), "policy"]
        unknown = sorted(set(arguments) - set(names))
        if unknown:
            raise TypeError(f"{cls.__name__} has no arguments {unknown}. It has {sorted(names)}.")

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """
        Load a replay buffer that :meth:`save_replay_buffer` wrote. No environment is needed.

        :param path: Path to the pickled replay buffer. Like all pickles, it can run code: load only your own
        :param truncate_last_traj: Whether to truncate the episodes that were in progress when it was saved
        """
        try:
            buffer = load_from_pkl(path, self.verbose)
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, ValueError) as error:
            raise ValueError(
                f"{path} is not a replay buffer that `save_replay_buffer` wrote ({type(error).__name__}: {error}). For a "
                "file of `replay_buffer.save` use `model.replay_buffer.load(path)`."
            ) from error
        if not isinstance(buffer, GoalReplayBuffer):
            raise ValueError(
                f"{path} holds a {type(buffer).__name__}, not a GoalReplayBuffer: it was saved by another algorithm."
            )
        ours = (self.observation_space, self.action_space, self.n_envs)
        theirs = (buffer.observation_space, buffer.action_space, buffer.n_envs)
        if ours != theirs:
            raise ValueError(
                "The saved replay buffer does not fit this model. Spaces and number of environments of the model: "
                f"{ours}, of the buffer: {theirs}."
            )
        if truncate_last_traj:
            buffer.truncate_last_trajectory()
        buffer.move_to(self.device, self.replay_buffer.buffer_device)
        self.replay_buffer = buffer


def _has_normalized_observations(arrays: Iterable[str]) -> bool:
    """:return: Whether a file, by the names of its arrays, has the statistics of observations"""
    return any(name.startswith("normalize/obs/") for name in arrays)


@contextlib.contextmanager
def _unreadable(path: str | pathlib.Path, kind: str) -> Iterator[None]:
    """Turn what constructors raise for invalid arguments into the error for files."""
    try:
        yield
    except UnreadableFileError:
        raise
    except Exception as error:
        raise UnreadableFileError(f"{path} is not a valid {kind} ({type(error).__name__}: {error}).") from error

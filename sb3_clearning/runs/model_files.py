"""The files that a model is saved to and made from: checkpoints, exports, replay buffers."""

import io
import pathlib
import pickle
from typing import Any, TypeVar

import torch as th
from stable_baselines3 import TD3
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.type_aliases import GymEnv

from sb3_clearning.replay.goal_buffer import GoalReplayBuffer

SelfModelFiles = TypeVar("SelfModelFiles", bound="ModelFiles")


class ModelFiles(TD3):
    """The part of :class:`GoalAlgorithm` that reads and writes files."""

    replay_buffer: GoalReplayBuffer

    @classmethod
    def resume(
        cls: type[SelfModelFiles],
        folder: str | pathlib.Path,
        env: GymEnv | str,
        device: th.device | str | None = None,
        **arguments: Any,
    ) -> SelfModelFiles:
        """
        Go on with a run that :class:`ResumableCheckpoint` watched over. Afterwards call ``learn`` (or ``learn_offline``) as
        the run did, with the same number of steps: it makes those that are left.

        :param folder: The run's folder, of which the newest whole checkpoint is taken
        :param env: The same environment, made anew
        :param device: The device; None: the one of the checkpoint, if there is one here
        :param arguments: Arguments in the place of the saved ones; those that are objects of Python, such as functions, are
            not saved and have to be passed again
        :return: The model
        """
        from sb3_clearning.runs.resuming import resume_model

        return resume_model(cls, folder, env, device, arguments)  # type: ignore[type-var]

    def export(self, path: str | pathlib.Path) -> None:
        """
        Write the agent to a file to share: weights, optimizers and the statistics of a VecNormalize as safetensors, arguments
        and spaces as JSON. Unlike a .zip of :meth:`save`, it can not run code where it is loaded.

        :param path: The file, by custom ``….safetensors``; it appears whole, or the old one stays
        """
        from sb3_clearning.runs.export import export_model

        export_model(self, path)  # type: ignore[arg-type]

    @classmethod
    def from_export(
        cls: type[SelfModelFiles],
        path: str | pathlib.Path,
        env: GymEnv | str | None = None,
        device: th.device | str = "auto",
        **arguments: Any,
    ) -> SelfModelFiles:
        """
        Make a model from a file of :meth:`export`, for prediction, evaluation and further training.

        :param path: The file
        :param env: The environment to learn in, in a VecNormalize if the agent had one; not needed for prediction, for which a
            VecNormalize's observations have to be normalized beforehand
        :param device: The device
        :param arguments: Arguments in the place of the exported ones; those that were objects of Python, such as functions,
            are not exported and have to be passed again
        :return: The model
        """
        from sb3_clearning.runs.export import model_from_export

        return model_from_export(cls, path, env, device, arguments)  # type: ignore[type-var]

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """
        Load a replay buffer that :meth:`save_replay_buffer` wrote. No environment is needed.

        :param path: Path to the pickled replay buffer. Like all pickles, it can run code: load only your own
        :param truncate_last_traj: Whether the episodes that went on when it was saved have ended since
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
        buffer.device = self.device
        self.replay_buffer = buffer

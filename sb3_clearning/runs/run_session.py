"""RunSession: how a run starts, resumes, checkpoints and ends."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb3_clearning.runs.checkpoint_folder import Checkpoint, CheckpointFolder
from sb3_clearning.runs.env_faults import explain_env_failures
from sb3_clearning.runs.model_state import snapshot_model

if TYPE_CHECKING:
    from sb3_clearning.runs.resumable_td3 import ResumableTD3


class EpisodeLog:
    """A reset of all environments with a known seed, and the actions since. Replaying it reproduces the environments."""

    def __init__(self, seed: int, actions: Iterable[np.ndarray] = ()):
        self.seed = seed
        self.actions = [action.copy() for action in actions]


class PendingResume(NamedTuple):
    """What a resumed model still needs when it starts to learn."""

    checkpoint: Checkpoint
    files: CheckpointFolder


class RunSession:
    """
    How a model's run starts, resumes, checkpoints and ends. The model passes itself to each method: a
    reference back to it would keep its buffer in memory until the next garbage collection.
    """

    def __init__(self) -> None:
        #: Whether the call learns from the buffer alone.
        self.offline = False
        #: Whether a call of ``learn`` takes steps in the environments.
        self.collecting = False
        #: The step at which the call of ``learn`` started.
        self.call_started_at = 0
        #: None until a checkpoint callback has reset the environments.
        self.episodes: EpisodeLog | None = None
        #: What callbacks undo when the call ends, however it ends.
        self.exit_stack = contextlib.ExitStack()
        #: Called when an environment process has died, before the error is raised. Set while a checkpoint callback is active.
        self.on_env_death: Callable[[], None] | None = None
        self.last_checkpoint: Path | None = None
        self.pending: PendingResume | None = None
        self._training = False

    @contextlib.contextmanager
    def call(self, model: "ResumableTD3", offline: bool) -> Iterator[None]:
        """A call of ``learn`` or ``learn_offline``: errors get a note on how to resume, and cleanup always happens."""
        self.offline, self.collecting, self._training = offline, not offline, False

        def hint() -> str:
            return self.hint(model) if self._training else ""  # before training there is nothing to lose

        try:
            with contextlib.ExitStack() as self.exit_stack, explain_env_failures(model.env, self._env_died, hint):
                yield
        finally:
            self.collecting = False

    @contextlib.contextmanager
    def begin(self, model: "ResumableTD3", total_timesteps: int, reset_num_timesteps: bool) -> Iterator[tuple[int, bool]]:
        """
        The start of a call. SB3's ``_setup_learn`` runs inside: it resets environments and initializes callbacks.

        :return: Both arguments of ``learn`` as SB3 should see them: what is left of the call, if the run is resumed
        """
        if self.pending is not None and self.pending.checkpoint.content["online"] == self.offline:
            self.pending = None  # online learning after offline learning, or the reverse, is a new call
        if self.pending is None:
            if reset_num_timesteps or model.needs_reset:
                model.end_episodes()
            yield total_timesteps, reset_num_timesteps
            self.call_started_at = model.num_timesteps
        else:
            checkpoint = self.pending.checkpoint
            envs_restored = checkpoint.content["online"] and model.replay_environments(checkpoint)
            yield self.call_started_at + total_timesteps - model.num_timesteps, False
            # Last, so that nothing is drawn in between.
            model.restore_generators(checkpoint, noises=envs_restored)
            self.pending = None
        model.check_last_observations()
        self._training = True

    def resume(self, checkpoint: Checkpoint, files: CheckpointFolder) -> None:
        """Let the next call continue the run of the checkpoint that the model was built from."""
        self.pending = PendingResume(checkpoint, files)
        self.last_checkpoint = checkpoint.path.resolve()

    def write_checkpoint(self, model: "ResumableTD3", files: CheckpointFolder, schedule: dict[str, Any]) -> Path:
        """Write the state between two steps, with the callback's schedule, and return the checkpoint's file."""
        model_content, model_arrays = snapshot_model(model)
        run_content, run_arrays = model.snapshot_run()
        content = {**model_content, **run_content, **schedule}
        path = files.write(content, {**model_arrays, **run_arrays}, model.replay_buffer)
        self.last_checkpoint = path.resolve()
        return path

    def hint(self, model: "ResumableTD3") -> str:
        """:return: How to resume, for error messages"""
        if self.last_checkpoint is not None and self.last_checkpoint.exists():
            folder = str(self.last_checkpoint.parent)
            return f"Resume from the last checkpoint with `{type(model).__name__}.resume({folder!r}, env)`."
        if self.on_env_death is None:
            return "No checkpoint exists; pass `callback=ResumableCheckpoint(folder)`."
        return "No checkpoint was written yet."

    def _env_died(self) -> None:
        if self.on_env_death is not None:
            self.on_env_death()

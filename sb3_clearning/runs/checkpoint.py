"""ResumableCheckpoint: a callback that makes training resumable, bit for bit."""

import secrets
from pathlib import Path
from typing import NoReturn

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from sb3_clearning.checks import check_steps
from sb3_clearning.runs.checkpoint_folder import CheckpointFolder
from sb3_clearning.runs.lock import run_lock
from sb3_clearning.runs.model_state import check_finite_weights
from sb3_clearning.runs.resumable_td3 import ResumableTD3
from sb3_clearning.runs.signals import Interrupts


class ResumableCheckpoint(BaseCallback):
    """
    Callback that makes training resumable, bit for bit: a run resumed with :meth:`CLearning.resume` reaches the same weights
    as a run with this callback that was never stopped::

        checkpoint = ResumableCheckpoint("runs/maze", every=10_000)
        model = CLearning.resume("runs/maze", env) if checkpoint.exists() else CLearning("MultiInputPolicy", env, seed=0)
        model.learn(1_000_000, callback=checkpoint)

    Each checkpoint resets the environments with a seed that it stores: a simulator cannot be saved, but it can be reset. It
    waits until no episode is in progress, up to half of ``every``, and truncates the episodes after that. Ctrl-C and SIGTERM
    finish the step, write a checkpoint and end the program; a second one ends it at once.

    :param folder: The run's folder. No other run may write into it
    :param every: Steps between two checkpoints, over all environments; gradient steps in ``learn_offline``
    :param verbose: 1: print what is written
    :param replay: Whether a run that was stopped within an episode resumes there, by a reset and the same actions. Use False
        on a real robot: old actions must not be repeated blindly. The episode is then truncated, and the run resumes with a
        reset
    """

    model: ResumableTD3

    def __init__(self, folder: str | Path, every: int = 10_000, keep: int = 2, verbose: int = 0, replay: bool = True):
        super().__init__(verbose)
        if not isinstance(replay, bool):
            raise ValueError(f"`replay` must be True or False, not {replay!r}.")
        self.replay = replay
        if not isinstance(folder, (str, Path)) or not str(folder):
            raise ValueError(f"`folder` must be a path, not {folder!r}.")
        self.folder = Path(folder)
        self.every, self.keep = check_steps("every", every, 1), check_steps("keep", keep, 1)
        self._interrupts = Interrupts()
        self._files = CheckpointFolder(self.folder)
        # What the seeds of the environments' resets are drawn from.
        self._reset_entropy = 0
        # The step of the last checkpoint that was not due to a signal; None: the first one is due.
        self._last_scheduled_step: int | None = None
        self._written_at: tuple[int, int] | None = None
        self._active = False

    def exists(self) -> bool:
        """:return: Whether the folder has a checkpoint to resume from"""
        return bool(self._files.paths())

    def subfolder(self, name: str) -> "ResumableCheckpoint":
        """:return: The same callback for a folder inside this one"""
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise ValueError(f"`name` must be the name of a folder, not {name!r}.")
        return type(self)(self.folder / name, self.every, self.keep, self.verbose, self.replay)

    def _init_callback(self) -> None:
        if not isinstance(self.model, ResumableTD3):
            raise ValueError(
                f"ResumableCheckpoint is for CLearning and GoalTD3, not for {type(self.model).__name__}: use SB3's "
                "CheckpointCallback."
            )
        session = self.model.session
        session.exit_stack.enter_context(run_lock(self.folder))
        session.exit_stack.enter_context(self._interrupts.deferred())
        session.exit_stack.callback(self._deactivate)
        self._active, session.on_env_death = True, self._on_env_death
        self._claim_folder()

    def _deactivate(self) -> None:
        self._active, self.model.session.on_env_death = False, None

    def _claim_folder(self) -> None:
        """Continue the resumed run of the folder, or make sure that it holds no other run."""
        pending, last = self.model.session.pending, self.model.session.last_checkpoint
        if pending is not None and pending.files.folder.resolve() == self.folder.resolve():
            content = pending.checkpoint.content
            self._files, self._reset_entropy = pending.files, content["key"]
            self._last_scheduled_step, self._written_at = content["regular_at"], self.model.progress
            return
        self._last_scheduled_step = self._written_at = None
        self._reset_entropy = secrets.randbits(62) if self.model.seed is None else int(self.model.seed)
        paths = self._files.paths()
        if paths and paths[0].resolve() != last:
            raise ValueError(
                f"{self.folder} already holds a run ({paths[0].name}). Resume it with "
                f"`{type(self.model).__name__}.resume({str(self.folder)!r}, env)`, or give this run another folder."
            )

    def _on_rollout_start(self) -> None:
        self._between_steps()

    def _on_step(self) -> bool:
        session = self.model.session
        if session.offline:
            self._between_steps()
        elif session.episodes is not None:
            session.episodes.actions.append(np.array(self.locals["actions"]))
        return True

    def _on_training_end(self) -> None:
        # rl-zoo3 calls it once more, after errors too.
        if self._active and self._written_at != self.model.progress:
            self._write()
        if self._active and self._interrupts.received is not None:
            self._end()

    def _between_steps(self) -> None:
        if self._interrupts.received is not None:
            self._write(within_episodes=self.replay and self.model.noises().has_snapshot(), reset=self.replay)
            self._end()
        if self._is_due():
            self._write()

    def _on_env_death(self) -> None:
        """Ctrl-C also reaches the environments' processes, and they end. What was learned can still be saved."""
        if self._interrupts.received is not None:
            self._write(reset=False)
            self._end()

    def _end(self) -> NoReturn:
        assert self._interrupts.received is not None
        name = type(self.model).__name__
        self._interrupts.end(
            f"Stopped at step {self.model.num_timesteps:,} by {self._interrupts.received.name}. A checkpoint is in "
            f"{self.folder}: resume with `{name}.resume({str(self.folder)!r}, env)` and the same call of `learn`."
        )

    def _is_due(self) -> bool:
        if self._last_scheduled_step is None:
            return True
        late = self.model.num_timesteps - (self._last_scheduled_step // self.every + 1) * self.every
        if self.model.session.offline or late < 0:
            return late >= 0
        return late >= self.every // 2 or not self.model.replay_buffer.has_open_episodes

    def _write(self, within_episodes: bool = False, reset: bool = True) -> None:
        """Write a checkpoint, if possible after a ``reset`` of the environments and not within their episodes."""
        model = self.model
        check_finite_weights(model)
        if not within_episodes:
            if not model.session.offline:
                model.begin_episodes(self._seed(), reset)
            self._last_scheduled_step = model.num_timesteps
        schedule = {"key": self._reset_entropy, "regular_at": self._last_scheduled_step}
        try:
            path = model.session.write_checkpoint(model, self._files, schedule)
        except OSError as error:
            before = self._files.paths()
            last = f"The last complete one is {before[0].name}" if before else "There is no earlier one"
            raise OSError(
                error.errno,
                f"The checkpoint at step {model.num_timesteps:,} could not be written ({error.strerror}). {last}. Free space "
                "in the folder, or make it writable",
                str(self.folder),
            ) from error
        self._written_at = model.progress
        self._files.remove_old(path, self.keep)
        if self.verbose:
            print(f"Checkpoint at step {model.num_timesteps:,}: {path}")

    def _seed(self) -> int:
        """:return: The seed of the next episodes. It is not drawn from the generators that training uses"""
        return int(np.random.SeedSequence([self._reset_entropy, *self.model.progress]).generate_state(1)[0] >> 1)

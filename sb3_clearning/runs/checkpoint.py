"""ResumableCheckpoint: a callback after which a run that was stopped at any moment goes on as if it had not been."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from sb3_clearning.runs.lock import run_lock
from sb3_clearning.runs.model_files import ModelFiles
from sb3_clearning.runs.model_state import check_finite_weights, take_model
from sb3_clearning.runs.signals import Interrupts
from sb3_clearning.runs.snapshot import (
    begin_episodes,
    can_go_on_within_episodes,
    take_run,
)
from sb3_clearning.runs.store import CheckpointFolder, number_of

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm


class ResumableCheckpoint(BaseCallback):
    """
    Writes checkpoints from which :meth:`CLearning.resume` goes on to the same weights, bit for bit, as a run with this
    callback that was never stopped::

        checkpoint = ResumableCheckpoint("runs/maze", every=10_000)
        model = CLearning.resume("runs/maze", env) if checkpoint.exists() else CLearning("MultiInputPolicy", env, seed=0)
        model.learn(1_000_000, callback=checkpoint)

    At each checkpoint the environments are reset, with a seed that the checkpoint holds: a simulator can not be saved, but it
    can be reset. It waits for a moment at which no episode goes on, up to half of ``every``, and truncates the episodes after
    that. Ctrl-C and SIGTERM finish the step, write a checkpoint and end the program; a second one ends it at once.

    :param folder: The run's folder. No other run may write into it
    :param every: Steps between two checkpoints, over all environments; gradient steps in ``learn_offline``
    :param keep: How many checkpoints stay
    :param verbose: 1: say what is written
    """

    model: "GoalAlgorithm"

    def __init__(self, folder: str | Path, every: int = 10_000, keep: int = 2, verbose: int = 0):
        super().__init__(verbose)
        if not isinstance(folder, (str, Path)) or not str(folder):
            raise ValueError(f"`folder` must be a path, not {folder!r}.")
        for name, value in (("every", every), ("keep", keep)):
            # A float of a YAML file may be whole.
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            if not whole or isinstance(value, bool) or value < 1:
                raise ValueError(f"`{name}` must be a whole number of at least 1, not {value!r}.")
        self.folder, self.every, self.keep = Path(folder), int(every), int(keep)
        self._interrupts = Interrupts()
        self._files = CheckpointFolder(self.folder)
        self._number = 0
        self._key = 0
        self._regular_at: int | None = None
        self._written_at: tuple[int, int] | None = None
        self._active = False

    def _stop_watching(self) -> None:
        self._active, self.model._rescue = False, None

    def exists(self) -> bool:
        """:return: Whether the folder has a checkpoint to go on from"""
        return bool(self._files.paths())

    def within(self, name: str) -> "ResumableCheckpoint":
        """
        :param name: The name of a folder within this one
        :return: The same callback for that folder
        """
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise ValueError(f"`name` must be the name of a folder, not {name!r}.")
        return type(self)(self.folder / name, self.every, self.keep, self.verbose)

    # -- the callback --------------------------------------------------------------------------------------------------

    def _init_callback(self) -> None:
        if not isinstance(self.model, ModelFiles):
            raise ValueError(
                f"ResumableCheckpoint is for CLearning and GoalTD3, not for {type(self.model).__name__}: use SB3's "
                "CheckpointCallback."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model._while_learning.enter_context(run_lock(self.folder))
        self.model._while_learning.enter_context(self._interrupts.watched())
        self.model._while_learning.callback(self._stop_watching)
        self._active, self.model._rescue = True, self._rescue
        self._regular_at = self._written_at = None
        self._go_on()

    def _go_on(self) -> None:
        """Find out whose checkpoints are in the folder."""
        paths, last = self._files.paths(), self.model._last_checkpoint
        resumed = self.model._resumed
        if resumed is not None and resumed.files.folder.resolve() == self.folder.resolve():
            content = resumed.checkpoint.content
            self._files, self._number, self._key = resumed.files, content["number"], content["key"]
            self._regular_at = content["regular_at"]
            self._written_at = (self.model.num_timesteps, self.model._n_updates)
            return
        self._key = secrets.randbits(62) if self.model.seed is None else int(self.model.seed)
        if not paths:
            self._number = 0
        elif last is None or paths[0].resolve() != last:
            raise ValueError(
                f"{self.folder} already holds a run ({paths[0].name}). Go on with it: "
                f"`{type(self.model).__name__}.resume({str(self.folder)!r}, env)`; or give this run another folder."
            )
        else:  # this model wrote them, in a call of `learn` before this one
            self._number = number_of(paths[0])

    def _on_rollout_start(self) -> None:
        self._between_steps(online=True)

    def _on_step(self) -> bool:
        if self.model._offline:
            self._between_steps(online=False)
        elif self.model._episodes_start is not None:
            self.model._episodes_start.actions.append(np.array(self.locals["actions"]))
        return True

    def _on_training_end(self) -> None:
        # rl-zoo3 calls it once more, after errors too.
        if self._active and self._written_at != (self.model.num_timesteps, self.model._n_updates):
            self._write(online=not self.model._offline, within_episodes=False)
        if self._active and self._interrupts.received is not None:
            self._end()

    def _between_steps(self, online: bool) -> None:
        if self._interrupts.received is not None:
            self._write(online, within_episodes=can_go_on_within_episodes(self.model))
            self._end()
        if self._due(online):
            self._write(online, within_episodes=False)

    def _rescue(self) -> None:
        """A Ctrl-C reaches the processes of the environments, too, and they end: what was learned is still here."""
        if self._interrupts.received is not None:
            self._write(online=True, within_episodes=False, reset=False)
            self._end()

    def _end(self) -> NoReturn:
        assert self._interrupts.received is not None
        name = type(self.model).__name__
        self._interrupts.end(
            f"Stopped at step {self.model.num_timesteps:,} by {self._interrupts.received.name}. A checkpoint is in "
            f"{self.folder}: go on with `{name}.resume({str(self.folder)!r}, env)` and the same call of `learn`."
        )

    def _due(self, online: bool) -> bool:
        if self._regular_at is None:
            return True
        late = self.model.num_timesteps - (self._regular_at // self.every + 1) * self.every
        if not online or late < 0:
            return late >= 0
        return late >= self.every // 2 or not self.model.replay_buffer.has_open_episodes

    def _write(self, online: bool, within_episodes: bool, reset: bool = True) -> None:
        model = self.model
        check_finite_weights(model)
        if online and not within_episodes:
            begin_episodes(model, self._seed(), reset)
        if not within_episodes:
            self._regular_at = model.num_timesteps
        model_content, model_arrays = take_model(model)
        run_content, run_arrays = take_run(model, online)
        content = {**model_content, **run_content, "key": self._key, "regular_at": self._regular_at}
        try:
            path = self._files.write(self._number + 1, content, {**model_arrays, **run_arrays}, model.replay_buffer)
        except OSError as error:
            before = self._files.paths()
            last = f"The last whole one is {before[0].name}: " if before else "There is none before it: "
            raise OSError(
                error.errno,
                f"The checkpoint at step {model.num_timesteps:,} could not be written ({error.strerror}). {last}make room in "
                f"the folder, or make it writable, and go on with `{type(model).__name__}.resume({str(self.folder)!r}, env)`",
                str(self.folder),
            ) from error
        self._number += 1
        self._written_at = (model.num_timesteps, model._n_updates)
        model._last_checkpoint = path.resolve()
        self._files.remove_old(path, self.keep)
        if self.verbose:
            print(f"Checkpoint at step {model.num_timesteps:,}: {path}")

    def _seed(self) -> int:
        """:return: The seed of the episodes that begin now. It takes nothing from the generators that training draws from"""
        return int(
            np.random.SeedSequence([self._key, self.model.num_timesteps, self.model._n_updates]).generate_state(1)[0] >> 1
        )

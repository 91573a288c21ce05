"""What happens to a run when an environment fails: a clear error, and no process left behind."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm


class EnvironmentDiedError(RuntimeError):
    """A process of an environment has ended, or does not answer."""


@contextlib.contextmanager
def clear_faults(model: "GoalAlgorithm") -> Iterator[None]:
    """
    :param model: The model that learns meanwhile
    """
    with contextlib.ExitStack() as stack:
        model._while_learning = stack
        try:
            with _noticed_deaths(model.env):
                yield
        except (EOFError, OSError) as error:
            codes = _codes_of_the_dead(model.env)
            if not codes:  # it has nothing to do with processes
                error.add_note(_last_checkpoint(model))
                raise
            end_processes(model.env)
            if model._rescue is not None:
                model._rescue()
            raise EnvironmentDiedError(
                f"A process of the environments has died (exit codes {codes}; a negative one is a signal's number, and an "
                "error of the environment itself is printed above). All of them were ended. " + _last_checkpoint(model)
            ) from error
        except Exception as error:
            error.add_note(_last_checkpoint(model))
            raise


@contextlib.contextmanager
def _noticed_deaths(env: VecEnv | None) -> Iterator[None]:
    """
    Hang up on a process that has died. A process that was forked shares its end of the connection with those forked after it,
    so that waiting for its answer would never end.
    """
    processes = _in_processes(env)
    watchable = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    if processes is None or not watchable or signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
        yield
        return

    def hang_up(number: int, frame: FrameType | None) -> None:
        for process, remote in zip(processes.processes, processes.remotes, strict=True):
            if process.exitcode is not None:
                remote.close()

    signal.signal(signal.SIGCHLD, hang_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _last_checkpoint(model: "GoalAlgorithm") -> str:
    if model._last_checkpoint is None:
        return "No checkpoint was written: `callback=ResumableCheckpoint(folder)` does."
    folder = str(model._last_checkpoint.parent)
    return f"The last checkpoint is whole: go on with `{type(model).__name__}.resume({folder!r}, env)`."


def _in_processes(env: VecEnv | None) -> SubprocVecEnv | None:
    """:return: The environments if they run in processes of their own, else None"""
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env if isinstance(env, SubprocVecEnv) else None


def _codes_of_the_dead(env: VecEnv | None) -> list[int | None]:
    """:return: The exit codes of the environments' processes, None for those that live; empty if all do"""
    processes = _in_processes(env)
    if processes is None or processes.closed:
        return []
    for _ in range(20):  # one that has hung up may be about to have its code
        codes = [process.exitcode for process in processes.processes]
        if codes != [None] * len(codes):
            return codes
        time.sleep(0.05)
    return []


def end_processes(env: VecEnv | None) -> None:
    """
    End the processes of environments, of which some may be dead or hang, so that closing them would wait for ever.

    :param env: Vectorized environments; those in this process are left alone
    """
    processes = _in_processes(env)
    if processes is None or processes.closed:
        return
    for process in processes.processes:
        process.kill()
    for process in processes.processes:
        process.join()
    for remote in processes.remotes:
        remote.close()
    processes.closed = True


class StepTimeout(VecEnvWrapper):
    """
    Vectorized environments that raise an error if they do not answer in time, where they would hang for ever::

        env = StepTimeout(SubprocVecEnv([make_env] * 8), seconds=60)

    Those in processes of their own are ended. Those in this process are interrupted if they hang in Python. It uses the alarm
    of the system, so it works in the main thread, and not on Windows.

    :param venv: The vectorized environments
    :param seconds: How long a step or a reset may take
    """

    def __init__(self, venv: VecEnv, seconds: float):
        if not isinstance(venv, VecEnv):
            raise ValueError(
                f"StepTimeout needs vectorized environments, such as SubprocVecEnv([make_env] * 2), not {venv!r}."
            )
        super().__init__(venv)
        if not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
            raise ValueError(f"`seconds` must be a number above 0, not {seconds!r}.")
        if not hasattr(signal, "setitimer"):
            raise ValueError("StepTimeout needs an alarm of the system, which Windows does not have.")
        self.seconds = seconds

    @contextlib.contextmanager
    def _limited(self, what: str) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("StepTimeout works in the main thread only: leave it out, or learn there.")

        def too_late(number: int, frame: FrameType | None) -> NoReturn:
            raise EnvironmentDiedError(
                f"The environments did not answer to a {what} within {self.seconds:g} seconds. Processes of theirs were ended."
            )

        before = signal.signal(signal.SIGALRM, too_late)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            yield
        except EnvironmentDiedError:
            signal.setitimer(signal.ITIMER_REAL, 0)
            end_processes(self.venv)
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def reset(self) -> VecEnvObs:
        """:return: The first observations"""
        with self._limited("reset"):
            return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """:param actions: The actions"""
        with self._limited("step"):  # sending waits, too, if nobody reads
            self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """:return: What the environments answer"""
        with self._limited("step"):
            return self.venv.step_wait()

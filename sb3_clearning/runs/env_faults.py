"""Environments that fail: a clear error, and no process left behind."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn


class EnvironmentDiedError(RuntimeError):
    """A process of an environment has died, or does not respond."""


@contextlib.contextmanager
def explain_env_failures(env: VecEnv | None, on_death: Callable[[], None], hint: Callable[[], str]) -> Iterator[None]:
    """
    Turn the death of an environment's process into a clear error, and leave no process behind. ``on_death`` is called before
    it is raised; errors end with the ``hint`` on resuming, if there is one.
    """
    try:
        with _noticed_deaths(env):
            yield
    except Exception as error:
        codes = _codes_of_the_dead(env) if isinstance(error, (EOFError, OSError)) else []
        if not codes:  # it has nothing to do with processes
            if text := hint():
                error.add_note(text)
            raise
        end_processes(env)
        on_death()
        raise EnvironmentDiedError(
            f"An environment's process has died (exit codes {codes}: a negative one is a signal, None still runs; an error "
            f"of the environment itself is printed above). All of them were terminated. {hint()}"
        ) from error


@contextlib.contextmanager
def _noticed_deaths(env: VecEnv | None) -> Iterator[None]:
    """
    Close the connection to a process that has died. A forked process shares its end of the connection with those forked after
    it, so waiting for its answer would never end.
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


def _in_processes(env: VecEnv | None) -> SubprocVecEnv | None:
    """:return: The environments if they run in subprocesses, else None"""
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env if isinstance(env, SubprocVecEnv) else None


def _codes_of_the_dead(env: VecEnv | None) -> list[int | None]:
    """:return: The exit codes of the environments' processes, None for those alive; empty if all are"""
    processes = _in_processes(env)
    if processes is None or processes.closed:
        return []
    for _ in range(20):  # a process that has closed its connection may not have its code yet
        codes = [process.exitcode for process in processes.processes]
        if codes != [None] * len(codes):
            return codes
        time.sleep(0.05)
    return []


def end_processes(env: VecEnv | None) -> None:
    """End the processes of environments. Some may be dead or hang, so that ``close`` would wait forever."""
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
    Raises an error if vectorized environments do not respond in time, instead of waiting forever::

        env = StepTimeout(SubprocVecEnv([make_env] * 8), seconds=60)

    Subprocesses are ended. Environments in this process are interrupted if they hang in Python. It uses the system's alarm, so
    it works only in the main thread, and not on Windows.

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
            raise ValueError("StepTimeout needs the system's alarm, which Windows does not have.")
        self.seconds = seconds

    @contextlib.contextmanager
    def _limited(self, what: str) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("StepTimeout works in the main thread only: leave it out, or learn there.")

        def too_late(number: int, frame: FrameType | None) -> NoReturn:
            ended = "" if _in_processes(self.venv) is None else " Their processes were ended."
            raise EnvironmentDiedError(f"The environments did not respond to a {what} within {self.seconds:g} seconds.{ended}")

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
        """Reset within the time limit."""
        with self._limited("reset"):
            return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Send the actions within the time limit."""
        with self._limited("step"):  # sending waits, too, if nobody reads
            self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Receive the step's result within the time limit."""
        with self._limited("step"):
            return self.venv.step_wait()

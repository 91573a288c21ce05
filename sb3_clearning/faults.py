"""What happens to a run when an environment fails: a clear error, and no process left behind."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecEnvWrapper

if TYPE_CHECKING:
    from sb3_clearning.goal_algorithm import GoalAlgorithm


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
            yield
        except (EOFError, ConnectionError) as error:
            codes = end_processes(model.env)
            if codes is None:  # it has nothing to do with processes
                raise
            raise EnvironmentDiedError(
                f"A process of the environments has died (exit codes {codes}; a negative one is a signal's number, and an "
                "error of the environment itself is printed above). All of them were ended. " + _last_checkpoint(model)
            ) from error
        except Exception as error:
            error.add_note(_last_checkpoint(model))
            raise


def _last_checkpoint(model: "GoalAlgorithm") -> str:
    if model._last_checkpoint is None:
        return "No checkpoint was written: `callback=ResumableCheckpoint(folder)` does."
    folder = str(model._last_checkpoint.parent)
    return f"The last checkpoint is whole: go on with `{type(model).__name__}.resume({folder!r}, env)`."


def end_processes(env: VecEnv | None) -> list[int | None] | None:
    """
    End the processes of environments, of which some may be dead or hang, so that closing them would wait for ever.

    :param env: Vectorized environments
    :return: The exit codes that the processes had before; None if they run in this process
    """
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    if not isinstance(env, SubprocVecEnv):
        return None
    for process in env.processes:  # the dead one may be about to have its code
        if not process.is_alive() or _ended(process):
            break
    codes = [process.exitcode for process in env.processes]
    for process in env.processes:
        process.kill()
    for process in env.processes:
        process.join()
    for remote in env.remotes:
        remote.close()
    env.closed = True
    return codes


def _ended(process: multiprocessing.Process) -> bool:
    process.join(0.2)
    return not process.is_alive()

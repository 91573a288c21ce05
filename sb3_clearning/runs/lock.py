"""A lock, so that only one run at a time writes into a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


class FolderInUseError(RuntimeError):
    """Another run writes into the folder."""


@contextmanager
def run_lock(folder: Path, name: str = "run.lock", seconds: float = 0.0, error: Exception | None = None) -> Iterator[None]:
    """
    Lock a folder, which is created if it does not exist. The system releases it when the process ends, however it ends. If
    another process holds it for longer than ``seconds``, the error (by default a :class:`FolderInUseError`) is raised.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name)
    try:
        lock.acquire(timeout=seconds, poll_interval=0.2)
    except Timeout as timeout:
        raise error or FolderInUseError(
            f"Another run writes its checkpoints into {folder}. Give this run another folder, or stop the other one."
        ) from timeout
    try:
        yield
    finally:
        lock.release()

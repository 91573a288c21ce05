"""A lock, so that only one run at a time writes into a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_NAME = "run.lock"


class FolderInUseError(RuntimeError):
    """Another run writes into the folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Lock a folder. The system releases it when the process ends, however it ends."""
    lock = FileLock(folder / LOCK_NAME)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise FolderInUseError(
            f"Another run writes its checkpoints into {folder}. Give this run another folder, or stop the other one."
        ) from error
    try:
        yield
    finally:
        lock.release()

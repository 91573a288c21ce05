"""What a run's folder holds: its rows, and the checkpoints it goes on from."""

from pathlib import Path

from sb3_clearning.checkpoint import ResumableCheckpoint
from sb3_clearning.clearning import CLearning
from sb3_clearning.experiments.rows import read_rows
from sb3_clearning.experiments.suite.config import Run

ROWS = "rows.csv"
CHECKPOINTS = "checkpoints"
#: In an earlier layout a checkpoint was a folder of SB3's files, rows included. Finished runs of it are still read.
EARLIER = "step_"


def resumable(run: Run, folder: Path) -> ResumableCheckpoint:
    """
    :param run: A run
    :param folder: Its folder
    :return: The callback that writes its checkpoints
    """
    return ResumableCheckpoint(folder / CHECKPOINTS, every=run.evaluate_every)


def rows_of(folder: Path) -> list[dict[str, str]]:
    """
    :param folder: A run's folder
    :return: The rows so far. The run may be writing another one at the same time
    """
    if (folder / ROWS).exists():
        return read_rows(folder / ROWS)
    while (found := _earlier(folder)) is not None:
        rows = read_rows(found / ROWS)
        if rows:
            return rows
        # It was replaced by a newer one between the two lines above.
    return []


def put_earlier_aside(folder: Path) -> bool:
    """
    Make room in a folder whose run is not done and has the earlier layout, which can not be gone on from.

    :param folder: A run's folder
    :return: Whether it was one
    """
    found = sorted(folder.glob(f"{EARLIER}*"))
    if (folder / ROWS).exists() or not found:
        return False
    for path in found:
        path.rename(folder / f"earlier_layout_{path.name}")
    return True


def final_model(run: Run, folder: Path) -> CLearning:
    """
    :param run: A finished run of CLearning
    :param folder: Its folder
    :return: Its model
    """
    from sb3_clearning.experiments.suite.run import make_env

    earlier = _earlier(folder)
    if not resumable(run, folder).exists() and earlier is not None:
        return CLearning.load(earlier / "model.zip", device="cpu")
    return CLearning.resume(folder / CHECKPOINTS, make_env(run), device="cpu")


def _earlier(folder: Path) -> Path | None:
    # Names have leading zeros: the last one is the newest.
    return max(folder.glob(f"{EARLIER}*"), default=None)

"""Tables of measured rows: written as they come, read again to go on."""

import csv
import importlib.metadata
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def versions() -> str:
    """:return: The versions of the packages that decide a result"""
    names = ("sb3_clearning", "torch", "stable_baselines3", "gymnasium", "gymnasium-robotics", "mujoco", "numpy")
    found = []
    for name in names:
        try:
            found.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name}=?")
    return " ".join(found)


def commit() -> str:
    """:return: The commit of the checkout, with ``+`` if it has changes, or "?" outside one"""
    try:
        where = Path(__file__).parent
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=where, capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", "."], cwd=where, capture_output=True, text=True, check=True)
        return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "?"


def append_row(path: Path, fields: Sequence[str], row: dict[str, Any]) -> None:
    """
    :param path: A CSV file; it gets its header with the first row
    :param fields: The columns
    :param row: The row to append
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if new:
            writer.writeheader()
        writer.writerow(row)


def read_rows(path: Path) -> list[dict[str, str]]:
    """
    :param path: A CSV file
    :return: Its rows; none if it does not exist
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def spread(values: Sequence[float], digits: int) -> str:
    """
    :param values: The values of the seeds
    :param digits: How many digits to show
    :return: Their mean and standard deviation
    """
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"

"""What stands in every row of a table, so that its result can be traced: versions and the commit."""

import importlib.metadata
import subprocess
from pathlib import Path

from sb3_clearning import __version__


def versions() -> str:
    """:return: The versions of the packages that decide a result"""
    names = ("torch", "stable_baselines3", "gymnasium", "gymnasium-robotics", "metaworld", "dm_control", "mujoco", "numpy")
    found = [f"sb3_clearning={__version__}"]  # from a checkout that is not installed, too
    for name in names:
        try:
            found.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name}=?")
    return " ".join(found)


def commit() -> str:
    """:return: The commit of the checkout, with ``+`` if it has changes, or "?" outside one"""
    try:
        where = Path(__file__).parents[1]
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=where, capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", "."], cwd=where, capture_output=True, text=True, check=True)
        return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "?"

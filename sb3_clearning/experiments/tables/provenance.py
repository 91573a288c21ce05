"""Where a result comes from: package versions and the commit."""

import contextlib
import importlib.metadata
import subprocess
from pathlib import Path

from sb3_clearning import __version__


def versions() -> str:
    """:return: The versions of the packages that decide a result"""
    names = ("torch", "stable_baselines3", "gymnasium", "gymnasium-robotics", "metaworld", "dm_control", "mujoco", "numpy")
    found = [f"sb3_clearning={__version__}"]
    for name in names:
        try:
            found.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name}=?")
    for name in ("panda-gym", "pybullet", "highway-env"):  # few tables need them
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}={importlib.metadata.version(name)}")
    return " ".join(found)


def commit() -> str:
    """:return: The commit of the checkout, with ``+`` if it has changes, or "?" outside one"""

    def git(*arguments: str) -> str:
        where = Path(__file__).parents[2]
        return subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # A package that is installed inside another project is not part of that project's commit.
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "?"

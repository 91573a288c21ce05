"""For all tests."""

import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator

import pytest

# Read when MuJoCo is first imported, so set before any test imports a simulator.
os.environ.setdefault("MUJOCO_GL", "egl")

# Torch imports Triton with the first optimizer. Its LLVM crashes if Mesa's (EGL without a graphics card) was loaded before it.
if importlib.util.find_spec("triton") is not None:
    importlib.import_module("triton")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Finger and Jaco are dm_control's, which cannot be installed with Python 3.13."""
    if sys.version_info < (3, 13) or importlib.util.find_spec("dm_control") is not None:
        return
    for item in items:
        if "Finger-v0" in item.name or "JacoReach-v0" in item.name:
            item.add_marker(pytest.mark.skip(reason="dm_control cannot be installed with this Python"))


@pytest.fixture(autouse=True)
def _control_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: a job in a shell's background starts with the signal ignored, and we leave that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

"""What all tests of runs share."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _control_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: a job in a shell's background starts with the signal ignored, and we leave that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

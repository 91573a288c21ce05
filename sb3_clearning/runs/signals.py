"""Defers Ctrl-C and SIGTERM until the current step is complete."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


class Interrupts:
    """Remembers the first signal. A second one has its usual effect: it ends the program at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Watch for signals. Only the main thread can."""
        self.received = None
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.getsignal(number) for number in _SIGNALS}
        # A signal that is ignored (nohup) or has a handler from C stays as it is.
        ours = [number for number, handler in previous.items() if handler not in (signal.SIG_IGN, None)]

        def restore() -> None:
            for number in ours:
                signal.signal(number, previous[number])

        def remember(number: int, frame: FrameType | None) -> None:
            self.received = signal.Signals(number)
            restore()

        for number in ours:
            signal.signal(number, remember)
        try:
            yield
        finally:
            restore()

    def end(self, message: str) -> NoReturn:
        """End the run as the signal would have, after printing how to resume."""
        assert self.received is not None
        print(message, file=sys.stderr, flush=True)
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt(message)
        raise SystemExit(128 + self.received)

"""Stopping when asked: the first signal ends the run in good order, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from algorithms.console import console

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and its state can be saved as it is.

    Attributes:
        exit_code: 128 plus the signal's number, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopSignals:
    """While entered, SIGINT and SIGTERM raise `Stopped` where the run can be left.

    Inside `at_once` (sampling, evaluating: nothing is changed that could not be done again) a signal
    interrupts; elsewhere it waits for the next `check`.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._interruptible = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # signals arrive nowhere else
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell sets it for its background
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # ty: ignore[invalid-argument-type]
        self._before.clear()

    def check(self) -> None:
        """Raise `Stopped` if a signal has come."""
        if self.received is not None:
            raise Stopped(self.received)

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Let a signal interrupt the block instead of waiting for its end."""
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            console.show_cursor(True)
            os._exit(128 + number)
        self.received = number
        if self._interruptible:
            self._interruptible = False
            raise Stopped(number)
        os.write(2, b"\nstopping after this step; once more to quit at once\n")

"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import TextIO


class StopRequest:
    """Whether, and by which signal, the process was asked to end.

    Attributes:
      event: Set once a signal has come.
      signal_number: Which one; None before.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal_number: int | None = None

    @property
    def exit_code(self) -> int:
        """What the shell expects of a process that a signal has ended."""
        return 128 + (self.signal_number or signal.SIGINT)


@contextlib.contextmanager
def stop_on_signal(terminal: TextIO) -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM into `request.event`, the second into an immediate exit.

    Args:
      terminal: Where the user is told what is going on.
    """
    request = StopRequest()

    def handle(number: int, frame: object) -> None:
        del frame
        if request.event.is_set():
            os._exit(128 + number)
        request.signal_number = number
        request.event.set()
        text = f"\n{signal.Signals(number).name}: saving; once more to exit without saving\n"
        # The signal may have come while the stream was being written to, which its buffer does
        # not allow a second time; the descriptor does.
        with contextlib.suppress(OSError):  # A closed terminal does not keep a run from saving.
            os.write(terminal.fileno(), text.encode())

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

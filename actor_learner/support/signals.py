"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Callable, TextIO

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether, and by which signal, the process was asked to end.

    Attributes:
      event: Set once a signal has come.
      signal_number: Which one; None before.
      say: Tells the user what happens, called in a thread; None writes to the terminal. A live view
        sets it: text that it does not know of is overwritten by its next picture.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal_number: int | None = None
        self.say: Callable[[str], None] | None = None

    @property
    def exit_code(self) -> int:
        """What the shell expects of a process that a signal has ended."""
        return 128 + (self.signal_number or signal.SIGINT)


@contextlib.contextmanager
def stop_on_signal(
    terminal: TextIO,
    *,
    exits: bool = True,
    words: str = "saving; once more to exit without saving",
    at_once: Callable[[int], None] | None = None,
) -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM into `request.event`, the second into an immediate exit.

    Python runs signal handlers in the main thread, between two bytecodes: not while TensorFlow
    computes or waits. The interpreter writes the signal's number to a pipe at once, though, and a
    thread reads it there.

    Args:
      terminal: Where the user is told what happens.
      exits: Whether the second signal ends the process. If not, which suits a notebook, it raises
        KeyboardInterrupt in the main thread.
      words: What the first signal does.
      at_once: Given the second signal, before it ends the process; runs in a thread.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Signals are the main thread's.
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        while True:
            received = os.read(reading, 1)
            if not received:
                return  # The writing end was closed: the command is over.
            number = received[0]
            if number not in _SIGNALS:
                continue
            if request.event.is_set():
                if exits:
                    try:
                        if at_once is not None:
                            at_once(number)
                    finally:
                        os._exit(128 + number)
                continue
            request.signal_number = number
            request.event.set()
            text = f"{signal.Signals(number).name}: {words}"
            # A closed terminal keeps no run from saving; a notebook's has no descriptor.
            with contextlib.suppress(OSError, ValueError):
                if request.say is not None:
                    request.say(text)
                elif exits:
                    os.write(terminal.fileno(), f"\n{text}\n".encode())
                else:
                    print(f"\n{text}\n", file=terminal, flush=True)

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    previous_descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    received_signals = itertools.count(1)

    def handle(*_: object) -> None:
        if next(received_signals) > 1 and not exits:
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        signal.set_wakeup_fd(previous_descriptor)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(writing)
        watcher.join(timeout=5.0)
        os.close(reading)

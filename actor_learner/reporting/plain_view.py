"""The live view where there is no terminal: one line now and then, fit for a log or a pipe."""

from __future__ import annotations

import time
from typing import Callable, TextIO

from actor_learner.reporting import logger as logger_lib
from actor_learner.reporting import progress
from actor_learner.support import formatting


class PlainView:
    """Prints the first row at once, then at most one line every `interval_seconds`.

    What arrives in between is merged into the next line; `close` prints a line that is still owed,
    so the last state is always shown. Writes to `stream` only, which stays open.
    """

    def __init__(
        self,
        stream: TextIO,
        total_environment_steps: int | None,
        title: str,
        *,
        best: logger_lib.Row | None = None,
        interval_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream = stream
        self._title = title
        self._progress = progress.Progress(total_environment_steps, best=best)
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._printed_at: float | None = None
        self._owed = False

    def start(self) -> None:
        self.message(self._title)

    def write(self, row: logger_lib.Row) -> None:
        self._progress.update(row)
        self._owed = True
        now = self._clock()
        if self._printed_at is None or now - self._printed_at >= self._interval_seconds:
            self._printed_at = now
            self._print_row()

    def message(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        # "±" on an ASCII stream must not end a training run.
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()

    def close(self) -> None:
        if self._owed:
            self._print_row()

    def _print_row(self) -> None:
        self._owed = False
        self.message(_line(self._progress))


def _line(state: progress.Progress) -> str:
    parts = []
    if "seconds" in state.latest:
        parts.append(formatting.duration(state.latest["seconds"]))
    if state.fraction is not None:
        part = f"{state.fraction:.0%} of {formatting.count(state.total_environment_steps)}"
        if state.seconds_left:
            part += f", {formatting.duration(state.seconds_left)} left"
        parts.append(part)
    parts.extend(f"{name} {value}" for name, value in state.metrics())
    return " | ".join(parts)

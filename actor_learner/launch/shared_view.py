"""The view of a supervisor that has no terminal: kept for whoever asks to see it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from absl import logging

from actor_learner.launch import run_jobs, view

_KEPT_MESSAGES = 1_000
RECENT_MESSAGES = 20
"""How many of the messages so far one sees who has seen none."""


class Look(NamedTuple):
    """What is to be seen at one moment.

    Attributes:
      rows: Of all jobs.
      messages: Those that the viewer has not seen.
      seen: To be given with the next request: whose messages were seen, and how many.
      ending: How the run has ended; None before.
    """

    rows: tuple[view.JobRow, ...]
    messages: list[str]
    seen: tuple[str, int]
    ending: run_jobs.Ending | None


class SharedView:
    """Keeps rows and messages; see `view.JobsView` for what a supervisor calls.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id = uuid.uuid4().hex
        self._rows: tuple[view.JobRow, ...] = ()
        self._messages: list[str] = []
        self._forgotten = 0
        self._ending: run_jobs.Ending | None = None

    def start(self) -> None:
        """Nothing is shown here."""

    def update(self, rows: Sequence[view.JobRow]) -> None:
        self._rows = tuple(rows)

    def message(self, text: str) -> None:
        logging.info("%s", text)
        with self._lock:
            self._messages.append(text)
            extra = len(self._messages) - _KEPT_MESSAGES
            if extra > 0:
                del self._messages[:extra]
                self._forgotten += extra

    def close(self) -> None:
        """Rows and messages stay."""

    def end(self, ending: run_jobs.Ending) -> None:
        """Says how the run has ended; nothing follows."""
        with self._lock:
            self._ending = ending

    def look(self, seen: tuple[str, int] | None) -> Look:
        """What is to be seen now.

        Args:
          seen: As the last `Look` says; None for a viewer who has seen nothing.
        """
        with self._lock:
            end = self._forgotten + len(self._messages)
            # A viewer may come from a predecessor that was lost, and has its own count.
            known = seen is not None and seen[0] == self._id
            first = max(0, (seen[1] if known else end - RECENT_MESSAGES) - self._forgotten)
            return Look(self._rows, self._messages[first:], (self._id, end), self._ending)

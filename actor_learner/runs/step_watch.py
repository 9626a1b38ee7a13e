"""Tells an environment that is slow from one that hangs, by how long its steps take."""

from __future__ import annotations

import time
from typing import Any, Callable

PATIENCE = 10.0
"""A step may take this many times as long as the longest one before it."""


class StepWatch:
    """Notes when the collecting thread took its latest step, and how long its longest one took.

    An observer of the actor. A step of all lanes takes from microseconds to minutes, for example
    if a simulator loads its next level. It counts as hung after `timeout_seconds`, or after ten
    times the longest step so far, whichever is more. Written by one thread, read by others.

    Args:
      timeout_seconds: A shorter step never counts as hung.
      clock: Returns seconds.
    """

    def __init__(self, timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._latest = clock()
        self._longest = 0.0

    def now(self) -> float:
        """The time by the watch's clock, in seconds."""
        return self._clock()

    def begin_turn(self) -> None:
        """Restarts the watch: between turns no step is expected."""
        self._latest = self._clock()

    def __call__(self, trajectory: Any) -> None:
        del trajectory
        now = self._clock()
        self._longest = max(self._longest, now - self._latest)
        self._latest = now

    @property
    def longest_seconds(self) -> float:
        """Duration of the longest step, in seconds; 0 before the first."""
        return self._longest

    def overdue_seconds(self, since: float) -> float | None:
        """Returns for how long nothing has happened, if that is too long; else None.

        Args:
          since: `now()` when somebody began to wait; silence before that does not count.
        """
        silent = self._clock() - max(self._latest, since)
        return silent if silent > max(self._timeout_seconds, PATIENCE * self._longest) else None

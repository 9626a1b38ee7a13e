"""What a full disk keeps from being written: named, tried again, and told until it is written.

Whoever writes something that a run needs does it by way of the ledger:

```python
path = unsaved.ledger().attempt("the checkpoint", save, where=directory)
```

On a full disk `attempt` returns None instead of raising, and the ledger keeps `save` for later:
`retry_due` tries again every few seconds, and `settle` for a while at the end of a run. Views show
`summary()` as long as anything is unsaved. Any other error is raised as ever.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, TypeVar

from absl import logging

from actor_learner.support import configurable, disk_space, errors, formatting

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_SETTLE_SECONDS = 0.5

LATER = object()
"""What a `write` returns that has met another obstacle, and is to be called again later."""


@configurable.register
def full_disk(final_wait_seconds: float = 30.0) -> float:
    """How long the end of a run waits for room on a full disk.

    Args:
      final_wait_seconds: For what is not saved by then; it is lost afterwards, and the exit code
        is 1. Should be shorter than `--grace_seconds` of `up`, after which jobs are killed.

    Raises:
      errors.ConfigError: If it is negative.
    """
    if not final_wait_seconds >= 0:
        raise errors.ConfigError(
            f"full_disk.final_wait_seconds must be at least 0, got {final_wait_seconds!r}"
        )
    return final_wait_seconds


@dataclasses.dataclass
class Entry:
    """One thing that is not saved.

    Attributes:
      what: Its name: "the checkpoint".
      why: The error, in one line.
      since: When it was first attempted in vain.
      pause: Seconds between the last attempt and the next.
      due: When the next attempt is due.
      retry: Writes it; None if its owner comes back by itself.
      where: A path on the file system that is full.
      detail: Returns more about it, such as how much waits; None for nothing.
    """

    what: str
    why: str
    since: float
    pause: float
    due: float
    retry: Callable[[], Any] | None
    where: str | os.PathLike | None
    detail: Callable[[], str] | None

    def __str__(self) -> str:
        detail = self.detail() if self.detail is not None else ""
        return f"{self.what} ({detail})" if detail else self.what


class Ledger:
    """Keeps account of what is not saved. May be used from several threads.

    Args:
      clock: Seconds.

    Attributes:
      say: Takes a line for the user when something could not be saved, and when it is at last.
      final_wait_seconds: How long `settle` waits.
      thread: The one that `retry_due` is for; calls from others do nothing. None: all may.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.say: Callable[[str], None] = lambda line: None
        self.final_wait_seconds = 30.0
        self.thread: threading.Thread | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._retrying = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._lost: dict[str, int] = {}

    def attempt(
        self,
        what: str,
        write: Callable[[], T],
        *,
        where: str | os.PathLike | None = None,
        retry: bool | Callable[[], Any] = True,
        if_due: bool = False,
        detail: Callable[[], str] | None = None,
    ) -> T | None:
        """Calls `write`; on a full disk notes that `what` is not saved, and returns None.

        `write` must remove what it has left half-done before it raises.

        Args:
          what: Its name to the user; a second attempt of the same name replaces the first.
          write: Writes it.
          where: A path on the file system it is written to.
          retry: Whether `retry_due` and `settle` are to call `write` again, or what they are to
            call instead; False if the caller comes back by itself.
          if_due: Leave it for now if it was attempted in vain moments ago: for callers that come
            often.
          detail: Returns more about it for the user.
        """
        if if_due and not self.is_due(what):
            return None
        try:
            result = write()
            if result is LATER:
                self._postpone(what)
                return None
        except Exception as error:
            if not disk_space.is_out_of_space(error, where):
                raise
            retry = write if retry is True else retry or None
            self.note(what, error, where=where, retry=retry, detail=detail)
            return None
        self.clear(what)
        return result

    def note(
        self,
        what: str,
        error: BaseException,
        *,
        where: str | os.PathLike | None = None,
        retry: Callable[[], Any] | None = None,
        detail: Callable[[], str] | None = None,
    ) -> None:
        """Notes that `what` could not be saved, and when it is worth another attempt."""
        now = self._clock()
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        with self._lock:
            known = self._entries.get(what)
            pause = _FIRST_PAUSE if known is None else min(2 * known.pause, _LONGEST_PAUSE)
            since = now if known is None else known.since
            entry = Entry(what, why, since, pause, now + pause, retry, where, detail)
            self._entries[what] = entry
        logging.error("NOT SAVED, the disk is full: %s: %s", entry, why)
        if known is None:
            place = f" ({os.fspath(where)})" if where is not None else ""
            self.say(f"NOT SAVED: {entry}: no space left on the disk{place}; it is tried again")

    def clear(self, what: str) -> None:
        """Notes that `what` is saved, or is nobody's concern any more."""
        with self._lock:
            entry = self._entries.pop(what, None)
        if entry is not None:
            seconds = formatting.duration(self._clock() - entry.since)
            logging.info("Saved at last, after %s: %s", seconds, what)
            self.say(f"saved at last, after {seconds}: {what}")

    def lose(self, what: str, number: int) -> None:
        """Notes that so many of `what`, "rows of metrics.csv", are lost for good."""
        with self._lock:
            first = what not in self._lost
            self._lost[what] = self._lost.get(what, 0) + number
        if first:
            logging.error("LOST, the disk is full: %s", what)
            self.say(f"LOST: {what}: no space left on the disk")

    def _postpone(self, what: str) -> None:
        with self._lock:
            entry = self._entries.get(what)
            if entry is not None:
                entry.due = self._clock() + entry.pause

    def is_due(self, what: str) -> bool:
        """Whether `what` is worth an attempt: it is not known, or its pause is over."""
        with self._lock:
            entry = self._entries.get(what)
        return entry is None or self._clock() >= entry.due

    @property
    def entries(self) -> list[Entry]:
        """What is not saved, the first of all first."""
        with self._lock:
            return list(self._entries.values())

    @property
    def is_settled(self) -> bool:
        """Whether everything is saved; costs nothing to ask."""
        return not self._entries

    def retry_due(self) -> None:
        """Attempts again what is due; for whoever works in turns, between two of them."""
        if self._entries and self.thread in (None, threading.current_thread()):
            now = self._clock()
            self._retry([entry for entry in self.entries if now >= entry.due])

    def settle(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Tries to save everything, for `final_wait_seconds` at most; says what it waits for.

        Args:
          give_up: Ends the wait once it returns True.

        Returns:
          Whether everything is saved.
        """
        self._retry(self.entries)
        seconds = self.final_wait_seconds
        if self._can_be_saved() and seconds:
            self.say(f"waiting up to {seconds:g} s for room on the disk. {self.summary()}")
        deadline = self._clock() + seconds
        while self._can_be_saved() and self._clock() < deadline and not give_up():
            time.sleep(min(_SETTLE_SECONDS, max(0.0, deadline - self._clock())))
            self._retry(self.entries)
        return not self._entries

    def _can_be_saved(self) -> bool:
        return any(entry.retry is not None for entry in self.entries)

    def summary(self) -> str:
        """One line for a view: `NOT SAVED: the checkpoint (disk full for 12 s)`; "" if all is."""
        entries = self.entries
        if not entries:
            return ""
        seconds = self._clock() - min(entry.since for entry in entries)
        names = ", ".join(map(str, entries))
        return f"NOT SAVED: {names} (disk full for {formatting.duration(seconds)})"

    def closing_lines(self) -> list[str]:
        """What to tell the user at the end: what is not saved, and what was lost on the way."""
        lines = [f"NOT SAVED:    {entry}: {entry.why}" for entry in self.entries]
        with self._lock:
            lost = list(self._lost.items())
        return lines + [
            f"LOST:         {number:,} {what}: the disk was full" for what, number in lost
        ]

    def _retry(self, entries: list[Entry]) -> None:
        if not self._retrying.acquire(blocking=False):
            return  # Another thread is at it.
        try:
            for entry in entries:
                if entry.retry is not None and self._entries.get(entry.what) is entry:
                    self.attempt(
                        entry.what,
                        lambda: self._write_if_there_is_room(entry),  # noqa: B023
                        where=entry.where,
                        retry=entry.retry,
                        detail=entry.detail,
                    )
        finally:
            self._retrying.release()

    @staticmethod
    def _write_if_there_is_room(entry: Entry) -> Any:
        """Spares the work of those that gather much before they find that nothing fits."""
        if entry.where is not None and not disk_space.has_room(entry.where):
            raise disk_space.full(entry.where)
        return entry.retry()


_ledger = Ledger()


def ledger() -> Ledger:
    """The ledger of this process, or of the `scope` it is in."""
    return _ledger


@contextlib.contextmanager
def scope() -> Iterator[Ledger]:
    """Begins with an empty ledger, for all threads, and goes back to the former one at the end."""
    global _ledger
    before, _ledger = _ledger, Ledger()
    try:
        yield _ledger
    finally:
        _ledger = before

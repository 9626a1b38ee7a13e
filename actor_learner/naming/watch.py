"""What has happened to names since the last look."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple

from absl import logging

from actor_learner.naming import entries, name_errors

ADDED, CHANGED, REMOVED = "added", "changed", "removed"


class Event(NamedTuple):
    """One change.

    Attributes:
      kind: `ADDED`, `CHANGED` (another value, or the same added by another owner) or `REMOVED`
        (deleted, or run out).
      name: The name.
      value: Its value; of a removed name the last one that was seen.
    """

    kind: str
    name: str
    value: str


def changes(before: dict[str, entries.Entry], after: dict[str, entries.Entry]) -> list[Event]:
    """The events that lead from one look to the next: removals first, each kind by name."""
    events = [
        Event(REMOVED, name, before[name].value) for name in sorted(before.keys() - after.keys())
    ]
    for name, entry in sorted(after.items()):
        if name not in before:
            events.append(Event(ADDED, name, entry.value))
        elif (entry.value, entry.owner) != (before[name].value, before[name].owner):
            events.append(Event(CHANGED, name, entry.value))
    return events


class Watch:
    """Looks at names again and again; made by `NameRegistry.watch`.

    The first look reports what is there already as added, so that nothing is missed between
    finding and watching. What comes and goes between two looks is not seen.

    Without a callback it is read by one thread, with `poll`, `events` or as an iterator. With one,
    a thread of its own calls it for each event; an exception of the callback ends the watch and is
    raised by `check` and `close`.

    Args:
      look: Returns what is there now.
      pause: Blocks up to so many seconds, less if something may have changed.
      poll_seconds: The longest time between two looks.
      callback: Called with each event.
    """

    def __init__(
        self,
        look: Callable[[], dict[str, entries.Entry]],
        pause: Callable[[float], None],
        poll_seconds: float,
        callback: Callable[[Event], None] | None = None,
    ) -> None:
        self._look = look
        self._pause = pause
        self._poll_seconds = poll_seconds
        self._callback = callback
        self._seen: dict[str, entries.Entry] = {}
        self._closed = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        if callback is not None:
            self._thread = threading.Thread(target=self._run, name="name-watch", daemon=True)
            self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the watch has ended."""
        return self._closed.is_set()

    def poll(self) -> list[Event]:
        """What has changed since the last look; does not wait.

        Raises:
          name_errors.RegistryUnavailableError: If the registry does not answer. Nothing is lost:
            the next look reports it.
        """
        seen = self._look()
        events = changes(self._seen, seen)
        self._seen = seen
        return events

    def events(self, timeout: float) -> list[Event]:
        """Waits up to `timeout` seconds for changes; empty if there were none, or after `close`.

        Raises:
          name_errors.RegistryUnavailableError: If the registry does not answer.
        """
        deadline = time.monotonic() + timeout
        while not self._closed.is_set():
            try:
                found = self.poll()
            except name_errors.NamingError:
                if self._closed.is_set():
                    return []  # The registry was closed during this look.
                raise
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            self._pause(min(left, self._poll_seconds))
        return []

    def __iter__(self) -> Iterator[Event]:
        """Yields events as they come, until the watch or its registry is closed."""
        while not self._closed.is_set():
            yield from self.events(self._poll_seconds)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def check(self) -> None:
        """Raises what the callback has raised, if anything."""
        if self._failure is not None:
            raise self._failure

    def close(self, timeout: float = 10.0) -> None:
        """Ends the watch; may be called twice, and from the callback.

        Waits up to `timeout` seconds for a callback under way.

        Raises:
          Whatever the callback has raised.
        """
        self.stop(timeout)
        self.check()

    def stop(self, timeout: float = 10.0) -> None:
        """Ends the watch without raising what the callback has raised."""
        self._closed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001 - kept for `check`.
            logging.exception("A watch over names has ended.")
            self._failure = error
            self._closed.set()

    def _follow(self) -> None:
        unavailable = False
        while not self._closed.is_set():
            try:
                events = self.events(self._poll_seconds)
            except name_errors.RegistryUnavailableError as error:
                # Said once per outage: a watch may outlive a restart of the registry.
                if not unavailable:
                    logging.warning("A watch waits for its registry: %s", error)
                unavailable = True
                self._closed.wait(self._poll_seconds)
                continue
            unavailable = False
            for event in events:
                if self._closed.is_set():
                    return
                self._callback(event)

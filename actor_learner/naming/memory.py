"""A name registry within one process, for tests and for jobs that are threads."""

from __future__ import annotations

import threading
import time
from typing import Callable

from actor_learner.naming import entries, registry


class _Space:
    """The entries that registries of one `space` share, with the times at which they expire."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.revision = 0
        self.entries: dict[str, tuple[entries.Entry, float]] = {}


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


class MemoryRegistry(registry.NameRegistry):
    """Names in this process; objects with the same `space` share them.

    Args:
      space: Tells several sets of names apart; they live as long as the process.
      clock: Returns seconds, by which names expire.
      **options: Of `NameRegistry`: who, poll_seconds.
    """

    def __init__(
        self, space: str = "default", *, clock: Callable[[], float] = time.monotonic, **options
    ) -> None:
        super().__init__(**options)
        self._name = space
        self._clock = clock
        with _spaces_lock:
            self._space = _spaces.setdefault(space, _Space())

    def __str__(self) -> str:
        return f"memory registry {self._name!r}"

    def _create(self, name: str, entry: entries.Entry, replace: bool) -> bool:
        with self._space.changed:
            if not replace and self._live(name) is not None:
                return False
            self._put(name, entry)
            self._announce()
            return True

    def _read(self, name: str) -> entries.Entry | None:
        with self._space.changed:
            return self._live(name)

    def _renew(self, name: str, owner: str, value: str | None) -> entries.Outcome:
        with self._space.changed:
            entry = self._live(name)
            outcome = entries.ownership(entry, owner)
            if outcome is entries.Outcome.DONE:
                self._put(name, entry if value is None else entry._replace(value=value))
                if value is not None:
                    self._announce()
            return outcome

    def _remove(self, name: str, owner: str) -> entries.Outcome:
        with self._space.changed:
            outcome = entries.ownership(self._live(name), owner)
            if outcome is entries.Outcome.DONE:
                self._drop(name)
            return outcome

    def _take(self, name: str) -> entries.Entry | None:
        with self._space.changed:
            entry = self._live(name)
            if entry is not None:
                self._drop(name)
            return entry

    def _scan(self, prefix: str) -> dict[str, entries.Entry]:
        with self._space.changed:
            names = [name for name in self._space.entries if entries.is_beneath(name, prefix)]
            found = {name: self._live(name) for name in names}
            return {name: entry for name, entry in found.items() if entry is not None}

    def _clear(self, prefix: str) -> int:
        with self._space.changed:
            found = self._scan(prefix)
            for name in found:
                self._drop(name)
            return len(found)

    def _revision(self) -> int:
        with self._space.changed:
            return self._space.revision

    def _pause(self, revision: int, seconds: float) -> None:
        with self._space.changed:
            self._space.changed.wait_for(
                lambda: self._space.revision != revision or self._closed.is_set(), seconds
            )

    def _disconnect(self) -> None:
        with self._space.changed:
            self._space.changed.notify_all()

    # Called with the lock held, which is reentrant.

    def _live(self, name: str) -> entries.Entry | None:
        entry, end = self._space.entries.get(name, (None, 0.0))
        if entry is None:
            return None
        if self._clock() >= end:
            del self._space.entries[name]
            return None
        return entry

    def _put(self, name: str, entry: entries.Entry) -> None:
        end = float("inf") if entry.ttl is None else self._clock() + entry.ttl
        self._space.entries[name] = (entry, end)

    def _drop(self, name: str) -> None:
        del self._space.entries[name]
        self._announce()

    def _announce(self) -> None:
        self._space.revision += 1
        self._space.changed.notify_all()

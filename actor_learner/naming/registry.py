"""`NameRegistry`: how jobs find one another by name.

A replay server leaves its address, whoever needs it waits for it:

    with connect.connect("file:///shared/registry", who="replay-0") as names:
        names.add("run/replay/0", "10.0.0.7:8008", ttl=10, keep_alive=True)
        serve()                        # The name is gone when this block, or the process, ends.

    address = connect.connect("file:///shared/registry", who="actor-3").wait("run/replay/0", 60)
"""

from __future__ import annotations

import abc
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Callable

from absl import logging

from actor_learner.naming import entries, messages, name_errors
from actor_learner.naming import keep_alive as keep_alive_lib
from actor_learner.naming import watch as watch_lib

NamingError = name_errors.NamingError
InvalidNameError = name_errors.InvalidNameError
NameTakenError = name_errors.NameTakenError
NameNotFoundError = name_errors.NameNotFoundError
NotOwnerError = name_errors.NotOwnerError
NameWaitTimeoutError = name_errors.NameWaitTimeoutError
NameLostError = name_errors.NameLostError
RegistryUnavailableError = name_errors.RegistryUnavailableError
Watch = watch_lib.Watch
Event = watch_lib.Event
ADDED, CHANGED, REMOVED = watch_lib.ADDED, watch_lib.CHANGED, watch_lib.REMOVED

_FIRST_PAUSE = 0.01
_CLOSE_SECONDS = 10.0


class NameRegistry(abc.ABC):
    """Names and their values, shared by the jobs of one or many runs.

    Names are paths (`run/jobs/actor/0`), values short strings. A name may lie beneath another.

    Each registry object is an owner with a token of its own, left with all it adds. Only it may
    `touch`, `update` or `delete` what it added, so that a job that was replaced cannot, by
    accident, disturb its successor. Whoever means to interfere has `add(..., replace=True)`,
    `take` and `clear_subtree`.

    A name with a time to live (`ttl`) is gone so many seconds after it was last added, touched or
    updated. It may then be added by anybody; of several that try at once exactly one succeeds.

    May be used from several threads.

    Attributes:
      who: How error messages call this end, e.g. `actor-3`.
      owner: The token, unique among all registry objects: `<who>@<host>:<process>#<random>`.
    """

    def __init__(
        self,
        *,
        who: str | None = None,
        on_lost: Callable[[NameLostError], None] | None = None,
        poll_seconds: float = 0.2,
    ) -> None:
        """Makes an owner.

        Args:
          who: What to call it; None for a name made of the process's number.
          on_lost: Called from a background thread when a name that was to be kept alive is found
            to be gone or another's. It may `add` it again.
          poll_seconds: The longest time between two looks of `wait` and `watch`.
        """
        self.who = who or f"process {os.getpid()}"
        self.owner = _token(who)
        self._poll_seconds = poll_seconds
        self._closed = threading.Event()
        self._watches: set[Watch] = set()
        self._watches_lock = threading.Lock()
        self._keep_alive = keep_alive_lib.KeepAlive(
            lambda name: self._renew(name, self.owner, None), on_lost
        )

    def add(
        self,
        name: str,
        value: str,
        *,
        ttl: float | None = None,
        replace: bool = False,
        keep_alive: bool = False,
    ) -> None:
        """Adds a name.

        Args:
          name: The name.
          value: What others shall find.
          ttl: Seconds until the name vanishes unless refreshed; None for never.
          replace: Take the name over from whoever has it, this registry object included. The
            former owner can no longer refresh or delete it, and is told so.
          keep_alive: Refresh it in the background until it is deleted or this is closed. Needs a
            `ttl`, which is then the time until others notice that this process died.

        Raises:
          NameTakenError: If it is there already and `replace` is false.
          InvalidNameError: If name, value or ttl cannot be used.
          RegistryUnavailableError: If the registry does not answer.
        """
        self._require_open()
        entries.check_name(name)
        entry = entries.Entry(
            entries.check_value(name, value), self.owner, entries.check_ttl(name, ttl)
        )
        if keep_alive and ttl is None:
            raise InvalidNameError(
                f"{name!r} cannot be kept alive without a ttl: give one, or leave out keep_alive"
            )
        if not self._create(name, entry, replace):
            holder = self._read(name)
            raise NameTakenError(
                messages.taken(self.who, name, str(self), holder),
                name=name,
                holder=holder.owner if holder else None,
            )
        if keep_alive:
            self._keep_alive.keep(name, ttl)
        else:
            self._keep_alive.forget(name)

    def get(self, name: str) -> str:
        """The value of a name.

        Raises:
          NameNotFoundError: If it is not there.
        """
        self._require_open()
        entry = self._read(entries.check_name(name))
        if entry is None:
            near = messages.neighbours(name, self._scan)
            raise NameNotFoundError(f"there is no name {name!r} in {self}; {near}")
        return entry.value

    def wait(self, name: str, timeout: float) -> str:
        """The value of a name, once it is there; blocks up to `timeout` seconds.

        A registry that does not answer meanwhile is tried again until then.

        Raises:
          NameWaitTimeoutError: If nobody has added it by then. Says which names there are.
        """
        entries.check_name(name)
        deadline = time.monotonic() + timeout
        waiting = f"{self.who} has waited {timeout:g} s for the name {name!r} in {self}"
        pause = _FIRST_PAUSE
        while True:
            self._require_open()
            revision = self._revision()
            left = deadline - time.monotonic()
            try:
                entry = self._read(name)
                if entry is not None:
                    return entry.value
                if left <= 0:
                    near = messages.neighbours(name, self._scan)
                    raise NameWaitTimeoutError(
                        f"{waiting}, and nobody has added it; {near}. Is the job that adds it "
                        "running, with this registry?"
                    )
            except RegistryUnavailableError as error:
                if left <= 0:
                    raise NameWaitTimeoutError(
                        f"{waiting}, which does not answer: {error}"
                    ) from error
            self._pause(revision, min(left, pause))
            pause = min(2 * pause, self._poll_seconds)

    def touch(self, name: str) -> None:
        """Refreshes a name of ours: it lives for another ttl. Keep-alive does this by itself.

        Raises:
          NameNotFoundError: If it has vanished.
          NotOwnerError: If it is somebody else's.
        """
        self._require_open()
        self._require_done(name, self._renew(entries.check_name(name), self.owner, None), "refresh")

    def update(self, name: str, value: str) -> None:
        """Changes the value of a name of ours, and refreshes it.

        Raises:
          NameNotFoundError: If it has vanished.
          NotOwnerError: If it is somebody else's.
        """
        self._require_open()
        entries.check_value(name, value)
        self._require_done(name, self._renew(entries.check_name(name), self.owner, value), "change")

    def delete(self, name: str) -> None:
        """Removes a name of ours.

        Raises:
          NameNotFoundError: If it has vanished.
          NotOwnerError: If it is somebody else's; `take` and `clear_subtree` remove those too.
        """
        self._require_open()
        entries.check_name(name)
        self._keep_alive.forget(name)
        self._require_done(name, self._remove(name, self.owner), "delete")

    def take(self, name: str) -> str:
        """Removes a name, whoever added it, and returns its value; of several one gets it.

        For letter boxes: one adds a message, the other takes it.

        Raises:
          NameNotFoundError: If it is not there.
        """
        self._require_open()
        entry = self._take(entries.check_name(name))
        if entry is None:
            raise NameNotFoundError(f"there is no name {name!r} to take in {self}")
        if entry.owner == self.owner:
            self._keep_alive.forget(name)
        return entry.value

    def find_subtree(self, prefix: str = "") -> dict[str, str]:
        """Names and values of `prefix` itself and all beneath it, by name; all of them for ""."""
        self._require_open()
        found = self._scan(entries.check_prefix(prefix))
        return {name: found[name].value for name in sorted(found)}

    def clear_subtree(self, prefix: str = "") -> int:
        """Removes `prefix` itself and all beneath it, whoever added them; returns how many.

        What is added meanwhile may or may not be removed.
        """
        self._require_open()
        entries.check_prefix(prefix)
        self._keep_alive.forget_subtree(prefix)
        return self._clear(prefix)

    def watch(
        self,
        names: str | Iterable[str] = "",
        callback: Callable[[Event], None] | None = None,
        *,
        poll_seconds: float | None = None,
    ) -> Watch:
        """Follows what happens to names.

        Args:
          names: A prefix, for itself and all beneath it, or several single names.
          callback: Called with each event, from a thread of the watch; None: read the `Watch`.
          poll_seconds: The longest time between two looks, if not this registry's own.

        Returns:
          The watch, to be closed; it ends with this registry at the latest.
        """
        self._require_open()
        if isinstance(names, str):
            prefix = entries.check_prefix(names)
            look = lambda: self._scan(prefix)  # noqa: E731
        else:
            wanted = [entries.check_name(name) for name in names]
            look = lambda: self._read_all(wanted)  # noqa: E731
        seen: list[int] = [self._revision()]

        def open_look() -> dict[str, entries.Entry]:
            self._require_open()
            seen[0] = self._revision()  # Before looking, so that no change falls in between.
            return look()

        made = Watch(
            open_look,
            lambda seconds: self._pause(seen[0], seconds),
            self._poll_seconds if poll_seconds is None else poll_seconds,
            callback,
        )
        with self._watches_lock:
            self._watches = {watch for watch in self._watches if not watch.closed} | {made}
        return made

    def check(self) -> None:
        """Raises if a name that was to be kept alive has been lost.

        Raises:
          NameLostError: Until the name is added again or deleted.
        """
        self._keep_alive.check()

    def close(self) -> None:
        """Ends keep-alive and watches, and removes the names that were kept alive.

        So a job that ends in order frees its names at once. Others stay. May be called twice.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        kept = self._keep_alive.stop(_CLOSE_SECONDS)
        with self._watches_lock:
            watches, self._watches = self._watches, set()
        for watch in watches:
            watch.stop()
        try:
            for name in kept:
                self._remove(name, self.owner)
        except RegistryUnavailableError as error:
            logging.warning("%s are left to run out: %s", ", ".join(kept), error)
        finally:
            self._disconnect()

    def __enter__(self) -> NameRegistry:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abc.abstractmethod
    def __str__(self) -> str:
        """What and where it is, for messages."""

    # What a backend writes. Names and values have been checked; expired entries are absent.

    @abc.abstractmethod
    def _create(self, name: str, entry: entries.Entry, replace: bool) -> bool:
        """Puts `entry` there; False if there is one already and `replace` is false. Atomic."""

    @abc.abstractmethod
    def _read(self, name: str) -> entries.Entry | None:
        """What is there now."""

    @abc.abstractmethod
    def _renew(self, name: str, owner: str, value: str | None) -> entries.Outcome:
        """Gives an entry of `owner` another ttl, and `value` if it is not None. Atomic."""

    @abc.abstractmethod
    def _remove(self, name: str, owner: str) -> entries.Outcome:
        """Removes an entry of `owner`. Atomic."""

    @abc.abstractmethod
    def _take(self, name: str) -> entries.Entry | None:
        """Removes and returns what is there. Atomic."""

    @abc.abstractmethod
    def _scan(self, prefix: str) -> dict[str, entries.Entry]:
        """All entries of which `entries.is_beneath(name, prefix)`."""

    @abc.abstractmethod
    def _clear(self, prefix: str) -> int:
        """Removes those."""

    @abc.abstractmethod
    def _disconnect(self) -> None:
        """Frees what the backend holds; the last call."""

    def _revision(self) -> int:
        """A number that changes with every entry, for backends that can tell."""
        return 0

    def _pause(self, revision: int, seconds: float) -> None:
        """Blocks up to `seconds`, less if `_revision()` is no longer `revision` or on `close`."""
        self._closed.wait(seconds)

    # Shared by the above.

    def _read_all(self, names: Iterable[str]) -> dict[str, entries.Entry]:
        found = {name: self._read(name) for name in names}
        return {name: entry for name, entry in found.items() if entry is not None}

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise NamingError(f"{self} was closed by {self.who} and cannot be used any more")

    def _require_done(self, name: str, outcome: entries.Outcome, verb: str) -> None:
        if outcome is entries.Outcome.ABSENT:
            raise NameNotFoundError(messages.absent(self.who, name, str(self), verb))
        if outcome is entries.Outcome.FOREIGN:
            holder = self._read(name)
            raise NotOwnerError(messages.foreign(name, str(self), verb, self.owner, holder))


def _token(who: str | None) -> str:
    place = f"{socket.gethostname()}:{os.getpid()}#{uuid.uuid4().hex[:16]}"
    if who is None:
        return place
    if "\n" in who:
        raise InvalidNameError(f"who={who!r} must be one line")
    return f"{who}@{place}"

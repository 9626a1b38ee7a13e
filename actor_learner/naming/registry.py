"""`NameRegistry`: how jobs find one another by name.

A replay server leaves its address, whoever needs it waits for it:

    with connect.connect("file:///shared/registry", who="replay-0") as names:
        names.add("run/replay/0", "10.0.0.7:8008", ttl=10)
        while serving():               # The name is gone ten seconds after the last touch.
            names.touch("run/replay/0")

    address = connect.connect("file:///shared/registry", who="actor-3").wait("run/replay/0", 60)
"""

from __future__ import annotations

import abc
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Callable

from actor_learner.naming import entries, name_errors

NamingError = name_errors.NamingError
InvalidNameError = name_errors.InvalidNameError
NameTakenError = name_errors.NameTakenError
NameNotFoundError = name_errors.NameNotFoundError
NotOwnerError = name_errors.NotOwnerError
NameWaitTimeoutError = name_errors.NameWaitTimeoutError
RegistryUnavailableError = name_errors.RegistryUnavailableError

_FIRST_PAUSE = 0.01
_MAX_NAMES_SHOWN = 12


class NameRegistry(abc.ABC):
    """Names and their values, shared by the jobs of one or many runs.

    Names are paths (`run/jobs/actor/0`), values short strings. A name may lie beneath another.

    Each registry object is an owner with a token of its own, left with all it adds. Only it may
    `touch`, `update` or `delete` what it added, so that a job that was replaced cannot, by
    accident, disturb its successor. To interfere on purpose, there are `add(..., replace=True)`,
    `take` and `clear_subtree`.

    A name with a time to live (`ttl`) expires so many seconds after it was last added, touched or
    updated. Anybody may then add it; if several try at once, exactly one succeeds.

    May be used from several threads.

    Attributes:
      who: What error messages call this end, e.g. `actor-3`.
      owner: The token, unique among all registry objects: `<who>@<host>:<process>#<random>`.
    """

    def __init__(self, *, who: str | None = None, poll_seconds: float = 0.2) -> None:
        """Makes an owner.

        Args:
          who: What to call it; None for a name made of the process's number.
          poll_seconds: The longest time between two checks of `wait`.
        """
        self.who = who or f"process {os.getpid()}"
        self.owner = _token(who)
        self._poll_seconds = poll_seconds
        self._closed = threading.Event()

    def add(
        self, name: str, value: str, *, ttl: float | None = None, replace: bool = False
    ) -> None:
        """Adds a name.

        Args:
          name: The name.
          value: What others find under it.
          ttl: Seconds until the name vanishes unless refreshed; None for never.
          replace: Take the name over from whoever has it, this registry object included. The
            former owner can no longer refresh or delete it, and is told so.

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
        if not self._create(name, entry, replace):
            holder = self._read(name)
            raise NameTakenError(
                _taken(self.who, name, str(self), holder),
                name=name,
                holder=holder.owner if holder else None,
            )

    def get(self, name: str) -> str:
        """Returns the value of a name.

        Raises:
          NameNotFoundError: If it is not there.
        """
        self._require_open()
        entry = self._read(entries.check_name(name))
        if entry is None:
            near = _neighbours(name, self._scan)
            raise NameNotFoundError(f"there is no name {name!r} in {self}; {near}")
        return entry.value

    def wait(self, name: str, timeout: float) -> str:
        """Waits up to `timeout` seconds for a name; returns its value.

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
                    near = _neighbours(name, self._scan)
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
        """Refreshes a name of ours: it lives for another ttl.

        Raises:
          NameNotFoundError: If it has vanished.
          NotOwnerError: If it is somebody else's.
        """
        self._require_open()
        self._require_done(name, self._renew(entries.check_name(name), self.owner, None), "refresh")

    def touch_all(self, names: Sequence[str]) -> dict[str, entries.Outcome]:
        """Refreshes several names of ours in one operation; returns the outcome of each."""
        self._require_open()
        checked = [entries.check_name(name) for name in names]
        return dict(zip(checked, self._renew_all(checked, self.owner)))

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
        self._require_done(name, self._remove(entries.check_name(name), self.owner), "delete")

    def take(self, name: str) -> str:
        """Removes a name, whoever added it, and returns its value; of several callers, one gets it.

        Raises:
          NameNotFoundError: If it is not there.
        """
        self._require_open()
        entry = self._take(entries.check_name(name))
        if entry is None:
            raise NameNotFoundError(f"there is no name {name!r} to take in {self}")
        return entry.value

    def find_subtree(self, prefix: str = "") -> dict[str, str]:
        """Returns the values of `prefix` and all names beneath it, by name; all names for ""."""
        self._require_open()
        found = self._scan(entries.check_prefix(prefix))
        return {name: found[name].value for name in sorted(found)}

    def clear_subtree(self, prefix: str = "") -> int:
        """Removes `prefix` itself and all beneath it, whoever added them; returns how many.

        What is added meanwhile may or may not be removed.
        """
        self._require_open()
        return self._clear(entries.check_prefix(prefix))

    def close(self) -> None:
        """Closes this object; what it has added stays until it expires. Safe to call twice."""
        if not self._closed.is_set():
            self._closed.set()
            self._disconnect()

    def __enter__(self) -> NameRegistry:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abc.abstractmethod
    def __str__(self) -> str:
        """What and where it is, for"""

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

    def _renew_all(self, names: Sequence[str], owner: str) -> list[entries.Outcome]:
        """Gives each entry of `owner` another ttl, in one operation where the backend can."""
        return [self._renew(name, owner, None) for name in names]

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

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise NamingError(f"{self} was closed by {self.who} and cannot be used any more")

    def _require_done(self, name: str, outcome: entries.Outcome, verb: str) -> None:
        if outcome is entries.Outcome.ABSENT:
            raise NameNotFoundError(_absent(self.who, name, str(self), verb))
        if outcome is entries.Outcome.FOREIGN:
            holder = self._read(name)
            raise NotOwnerError(_foreign(name, str(self), verb, self.owner, holder))


def _token(who: str | None) -> str:
    place = f"{socket.gethostname()}:{os.getpid()}#{uuid.uuid4().hex[:16]}"
    if who is None:
        return place
    if "\n" in who:
        raise InvalidNameError(f"who={who!r} must be one line")
    return f"{who}@{place}"


def _taken(who: str, name: str, place: str, holder: entries.Entry | None) -> str:
    """Why a name could not be added; `holder` is None if it went away at that very moment."""
    if holder is None:
        return (
            f"the name {name!r} in {place} was taken when {who} wanted to add it, and is free by "
            "now: try again"
        )
    end = "stays until it is deleted"
    if holder.ttl is not None:
        end = f"vanishes {holder.ttl:g} s after that one has stopped refreshing it"
    return (
        f"{who} cannot add the name {name!r} to {place}: {holder.owner} has it, with the value "
        f"{_short(holder.value)}, and it {end}. Stop that one, or use another name"
    )


def _absent(who: str, name: str, place: str, verb: str) -> str:
    """Why a name could not be refreshed, changed or deleted: it is gone."""
    return (
        f"{who} cannot {verb} the name {name!r} in {place}: it is not there. It was never added, "
        "it has expired, or somebody removed it"
    )


def _foreign(name: str, place: str, verb: str, owner: str, holder: entries.Entry | None) -> str:
    """Why a name could not be refreshed, changed or deleted: it is another's."""
    return (
        f"{owner} cannot {verb} the name {name!r} in {place}: it belongs to "
        f"{holder.owner if holder else 'somebody else'}"
    )


def _neighbours(name: str, find: Callable[[str], Collection[str]]) -> str:
    """Which names there are beneath the nearest parent of `name` that has any.

    Args:
      name: A name that is missing.
      find: Returns the names beneath a prefix.
    """
    parent = name.rpartition("/")[0]
    found = sorted(find(parent))
    while parent and not found:
        parent = parent.rpartition("/")[0]
        found = sorted(find(parent))
    if not found:
        return "the registry is empty"
    more = len(found) - _MAX_NAMES_SHOWN
    shown = ", ".join(found[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"beneath {parent!r} there are {shown}" if parent else f"there are {shown}"


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else f"{value[:57]}...")

"""A name registry in a directory, for jobs on one machine or with a shared file system.

There is one file per name. It is written under another name and renamed, so that readers, which
need no lock, see either the old content or the new. Whoever changes anything holds the directory's
lock, for far less than a millisecond, so that checking whether an entry has expired and replacing
it are one step.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple

from absl import logging

from actor_learner.naming import entries, registry
from actor_learner.support import disk_space, file_lock

_LOCK = ".lock"
# Only the holder of the lock writes it; the next one overwrites what a killed one has left.
_INCOMING = ".incoming"
# A file that already has its block, to write to when the disk is full; large enough for all but the
# status of a failed job.
_SPARE, _FORMER = ".spare", ".former"
_SPARE_BYTES = 4_096
# Stands for the slash in file names; no name contains it.
_SLASH = "#"


class _Record(NamedTuple):
    """What a file says.

    Attributes:
      entry: What is registered.
      boot: Which start of which machine the writer ran in; None if unknown.
      renewed: When it was written, by the clock of that machine.
      modified: When it was written, by the clock of the file system.
    """

    entry: entries.Entry
    boot: str | None
    renewed: float
    modified: float


class FileRegistry(registry.NameRegistry):
    """Names in a directory; objects with the same directory share them.

    Ages do not depend on the time of day where that can be avoided. The age of an entry that was
    written on this machine is measured by the clock that starts with the machine. The age of any
    other is the difference of two times recorded by the file system, so that machines whose clocks
    differ agree on it.

    Args:
      directory: The directory, which is made if missing.
      clock: Seconds since the start of the machine, the same for all its processes.
      lock_timeout: The longest wait for others that change something, in seconds.
      **options: Of `NameRegistry`: who, poll_seconds.

    Raises:
      RegistryUnavailableError: If the directory cannot be made.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        clock: Callable[[], float] = time.monotonic,
        lock_timeout: float = 30.0,
        **options,
    ) -> None:
        super().__init__(**options)
        self._directory = pathlib.Path(directory).absolute()
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._damaged: set[str] = set()  # Names that were warned of.
        with self._accessing():
            self._directory.mkdir(parents=True, exist_ok=True)
        self._remove_expired()

    def __str__(self) -> str:
        return f"file registry {self._directory}"

    @property
    def directory(self) -> pathlib.Path:
        """The directory, as an absolute path."""
        return self._directory

    def _create(self, name: str, entry: entries.Entry, replace: bool) -> bool:
        with self._changing(f"adding the name {name!r}"):
            if not replace and self._live(name) is not None:
                return False
            self._write(name, entry)
            return True

    def _read(self, name: str) -> entries.Entry | None:
        with self._accessing():
            return self._live(name)

    def _renew(self, name: str, owner: str, value: str | None) -> entries.Outcome:
        with self._changing(f"refreshing the name {name!r}"):
            entry = self._live(name)
            outcome = entries.ownership(entry, owner)
            if outcome is entries.Outcome.DONE:
                self._write(name, entry if value is None else entry._replace(value=value))
            return outcome

    def _remove(self, name: str, owner: str) -> entries.Outcome:
        with self._changing(f"deleting the name {name!r}"):
            outcome = entries.ownership(self._live(name), owner)
            if outcome is entries.Outcome.DONE:
                self._path(name).unlink()
            return outcome

    def _take(self, name: str) -> entries.Entry | None:
        with self._changing(f"taking the name {name!r}"):
            entry = self._live(name)
            if entry is not None:
                self._path(name).unlink()
            return entry

    def _scan(self, prefix: str) -> dict[str, entries.Entry]:
        with self._accessing():
            found = {name: self._live(name) for name in self._names(prefix)}
        return {name: entry for name, entry in found.items() if entry is not None}

    def _clear(self, prefix: str) -> int:
        with self._changing(f"clearing all beneath {prefix!r}"):
            live = 0
            for name in self._names(prefix):
                live += self._live(name) is not None
                self._path(name).unlink()
            return live

    def _disconnect(self) -> None:
        pass  # Every call opens and closes what it needs.

    def _remove_expired(self) -> None:
        """Removes what killed jobs have left, so that the directory does not fill up."""
        if all(self._read(name) is not None for name in self._names("")):
            return
        with self._changing("removing expired names"):
            for name in self._names(""):
                if self._live(name) is None:
                    self._path(name).unlink(missing_ok=True)

    # Callers that write hold the lock in what follows.

    @contextlib.contextmanager
    def _changing(self, purpose: str) -> Iterator[None]:
        with self._accessing():
            with file_lock.locked(
                self._directory / _LOCK, purpose=purpose, timeout=self._lock_timeout
            ):
                yield

    @contextlib.contextmanager
    def _accessing(self) -> Iterator[None]:
        try:
            yield
        except file_lock.LockTimeoutError as error:
            raise registry.RegistryUnavailableError(f"{self} is blocked: {error}") from error
        except OSError as error:
            raise registry.RegistryUnavailableError(
                f"{self} cannot be used by {self.who}: {error}; does the directory exist, and may "
                "this user write to it?"
            ) from error

    def _path(self, name: str) -> pathlib.Path:
        return self._directory / name.replace("/", _SLASH)

    def _names(self, prefix: str) -> list[str]:
        with self._accessing():
            files = os.listdir(self._directory)
        names = (file.replace(_SLASH, "/") for file in files if not file.startswith("."))
        return [name for name in names if entries.is_beneath(name, prefix)]

    def _live(self, name: str) -> entries.Entry | None:
        record = self._record(name)
        return record.entry if record is not None and self._is_live(record) else None

    def _is_live(self, record: _Record) -> bool:
        ttl = record.entry.ttl
        if ttl is None:
            return True
        if record.boot is not None and record.boot == _boot_id():
            age = self._clock() - record.renewed
        else:
            age = self._file_system_time() - record.modified
        # A time so far in the future was written by a clock that has been set back since.
        return abs(age) < ttl

    def _record(self, name: str) -> _Record | None:
        try:
            with open(self._path(name), "rb") as file:
                text = file.read()
                modified = os.fstat(file.fileno()).st_mtime
        except (FileNotFoundError, IsADirectoryError):
            return None
        try:
            content = json.loads(text.decode("utf-8"))
            entry = entries.Entry(content["value"], content["owner"], content["ttl"])
            boot, renewed = content["boot"], content["renewed"]
            if not entries.is_entry(*entry) or not isinstance(renewed, (int, float)):
                raise TypeError("a value has the wrong type")
            return _Record(entry, boot, renewed, modified)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            # Renaming is atomic for other processes, but not if the machine loses its power.
            if name not in self._damaged:
                self._damaged.add(name)
                logging.warning(
                    "%s is damaged (%r): the name counts as free.", self._path(name), error
                )
            return None

    def _write(self, name: str, entry: entries.Entry) -> None:
        content = {**entry._asdict(), "boot": _boot_id(), "renewed": self._clock()}
        text = json.dumps(content).encode()
        incoming = self._directory / _INCOMING
        try:
            incoming.write_bytes(text)
        except OSError as error:
            incoming.unlink(missing_ok=True)
            if not disk_space.is_out_of_space(error):
                raise
            self._write_to_spare(name, text)
        else:
            os.replace(incoming, self._path(name))
            if not (self._directory / _SPARE).exists():
                self._make_spare()

    def _write_to_spare(self, name: str, text: bytes) -> None:
        """Writes without taking room on the disk: a full disk must not make leases expire.

        The spare file becomes that of `name`, whose former one becomes the spare.

        Raises:
          OSError: The error of a full disk, if the spare is too small, or there is none any more.
        """
        spare, former, path = self._directory / _SPARE, self._directory / _FORMER, self._path(name)
        former.unlink(missing_ok=True)
        try:
            found = spare.stat()
            size = max(found.st_size, 512 * found.st_blocks)
        except FileNotFoundError:
            size = 0
        if len(text) > size:
            raise disk_space.full(path)
        with open(spare, "r+b") as file:
            file.write(text.ljust(size))  # JSON does not mind the spaces.
        if path.exists():
            os.link(path, former)  # Otherwise its blocks would be free for anybody to take.
        os.replace(spare, path)
        if former.exists():
            os.rename(former, spare)

    def _make_spare(self) -> None:
        incoming = self._directory / _INCOMING
        try:
            incoming.write_bytes(b" " * _SPARE_BYTES)
        except OSError as error:
            incoming.unlink(missing_ok=True)
            if not disk_space.is_out_of_space(error):
                raise
        else:
            os.replace(incoming, self._directory / _SPARE)

    def _file_system_time(self) -> float:
        """Now, by the clock that gives files their times: on a network disk, its server's."""
        lock = self._directory / _LOCK
        lock.touch()
        return lock.stat().st_mtime


@functools.lru_cache(maxsize=1)
def _boot_id() -> str | None:
    """Differs between machines, and between two starts of one."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None  # Then all ages are taken from the file system.

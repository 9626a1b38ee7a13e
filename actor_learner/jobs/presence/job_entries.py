"""What the registry holds about the jobs of a run: their leases and their records."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from typing import Any, Callable

from absl import logging

from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import names
from actor_learner.messaging import keys as keys_lib
from actor_learner.naming import registry
from actor_learner.support import errors


@dataclasses.dataclass(frozen=True)
class LeaseEntry:
    """The value of a lease.

    Attributes:
      pid: The process that holds it.
      host: Its machine, for people.
      machine: Identifies the machine, its boot and the container, within which a pid is unique;
        empty if unknown.
      started: When the process was started, by the kernel's clock; empty if unknown.
      incarnation: Of the job; differs from that of its predecessor.
      wire: Where its wire listens, as `tcp://host:port`; empty before it does.
      keys: Fingerprint of the keys that its wire demands; empty if it demands none.
    """

    pid: int
    host: str
    machine: str
    started: str
    incarnation: str
    wire: str = ""
    keys: str = ""

    @classmethod
    def of_this_process(cls, incarnation: str) -> LeaseEntry:
        pid = os.getpid()
        return cls(pid, socket.gethostname(), _machine(), _started(pid) or "", incarnation)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LeaseEntry:
        """Reads what `to_json` wrote; ignores fields that a later version has added.

        Raises:
          errors.JobError: If it is something else.
        """
        try:
            content = json.loads(text)
            known = {field.name: content[field.name] for field in dataclasses.fields(cls)}
            if not isinstance(known.pop("pid"), int) or not all(
                isinstance(value, str) for value in known.values()
            ):
                raise TypeError("a value has the wrong type")
            return cls(content["pid"], **known)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise errors.JobError(f"not a lease ({error!r}): {text[:200]!r}") from error

    def is_alive(self) -> bool:
        """Whether the process is known to live, on this machine."""
        return self._is_here() and _started(self.pid) == self.started

    def is_dead(self) -> bool:
        """Whether the process is known to have ended; unknown on another machine."""
        return self._is_here() and _started(self.pid) != self.started

    def check_keys(self, name: str, who: str, keys: keys_lib.RunKeys | None) -> None:
        """Checks that the wire accepts our keys: with others it would never answer.

        Args:
          name: Of the job.
          who: Who wants to connect.
          keys: Their keys.

        Raises:
          errors.ConfigError: If the wire demands other keys.
        """
        ours = keys.fingerprint if keys is not None else ""
        if ours != self.keys:
            raise errors.ConfigError(
                f"{name} demands {'the keys of its run' if self.keys else 'no keys'}, but {who} "
                f"has {'other keys' if ours else 'none'}: set {keys_lib.VARIABLE} to the same keys "
                "for every process of the run"
            )

    def _is_here(self) -> bool:
        return bool(self.machine) and self.machine == _machine()


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Returns when a process was started; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # Field 3 is the state: a zombie is dead.
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


_LEASE, _RECORD = "lease", "record"


@dataclasses.dataclass(frozen=True)
class JobEntries:
    """What the registry holds about one job.

    Attributes:
      kind: Its kind.
      index: Which one of its kind.
      lease: Of the process that is the job; None if there is none.
      record: Its status when its state last changed; None if it has left none.
    """

    kind: str
    index: int
    lease: LeaseEntry | None = None
    record: status_lib.Status | None = None

    @property
    def name(self) -> str:
        return names.job(self.kind, self.index)

    def status(self) -> status_lib.Status | None:
        """Returns what is known of the job without asking it; None if nothing is."""
        lease, record = self.lease, self.record
        if lease is None:
            return record
        if record is not None and record.incarnation == lease.incarnation:
            return record
        return status_lib.Status(  # It has not written its own yet.
            self.kind,
            self.index,
            states.CONFIGURING,
            pid=lease.pid,
            host=lease.host,
            incarnation=lease.incarnation,
        )


class JobEntriesReader:
    """Reads the entries of a run's jobs; skips damaged ones, with one warning for each.

    Args:
      names: The registry.
      run: Name of the run.
    """

    def __init__(self, names: registry.NameRegistry, run: str) -> None:
        self._names = names
        self._run = run
        self._warned: set[str] = set()

    def read(self) -> dict[str, JobEntries]:
        """Returns all jobs that have an entry, by names such as `actor-0`; one operation.

        Raises:
          name_errors.RegistryUnavailableError: If the registry does not answer.
        """
        found: dict[str, JobEntries] = {}
        for name, text in self._names.find_subtree(names.jobs(self._run)).items():
            parsed = names.parse(self._run, name)
            if parsed is None or parsed[0] == names.LAUNCHER:
                continue
            kind, index, what = parsed
            job = found.get(names.job(kind, index), JobEntries(kind, index))
            if what == _LEASE:
                lease = self._checked(name, text, LeaseEntry.from_json)
                job = dataclasses.replace(job, lease=lease)
            elif what == _RECORD:
                record = self._checked(name, text, status_lib.Status.from_json)
                if record is not None and (record.kind, record.index) != (kind, index):
                    self._warn(name, f"it is about {record.name}")
                    record = None
                job = dataclasses.replace(job, record=record)
            found[job.name] = job
        return found

    def _checked(self, name: str, text: str, read: Callable[[str], Any]) -> Any:
        try:
            return read(text)
        except errors.JobError as error:
            self._warn(name, str(error))
            return None

    def _warn(self, name: str, why: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning("The registry's entry %s is skipped: %s", name, why)

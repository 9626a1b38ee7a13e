"""Reads from the registry which jobs a run has: their leases and their records."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from absl import logging

from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import lease_entry, names
from actor_learner.naming import registry
from actor_learner.support import errors

_LEASE, _RECORD = "lease", "record"


@dataclasses.dataclass(frozen=True)
class JobEntries:
    """What the registry holds about one job.

    Attributes:
      kind: Its kind.
      index: Which one of its kind.
      lease: Who holds it; None if nobody does.
      record: What it left when it began, or when it ended; None if it left nothing.
    """

    kind: str
    index: int
    lease: lease_entry.LeaseEntry | None = None
    record: status_lib.Status | None = None

    @property
    def name(self) -> str:
        return names.job(self.kind, self.index)

    def status(self) -> status_lib.Status | None:
        """What can be known of the job without asking it; None if nothing is left of it."""
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
    """Reads the jobs of a run; what is not an entry of ours is skipped, and warned of once.

    Args:
      names: The registry.
      run: Name of the run.
    """

    def __init__(self, names: registry.NameRegistry, run: str) -> None:
        self._names = names
        self._run = run
        self._warned: set[str] = set()

    def read(self) -> dict[str, JobEntries]:
        """All jobs that have an entry, by their names such as `actor-0`; one operation.

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
                lease = self._checked(name, text, lease_entry.LeaseEntry.from_json)
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

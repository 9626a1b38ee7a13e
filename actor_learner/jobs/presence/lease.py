"""Holds a job's lease: at most one process is the job, and others see where and whether it is."""

from __future__ import annotations

import dataclasses
import time

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import job_entries, names
from actor_learner.naming import entries, name_errors
from actor_learner.support import errors

_TAKEOVER_TTL = 5.0
_PAUSE = 0.2


class LeaseLostError(errors.JobError):
    """Another process holds this job's lease now."""


class Lease:
    """Holds `<run>/jobs/<kind>/<index>/lease` for one process, by heartbeats.

    Args:
      job: Whose lease it is.
    """

    def __init__(self, job: job_lib.Job) -> None:
        self._job = job
        self._names = job.names
        self._name = names.lease(job.run, job.kind, job.index)
        self._takeover = names.takeover(job.run, job.kind, job.index)
        self._address = names.address(job.run, job.kind, job.index)
        self._process = job_entries.LeaseEntry.of_this_process(job.incarnation)

    def claim(self) -> None:
        """Takes the lease, waiting until that of a dead predecessor has run out.

        A predecessor that is known to be dead, by its pid on this machine, is replaced at once; so
        is a value that is not a lease.

        Raises:
          errors.JobError: If a process that is alive has the lease.
          job_lib.Stopping: If this job is asked to end meanwhile.
        """
        # A dead holder sends no more heartbeats, so that its lease has run out by then.
        deadline = time.monotonic() + 1.2 * self._job.lost_after_seconds + 1.0
        waiting = False
        while not self._try_claim():
            text = self._text_now()
            if text is None:
                continue
            try:
                holder = job_entries.LeaseEntry.from_json(text)
            except errors.JobError as error:
                logging.warning(
                    "%s replaces the damaged lease in the registry: %s", self._job, error
                )
                self._replace(text)
                continue
            if holder.is_dead():
                logging.info("%s replaces process %d, which has died", self._job, holder.pid)
                self._replace(text)
                continue
            if holder.is_alive() or time.monotonic() > deadline:
                raise errors.JobError(
                    f"{self._job} is already running, as process {holder.pid} on "
                    f"{holder.host}: stop that one first, or use another --index or --run"
                )
            if not waiting:
                waiting = True
                logging.info("%s waits for its predecessor %s to be lost", self._job, holder)
            if self._job.stopping.wait(_PAUSE):
                raise job_lib.Stopping(
                    f"{self._job} was asked to end while it waited for its lease"
                )

    def publish(self) -> None:
        """Writes where the job is reached, once its wire is open.

        Raises:
          name_errors.RegistryUnavailableError: If the registry does not answer.
        """
        try:
            self._names.update(self._name, self._value())
        except (name_errors.NameNotFoundError, name_errors.NotOwnerError):
            pass  # The next heartbeat claims it again, or finds it lost.

    def beat(self) -> bool:
        """Renews the lease, in one operation of the registry.

        Returns:
          Whether the lease was there; if not, it was claimed again.

        Raises:
          LeaseLostError: If another process holds it.
        """
        served = [] if self._job.address is None else [self._address]
        outcomes = self._names.touch_all([self._name, *served])
        if outcomes[self._name] is entries.Outcome.FOREIGN:
            raise LeaseLostError(
                f"{self._job} was silent for more than {self._job.lost_after_seconds:g} s, and "
                "another process has taken its place: this one ends"
            )
        there = outcomes[self._name] is entries.Outcome.DONE
        if not there:
            # This process was silent for too long, or the registry was emptied.
            if not self._try_claim():
                return True  # Another process was faster: the next heartbeat raises.
            self._job.remind()
        if served and outcomes[self._address] is not entries.Outcome.DONE:
            self._job.publish_address(self._job.address)
        return there

    def release(self) -> None:
        """Gives the lease up."""
        for name in (self._name, self._address):
            try:
                self._names.delete(name)
            except (name_errors.NameNotFoundError, name_errors.NotOwnerError):
                pass  # It ran out, or belongs to a successor already.

    def _value(self) -> str:
        demanded = self._job.keys.fingerprint if self._job.keys is not None else ""
        return dataclasses.replace(
            self._process, wire=self._job.wire_address, keys=demanded
        ).to_json()

    def _try_claim(self) -> bool:
        try:
            self._names.add(self._name, self._value(), ttl=self._job.lost_after_seconds)
        except name_errors.NameTakenError:
            return False
        return True

    def _text_now(self) -> str | None:
        try:
            return self._names.get(self._name)
        except name_errors.NameNotFoundError:
            return None

    def _replace(self, dead: str) -> None:
        """Removes the lease of a dead process; only one of several claimants at a time."""
        try:
            self._names.add(self._takeover, self._value(), ttl=_TAKEOVER_TTL)
        except name_errors.NameTakenError:
            self._job.stopping.wait(_PAUSE)
            return
        try:
            if self._text_now() == dead:
                self._names.take(self._name)
        except name_errors.NameNotFoundError:
            pass  # It ran out at this very moment.
        finally:
            try:
                self._names.delete(self._takeover)
            except (name_errors.NameNotFoundError, name_errors.NotOwnerError):
                pass

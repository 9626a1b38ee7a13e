"""Finds the policy jobs of a run, and shares the groups of an actor out among them."""

from __future__ import annotations

import time
from typing import Callable

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import job_entries, names
from actor_learner.messaging import client as client_lib
from actor_learner.messaging import protocol
from actor_learner.naming import name_errors

KIND = "policy"
_LOOK_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 1.0
_SUSPECT_SECONDS = 10.0


class PolicyServers:
    """Whom the groups of an actor ask: each one of the policy jobs, in turn.

    One that does not answer is left out for a while: others answer instead, if there are any, and
    it is asked again where it was restarted. The registry is looked at now and then for jobs that
    have joined, and at once where one is silent.

    Args:
      job: The actor's.
      first_group: Number of the actor's first group among those of all actors.
      check: Called while a group waits; raises to end the wait.

    Attributes:
      sticky: Whether a group stays with the job it has asked for as long as that is there, because
        the job holds its state.
    """

    def __init__(
        self,
        job: job_lib.Job,
        *,
        first_group: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._first_group = first_group
        self._check = check
        self.sticky = False
        self._reader = job_entries.JobEntriesReader(job.names, job.run)
        self._found: dict[int, job_entries.LeaseEntry] = {}
        self._looked_at = float("-inf")
        self._clients: dict[str, client_lib.Client] = {}
        self._suspects: dict[str, float] = {}
        self._chosen: dict[int, str] = {}

    @property
    def addresses(self) -> list[str]:
        """Where the policy jobs are reached, as of the last look."""
        return [entry.wire for _, entry in sorted(self._found.items())]

    def client_for(self, group: int, silent: protocol.Client | None) -> protocol.Client | None:
        now = time.monotonic()
        if silent is not None:
            address = getattr(silent, "address", "")
            if address not in self._suspects:
                logging.warning("%s: %s does not answer.", self._job, self._name(address))
            self._suspects[address] = now
        known = bool(self._found) and silent is None
        if now - self._looked_at >= (_LOOK_SECONDS if known else _LOOK_AGAIN_SECONDS):
            self._look(now)
        addresses = self.addresses
        if not addresses:
            return None
        self._suspects = {
            address: since
            for address, since in self._suspects.items()
            if now - since < _SUSPECT_SECONDS
        }
        trusted = [address for address in addresses if address not in self._suspects]
        chosen = self._chosen.get(group)
        if not (self.sticky and chosen in trusted):
            pool = trusted or addresses
            chosen = pool[(self._first_group + group) % len(pool)]
        self._chosen[group] = chosen
        return self._connect(chosen)

    def check(self) -> None:
        self._check()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _look(self, now: float) -> None:
        self._looked_at = now
        try:
            entries = self._reader.read()
            found = {}
            for entry in entries.values():
                if entry.kind == KIND and entry.lease is not None and self._serves(entry):
                    found[entry.index] = entry.lease
            self._found = found
        except name_errors.RegistryUnavailableError:
            return  # Those that are known may still be there.
        for address in set(self._clients) - set(self.addresses):
            self._clients.pop(address).close()

    def _serves(self, entry: job_entries.JobEntries) -> bool:
        """Whether the process that is the job has said that it serves; until then it configures."""
        try:
            address = self._job.names.get(names.address(self._job.run, KIND, entry.index))
        except name_errors.NameNotFoundError:
            return False
        return address == entry.lease.wire

    def _connect(self, address: str) -> protocol.Client:
        if address not in self._clients:
            (index,) = (i for i, entry in self._found.items() if entry.wire == address)
            self._found[index].check_keys(names.job(KIND, index), str(self._job), self._job.keys)
            self._clients[address] = client_lib.Client(
                address, who=names.job(self._job.kind, self._job.index), keys=self._job.keys
            )
        return self._clients[address]

    def _name(self, address: str) -> str:
        for index, entry in self._found.items():
            if entry.wire == address:
                return f"{names.job(KIND, index)} at {address}"
        return f"the policy job at {address}"

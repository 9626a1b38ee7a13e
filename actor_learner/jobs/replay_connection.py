"""A job's connection to the replay server of its run, found and checked."""

from __future__ import annotations

import os
import time

import reverb

from actor_learner.jobs import contract as contract_lib
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import names
from actor_learner.naming import name_errors
from actor_learner.runs import model as model_lib
from actor_learner.support import errors, reverb_calls

ADDRESS_VARIABLE = "ACTOR_LEARNER_REPLAY"
RUN_ID = "run_id"
"""What the replay job of a run leaves in the registry, as `<run>/run_id`."""

_TRY_SECONDS = 5.0
_ASK_SECONDS = 2.0


class Partner:
    """The replay server, and what it says about the run.

    Args:
      job: Whose connection it is.
      address: `host:port` of the server; None takes that of the environment variable
        `ACTOR_LEARNER_REPLAY`, or asks the name registry.
      timeout_seconds: How long to wait for the server to be there.

    Attributes:
      address: `host:port`.
      client: Of the server.
      contract: What all jobs of the run agree on.

    Raises:
      errors.OtherRunError: If the server is another run's: it was given a port that a server of
        this run had before.
    """

    def __init__(
        self, job: job_lib.Job, address: str | None = None, *, timeout_seconds: float = 180.0
    ) -> None:
        self._job = job
        address = address or os.environ.get(ADDRESS_VARIABLE)
        self._is_registered = address is None
        self._asked_at = 0.0
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = deadline - time.monotonic()
            self.address = address or job.address_of("replay", timeout=max(0.0, left))
            self.client = reverb.Client(self.address)
            try:
                self.contract = contract_lib.read(self.client, min(_TRY_SECONDS, max(1.0, left)))
                self._refuse_other_run()
                break
            except (errors.ReplayTimeoutError, errors.OtherRunError):
                # It has died, and its name not yet; or it restarts.
                if left <= 0:
                    raise
                if job.stopping.wait(0.5):
                    raise job_lib.Stopping(f"{job} was asked to end") from None

    @property
    def run_id(self) -> str:
        return self.contract["run id"]

    @property
    def num_lanes(self) -> int:
        """Lanes of each actor of the run."""
        return self.contract["lanes per actor"]

    def check(self, model: model_lib.Model) -> None:
        """Compares what this job has built with the run's contract.

        Raises:
          errors.SpecMismatchError: If they differ, naming every difference.
        """
        contract_lib.require_same(
            model.contract(self.run_id), self.contract, str(self._job), self.address
        )

    def require_answer(self, timeout_seconds: float = _TRY_SECONDS) -> None:
        """Raises `errors.ReplayTimeoutError` unless the server answers."""
        reverb_calls.fetch_tables(self.client, timeout_seconds)

    def require_same_run(self) -> None:
        """Looks again whose server it is; for whoever comes back to one that was away.

        Raises:
          errors.OtherRunError: If it is another run's.
          errors.ReplayTimeoutError: If it does not answer, or is not ready yet.
        """
        found = contract_lib.read(self.client, _TRY_SECONDS)["run id"]
        if found != self.run_id:
            raise errors.OtherRunError(
                f"the server at {self.address} belongs to another run ({found}, not "
                f"{self.run_id}): it was started on a port that a server of this run had before"
            )

    def require_same_address(self) -> None:
        """Asks the registry, every few seconds at most, whether the server is elsewhere by now.

        Raises:
          errors.ReplayMovedError: If it is: this job must be started again to find it there.
        """
        now = time.monotonic()
        if not self._is_registered or now - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = now
        try:
            address = self._job.names.get(names.address(self._job.run, "replay", 0))
        except (name_errors.NameNotFoundError, name_errors.RegistryUnavailableError):
            return  # It has not come back yet, or the registry is away as well.
        if address != self.address:
            raise errors.ReplayMovedError(
                f"{self._job} knew the replay server at {self.address}, which is silent; it is at "
                f"{address} now: start this job again"
            )

    def _refuse_other_run(self) -> None:
        try:
            expected = self._job.names.get(f"{self._job.run}/{RUN_ID}")
        except name_errors.NameNotFoundError:
            return  # The replay job uses another registry; its address was given.
        if self.run_id != expected:
            raise errors.OtherRunError(
                f"the replay server at {self.address} belongs to another run ({self.run_id}) than "
                f"{self._job} ({expected}): it was started on a port that a server of this run had "
                "before, or the address is wrong"
            )

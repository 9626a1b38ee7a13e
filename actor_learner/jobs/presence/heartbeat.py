"""Keeps a job's lease alive from a thread, and writes what outlives the job: its record.

All that a running worker has to do with the name registry happens here, so that a registry that is
slow, or gone for a while, does not hold up any work.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import lease as lease_lib
from actor_learner.jobs.presence import names
from actor_learner.naming import name_errors

_RETRY_SECONDS = 1.0  # Between two attempts while the registry does not answer.
_END_SECONDS = 10.0  # For the record; a registry that is gone must not keep a job from ending.


class Heartbeat:
    """Touches a lease from `start` to `stop`, once every `Job.heartbeat_seconds`.

    Args:
      job: Whose lease it is.
      lease: Claimed.
      status: Returns the status of now; called from the thread.
      on_failure: Called, in the thread, when it cannot go on; `check` then raises why.
    """

    def __init__(
        self,
        job: job_lib.Job,
        lease: lease_lib.Lease,
        status: Callable[[], status_lib.Status],
        on_failure: Callable[[], None],
    ) -> None:
        self._job = job
        self._lease = lease
        self._status = status
        self._on_failure = on_failure
        self._ending = threading.Event()
        self._given_up_at = 0.0
        self._failure: BaseException | None = None
        self._recorded = ""  # The state that the record says.
        self._thread = threading.Thread(
            target=self._run, name=f"heartbeat of {names.job(job.kind, job.index)}", daemon=True
        )

    def start(self) -> None:
        """Writes the record, from the calling thread, so that no predecessor's is left."""
        self._write_record()
        self._thread.start()

    def check(self) -> None:
        """Raises what has gone wrong in the thread, if anything has."""
        if self._failure is not None:
            raise self._failure

    def require_lease(self) -> None:
        """Looks, from the calling thread, whether the lease is still this process's.

        A registry that does not answer is taken for a yes.

        Raises:
          lease.LeaseLostError: If another process has it.
        """
        self.check()
        with contextlib.suppress(name_errors.RegistryUnavailableError):
            self._lease.beat()

    def stop(self) -> None:
        """Has the last status recorded and the lease given up; waits some seconds for that."""
        self._given_up_at = time.monotonic() + _END_SECONDS
        self._ending.set()
        self._thread.join(_END_SECONDS + 1.0)
        if self._thread.is_alive():
            logging.error("The end of %s was not recorded: the registry hangs", self._job)

    def _run(self) -> None:
        pause = self._job.heartbeat_seconds
        unavailable = False
        while True:
            ending = self._ending.wait(pause)
            try:
                was_there = self._lease.beat()
                if not was_there or ending or self._status().state != self._recorded:
                    self._write_record()
                if ending:
                    self._lease.release()
                    return
                if unavailable:
                    logging.info("the registry answers again")
                unavailable, pause = False, self._job.heartbeat_seconds
            except name_errors.RegistryUnavailableError as error:
                if not unavailable:  # Once per outage: work goes on without it.
                    logging.warning("%s works on without its registry: %s", self._job, error)
                unavailable, pause = True, min(_RETRY_SECONDS, self._job.heartbeat_seconds)
                if ending:
                    if time.monotonic() > self._given_up_at:
                        logging.error("The end of %s was not recorded: %s", self._job, error)
                        return
                    time.sleep(pause)
            except BaseException as error:  # noqa: BLE001 - raised by `check`.
                self._failure = error
                self._on_failure()
                return

    def _write_record(self) -> None:
        name = names.record(self._job.run, self._job.kind, self._job.index)
        status = self._status()
        self._job.names.add(name, status.to_json(), replace=True)
        self._recorded = status.state

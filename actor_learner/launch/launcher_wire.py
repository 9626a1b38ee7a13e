"""Makes a launcher one of the processes of its run: found by a lease, reached over a wire."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import heartbeat, lease, wire
from actor_learner.messaging import server


@contextlib.contextmanager
def launcher_wire(job: job_lib.Job) -> Iterator[server.Server]:
    """Holds the launcher's lease, and has its wire open, for as long as the context lasts.

    Args:
      job: Of kind `names.LAUNCHER`.

    Raises:
      errors.JobError: If another launcher is at work on this run.
      errors.ConfigError: If it may be reached from other machines and the run has no keys.
      job_lib.Stopping: If it is asked to end while it waits for a predecessor to be lost.
    """

    def status() -> status_lib.Status:
        return status_lib.Status(
            job.kind,
            job.index,
            states.RUNNING,
            pid=os.getpid(),
            host=socket.gethostname(),
            incarnation=job.incarnation,
        )

    held = lease.Lease(job)
    held.claim()
    with wire.held_wire(job, held) as opened:
        beating = heartbeat.Heartbeat(
            job, held, status, lambda: logging.error("%s has lost its lease", job)
        )
        beating.start()
        try:
            yield opened
        finally:
            beating.stop()

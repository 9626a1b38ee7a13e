"""Opens the wire of a job: on loopback, or for other machines, with the keys of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import lease as lease_lib
from actor_learner.jobs.presence import names
from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import server
from actor_learner.support import errors


@contextlib.contextmanager
def held_wire(job: job_lib.Job, lease: lease_lib.Lease) -> Iterator[server.Server]:
    """Has the wire open, and its address in the lease, for as long as the context lasts.

    A lease whose wire cannot be opened is given up.

    Raises:
      errors.ConfigError: If other machines could reach the wire and the run has no keys.
      errors.JobError: If it cannot listen.
    """
    try:
        opened = open_wire(job)
        lease.publish()
    except BaseException:
        lease.release()
        raise
    try:
        yield opened
    finally:
        job.wire, job.wire_address = None, ""
        opened.close()


def open_wire(job: job_lib.Job) -> server.Server:
    """Opens the wire, and tells the job where it is reached; whoever calls this closes it.

    Raises:
      errors.ConfigError: If other machines could reach it and the run has no keys.
      errors.JobError: If it cannot listen.
    """
    local = keys_lib.is_loopback(job.host)
    if not local and job.keys is None:
        raise errors.ConfigError(
            f"{job} would listen for other machines, as {job.host}, and the run has no keys that "
            f"keep strangers out. Make some with `actor-learner keys FILE` and set "
            f"{keys_lib.VARIABLE}=FILE for every job of the run; or, if all of them are on this "
            "machine, pass --host=localhost"
        )
    reached = "127.0.0.1" if job.host == "localhost" else job.host
    # Others may know this machine by a name that no interface of it has.
    listening = reached if local else ("::" if ":" in reached else "0.0.0.0")
    opened = server.Server(
        {}, host=listening, keys=job.keys, name=f"wire of {names.job(job.kind, job.index)}"
    )
    at = f"[{reached}]" if ":" in reached else reached
    job.wire = opened
    job.wire_address = f"tcp://{at}:{opened.port}"
    return opened

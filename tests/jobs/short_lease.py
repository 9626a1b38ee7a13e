"""A job whose lease runs out after two seconds: `python -m tests.jobs.short_lease learner …`."""

import sys

from actor_learner.jobs import flags, main

_make_job = flags.make_job


def make_job(*arguments):
    job = _make_job(*arguments)
    job.heartbeat_seconds, job.lost_after_seconds = 0.5, 2.0
    return job


if __name__ == "__main__":
    flags.make_job = make_job
    sys.exit(main.run())

"""A binding is a mistake if no job of a run uses it, and what each has not used is known."""

import contextlib

import gin
import pytest

from actor_learner import config
from actor_learner.jobs import controller, job, unused_bindings
from actor_learner.jobs.presence import lease as lease_lib
from actor_learner.jobs.presence import wire
from actor_learner.naming import memory

SOURCE = config.ConfigSource(
    (), ("Jobs.final_evaluation_seconds = 5", "WarmStart.source = '/x'", "sac.gamma = 0.5")
)


@pytest.fixture
def closing():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def names():
    with memory.MemoryRegistry("unused") as made:
        made.clear_subtree()
        yield made
    gin.clear_config()


def report(closing, kind, index, *used):
    config.load(SOURCE)
    for use in used:
        use()
    reporting = job.Job(kind, index, "run", memory.MemoryRegistry("unused"))
    lease = lease_lib.Lease(reporting)
    lease.claim()
    closing.enter_context(wire.open_wire(reporting))
    lease.publish()
    unused_bindings.report(reporting)


def test_what_no_job_uses_is_named_once_all_jobs_have_spoken(names, closing):
    from actor_learner import jobs_settings
    from actor_learner.runs import warm_start

    watching = closing.enter_context(controller.Controller(names, "run"))
    jobs = ["learner-0", "actor-0", "replay-0"]
    report(closing, "learner", 0, warm_start.WarmStart)
    report(closing, "actor", 0)
    assert watching.unused_bindings(jobs) is None
    report(closing, "replay", 0, jobs_settings.Jobs)
    (line,) = watching.unused_bindings(jobs)
    assert line.startswith("--gin_param 'sac.gamma = 0.5': sac.gamma is never used: ")
    assert len(watching.unused_bindings(["actor-0"])) == 3

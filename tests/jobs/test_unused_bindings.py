"""A binding is a mistake if no job of a run uses it, and what each has not used is known."""

import gin
import pytest

from actor_learner import config
from actor_learner.jobs import controller, job, unused_bindings
from actor_learner.naming import memory

SOURCE = config.ConfigSource(
    (), ("Jobs.final_evaluation_seconds = 5", "WarmStart.source = '/x'", "sac.gamma = 0.5")
)


@pytest.fixture
def names():
    with memory.MemoryRegistry("unused") as made:
        made.clear_subtree()
        yield made
    gin.clear_config()


def report(names, kind, index, *used):
    config.load(SOURCE)
    for use in used:
        use()
    unused_bindings.report(job.Job(kind, index, "run", names))


def test_what_no_job_uses_is_named_once_all_jobs_have_spoken(names):
    from actor_learner.jobs import extra_jobs
    from actor_learner.runs import warm_start

    watching = controller.Controller(names, "run")
    jobs = ["learner-0", "actor-0", "replay-0"]
    report(names, "learner", 0, warm_start.WarmStart)
    report(names, "actor", 0)
    assert watching.unused_bindings(jobs) is None
    report(names, "replay", 0, extra_jobs.Jobs)
    (line,) = watching.unused_bindings(jobs)
    assert line.startswith("--gin_param 'sac.gamma = 0.5': sac.gamma is never used: ")
    assert len(watching.unused_bindings(["actor-0"])) == 3

"""A run whose actors ask policy jobs, with real processes, some of which are killed."""

import os
import signal

import pytest

from actor_learner.jobs import states
from tests.jobs import fault_run, test_faults

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A policy job and an actor are killed, each in the middle of requests, and come back."""
    run = fault_run.Run(
        tmp_path_factory.mktemp("policies"),
        "dqn_cartpole",
        test_faults.BINDINGS,
        "--policies=2",
        "--evaluators=0",
        "--gin_param=Experiment.environment_steps = 1_000_000",  # It is ended when all are back.
        "--gin_param=Experiment.ring_size = 2",
        "--gin_param=GymnasiumEnvironment.num_envs = 4",
        "--gin_param=PolicyServer.max_batch = 32",
        "--gin_param=PolicyServer.max_delay_seconds = 0.001",
        "--gin_param=RemoteInference.resend_seconds = 0.5",
    )
    with run.output:
        try:
            run.wait(lambda: run.environment_steps() > 2_000, "it trains")
            seen = {"before": {s.name: s for s in run.controller.workers()}}
            os.kill(seen["before"]["policy-0"].pid, signal.SIGKILL)
            at = run.environment_steps()
            run.wait(lambda: run.environment_steps() > at + 1_000, "the other one answers")
            os.kill(run.status("actor", 1).pid, signal.SIGKILL)
            run.wait(lambda: _is_back(run, "policy", seen), "policy-0 is back")
            run.wait(lambda: _is_back(run, "actor", seen, 1), "actor-1 is back")
            run.wait(lambda: run.status("policy").steps, "policy-0 is asked again")
            seen["after"] = {s.name: s for s in run.controller.workers()}
            run.controller.send(states.EXIT, kind="learner")
            seen["code"] = run.process.wait(fault_run.DEADLINE)
            seen["said"] = run.text()
            yield seen
        finally:
            run.process.kill()
            run.process.wait(30)


def _is_back(run, kind, seen, index=0):
    status = run.status(kind, index)
    was = seen["before"][f"{kind}-{index}"]
    return status.incarnation != was.incarnation and status.state == states.RUNNING


@pytest.mark.slow
def test_the_run_goes_on_though_a_policy_job_and_an_actor_were_killed(story):
    assert story["code"] == 3, story["said"]  # Ended by a controller.
    assert story["after"]["policy-0"].steps > 0


@pytest.mark.slow
def test_actors_outlive_a_policy_job_and_ask_another(story):
    before, after = story["before"], story["after"]
    assert after["actor-0"].incarnation == before["actor-0"].incarnation
    assert after["policy-1"].incarnation == before["policy-1"].incarnation
    assert after["policy-1"].steps > before["policy-1"].steps > 0


@pytest.mark.slow
def test_the_jobs_share_the_load_and_say_how_large_their_batches_are(story):
    before = story["before"]
    for name in ("policy-0", "policy-1"):
        status = before[name]
        sizes = status.details["batch_sizes"]
        assert sum(sizes.values()) == status.details["batches"] > 0
        assert status.steps >= status.details["batches"]
        assert sizes["1"] == sizes["2-3"] == 0 < sizes["4-7"]
        assert "lanes a batch" in status.message
        assert status.version >= 0

"""One job under supervision, with a launcher that only notes what it is told."""

import pytest

from actor_learner.launch import job_spec, supervised_job


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


class Deaf:
    """A process that does not end, whatever it is told."""

    incarnation, note = "now", ""

    def __init__(self):
        self.told = []

    def poll(self):
        return None

    def terminate(self):
        self.told.append("terminate")

    def kill(self):
        self.told.append("kill")


class Launcher:
    def __init__(self, process):
        self._process = process

    def launch(self, spec, restarts, log):
        return self._process


@pytest.mark.parametrize("grace_seconds", [60.0, 300.0])
def test_a_job_is_killed_here_only_after_its_own_grace_and_given_up_later(grace_seconds):
    clock, process = Clock(), Deaf()
    spec = job_spec.JobSpec("replay", 0, ["true"], grace_seconds=grace_seconds)
    job = supervised_job.SupervisedJob(spec, Launcher(process), None, print, clock=clock)
    job.tick(clock.now)
    assert not job.end_late() and process.told == []  # Nobody has asked it to end.
    job.stop()
    clock.now += grace_seconds + 14.0  # Its guardian kills it first, and may take a while.
    assert not job.end_late() and process.told == ["terminate"]
    clock.now += 2.0
    assert not job.end_late() and process.told == ["terminate", "kill"]
    clock.now += 15.0
    assert job.end_late()


@pytest.mark.parametrize("code, state", [(1, supervised_job.WAITING), (5, supervised_job.FAILED)])
def test_a_job_that_failed_for_good_is_not_started_again(code, state):
    class Ended(Deaf):
        def poll(self):
            return code

    spec = job_spec.JobSpec("actor", 0, ["true"])
    job = supervised_job.SupervisedJob(spec, Launcher(Ended()), None, print, clock=Clock())
    job.tick(Clock.now)
    assert job.state == state
    assert ("does not cure" in job.last_words) == (state == supervised_job.FAILED)

"""Workers that find the disk full: they work on, say so, try again, and end with their own code."""

import errno

import pytest

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import life_cycle, states, worker
from actor_learner.launch import job_spec, supervised_job
from actor_learner.naming import memory
from actor_learner.support import unsaved
from tests.launch import test_supervised_job


class Writer(worker.Worker):
    """Writes at its second poll and when it ends; has room after so many attempts."""

    def __init__(self, *, attempts_in_vain, polls=6):
        self.left = attempts_in_vain
        self.polls = polls
        self.number = 0
        self.life = None
        self.messages = []
        self.closed = False

    def _write(self):
        self.left -= 1
        if self.left >= 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def poll(self):
        self.number += 1
        if self.number == 2:
            unsaved.ledger().attempt("the file", self._write)
        for entry in unsaved.ledger().entries:
            entry.due = 0.0
        self.messages.append(self.life.status().message)
        return self.number == self.polls

    def status(self):
        return {"message": "at work"}

    def save(self):
        assert not self.closed
        unsaved.ledger().attempt("the file", self._write)

    def close(self):
        self.closed = True


@pytest.fixture
def ledger():
    with unsaved.scope() as made:
        made.final_wait_seconds = 0.0
        yield made


def live(made, **options):
    job = job_lib.Job("actor", 0, "run", memory.MemoryRegistry(space=options.pop("space", "disk")))
    made.life = life_cycle.LifeCycle(job, lambda: made, **options)
    assert made.life.run() == states.COMPLETED
    return made.life


def test_a_worker_says_what_is_not_saved_and_tries_again_between_two_polls(ledger):
    made = Writer(attempts_in_vain=2)
    life = live(made)
    assert made.messages[0] == "at work" or made.messages[0] == ""
    assert made.messages[1].startswith("NOT SAVED: the file (disk full for ")
    assert "NOT SAVED" in made.messages[2]
    assert "NOT SAVED" not in made.messages[-1]
    assert life.exit_code == 0 and made.closed


def test_a_worker_that_could_not_save_ends_in_order_with_its_own_exit_code(ledger):
    made = Writer(attempts_in_vain=1_000)
    life = live(made)
    assert made.closed
    assert life.exit_code == states.DONE_NOT_SAVED == 6
    assert "NOT SAVED: the file" in life.status().message


class Ending(test_supervised_job.Deaf):
    def __init__(self, code):
        super().__init__()
        self.code = code

    def poll(self):
        return self.code


@pytest.mark.parametrize(
    "code, asked, state",
    [
        (states.DONE_NOT_SAVED, False, supervised_job.COMPLETED),
        (states.ENDED_NOT_SAVED, False, supervised_job.STOPPED),
        (states.ENDED_NOT_SAVED, True, supervised_job.STOPPED),
    ],
)
def test_a_job_that_could_not_save_is_not_started_again(code, asked, state):
    said, process = [], Ending(None)
    spec = job_spec.JobSpec("learner", 0, ["true"])
    launcher = test_supervised_job.Launcher(process)
    job = supervised_job.SupervisedJob(spec, launcher, "its log", said.append)
    job.tick(0.0)
    if asked:
        job.stop()
    process.code = code
    job.tick(1.0)
    assert (job.state, job.not_saved, job.restarts) == (state, True, 0)
    assert said == ["learner-0 has ended and could NOT SAVE, a disk is full: its log"]

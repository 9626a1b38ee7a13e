"""The wire of a job: open while it lives, found by its lease, answering even during a poll."""

import dataclasses
import json
import re
import threading
import uuid

import pytest

from actor_learner.jobs import commands, job, states, status
from actor_learner.jobs.presence import job_entries as lease_lib
from actor_learner.jobs.presence import names
from actor_learner.messaging import keys, protocol
from actor_learner.naming import memory
from actor_learner.support import errors
from tests.jobs import toy_workers

DEADLINE = toy_workers.DEADLINE


@pytest.fixture
def space():
    return uuid.uuid4().hex


@pytest.fixture
def asking(space):
    """A job that is not started, and asks others."""
    return job.Job("learner", 0, "run", memory.MemoryRegistry(space))


def finish(running):
    running.worker.tasks.put(lambda: True)
    return running.join()


def test_a_worker_serves_on_its_wire_what_it_likes(space, asking):
    puppet = toy_workers.Puppet()

    def configure():
        puppet.job.wire.handle("add", lambda asked: asked.answer({"sum": 1 + asked.body["x"]}))
        puppet.job.wire.add_topic("news")
        puppet.job.wire.publish("news", {"step": 3})

    puppet.on_configure = configure
    running = toy_workers.Running(puppet, space=space)
    heard = threading.Event()
    with asking.connect("actor", timeout=DEADLINE) as client:
        client.follow("news", lambda message: heard.set())
        # The wire is open before the worker is configured: there may be no such request yet.
        answered = None
        while answered is None:
            try:
                answered = client.request("add", {"x": 2}, timeout_seconds=DEADLINE)
            except protocol.RefusedError as error:
                assert "there is no request 'add'" in str(error)
        assert answered.body == {"sum": 3}
        assert heard.wait(DEADLINE)
        assert client.address == asking.wire_address_of("actor")
    finish(running)
    assert asking.wire_address_of("actor") is None
    with pytest.raises(errors.JobError, match="actor-0 of run run has no wire: it is open from"):
        puppet.job.wire.handle("add", print)


def test_a_worker_in_a_long_poll_tells_its_status_at_once(space, asking):
    puppet, release, began = toy_workers.Puppet(), threading.Event(), threading.Event()
    puppet.tasks.put(lambda: (began.set(), release.wait(DEADLINE)) and None)
    running = toy_workers.Running(puppet, space=space)
    assert began.wait(DEADLINE)
    with asking.connect("actor", timeout=DEADLINE) as client:
        answer = client.request(commands.STATUS, timeout_seconds=DEADLINE)
    told = status.Status.from_json(answer.body[commands.STATUS])
    assert (told.name, told.state) == ("actor-0", states.RUNNING)
    assert told.poll_seconds > 0
    release.set()
    finish(running)


def test_who_waits_for_a_job_that_does_not_come_is_told_so(asking):
    with pytest.raises(
        errors.JobTimeoutError, match="learner-0 of run run has waited 0.3 s for actor-2: it is not"
    ):
        asking.connect("actor", 2, timeout=0.3)


def test_who_waits_for_a_job_can_be_asked_to_end(asking):
    asking.stopping.set()
    with pytest.raises(job.Stopping, match="was asked to end while it waited for actor-0"):
        asking.connect("actor", timeout=DEADLINE)


def test_a_long_wait_for_a_job_is_said_in_the_log(asking, caplog, monkeypatch):
    monkeypatch.setattr(job, "_SAY_SECONDS", 0.1)
    with pytest.raises(errors.JobTimeoutError):
        asking.connect("actor", timeout=0.7)
    (said,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"learner-0 of run run has waited \d+ s for actor-0", said)


def test_a_job_that_moved_is_at_another_address(space, asking):
    first = toy_workers.Running(toy_workers.Puppet(), space=space)
    with asking.connect("actor", timeout=DEADLINE) as client:
        finish(first)
        second = toy_workers.Running(toy_workers.Puppet(), space=space)
        with asking.connect("actor", timeout=DEADLINE) as again:
            assert again.address == asking.wire_address_of("actor") != client.address
    finish(second)


@pytest.mark.parametrize("damage", ["", "{", "[]", "here", '{"pid": 1}', "null", "[" * 9_000])
def test_a_damaged_lease_is_no_lease(space, asking, damage):
    name = names.lease("run", "actor", 0)
    asking.names.add(name, damage)
    assert asking.wire_address_of("actor") is None
    # Whoever is that job takes its place.
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    with asking.connect("actor", timeout=DEADLINE) as client:
        client.request(commands.STATUS, timeout_seconds=DEADLINE)
    finish(running)


@pytest.mark.parametrize("field, value", [("pid", "1"), ("wire", 5), ("machine", None)])
def test_a_lease_with_values_of_other_types_is_refused(field, value):
    entry = dataclasses.asdict(lease_lib.LeaseEntry.of_this_process("a"))
    assert lease_lib.LeaseEntry.from_json(json.dumps(entry)).is_alive()
    with pytest.raises(errors.JobError, match="not a lease"):
        lease_lib.LeaseEntry.from_json(json.dumps({**entry, field: value}))


def test_a_job_for_other_machines_without_keys_is_refused_with_both_ways_out(space):
    with pytest.raises(errors.ConfigError, match="actor-learner keys FILE.*--host=localhost"):
        toy_workers.Running(toy_workers.Puppet(), space=space, host="10.0.0.7").join()
    # It has left no lease behind.
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    finish(running)


def test_jobs_with_the_same_keys_reach_each_other_and_others_are_told_why_not(space, asking):
    shared = keys.RunKeys.generate()
    running = toy_workers.Running(toy_workers.Puppet(), space=space, host="127.0.0.1", keys=shared)
    with pytest.raises(errors.JobTimeoutError):
        asking.connect("actor", 1, timeout=0)
    with pytest.raises(
        errors.ConfigError, match="actor-0 demands the keys of its run, but .* has none"
    ):
        asking.connect("actor", timeout=DEADLINE)
    asking.keys = keys.RunKeys.generate()
    with pytest.raises(errors.ConfigError, match="has other keys: set ACTOR_LEARNER_KEYS"):
        asking.connect("actor", timeout=DEADLINE)
    asking.keys = shared
    with asking.connect("actor", timeout=DEADLINE) as client:
        client.request(commands.STATUS, timeout_seconds=DEADLINE)
    finish(running)


def test_a_job_for_other_machines_listens_for_them(space, asking):
    """By way of the machine's own name for loopback, which no keyless wire would listen for."""
    shared = keys.RunKeys.generate()
    running = toy_workers.Running(toy_workers.Puppet(), space=space, host="0.0.0.0", keys=shared)
    asking.keys = shared
    with asking.connect("actor", timeout=DEADLINE) as client:
        assert client.address.startswith("tcp://0.0.0.0:")
        client.request(commands.STATUS, timeout_seconds=DEADLINE)
    finish(running)

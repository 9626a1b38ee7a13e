"""The life of a worker, in threads: states, commands, heartbeats, failures."""

import dataclasses
import subprocess
import sys
import threading
import uuid

import numpy as np
import pytest

from actor_learner import run_directory
from actor_learner.jobs import commands, controller, states, status, worker
from actor_learner.jobs.presence import job_entries, names
from actor_learner.messaging import protocol
from actor_learner.naming import memory
from actor_learner.support import errors
from tests.jobs import toy_workers

DEADLINE = toy_workers.DEADLINE


@pytest.fixture
def space():
    return uuid.uuid4().hex


@pytest.fixture
def commander(space):
    with controller.Controller(memory.MemoryRegistry(space), "run") as made:
        yield made


def finish(running):
    running.worker.tasks.put(lambda: True)
    return running.join()


def wait_until(predicate):
    """Waits for what no event announces; the deadline is generous."""
    deadline = threading.Event()
    timer = threading.Timer(DEADLINE, deadline.set)
    timer.daemon = True
    timer.start()
    while not predicate():
        assert not deadline.wait(0.01), "waited in vain"
    timer.cancel()


def test_a_worker_is_configured_polled_until_done_and_closed(space, commander):
    puppet = toy_workers.Puppet()
    puppet.tasks.put(lambda: None)
    puppet.tasks.put(lambda: np.bool_(False))
    puppet.tasks.put(lambda: worker.PollResult(done=True))
    assert toy_workers.Running(puppet, space=space).join() == states.COMPLETED
    assert puppet.calls == ["configure", "poll", "poll", "poll", "close"]
    assert commander.worker("actor").state == states.COMPLETED


def test_commands_take_a_worker_through_its_states(space, commander):
    puppet = toy_workers.Puppet()
    running = toy_workers.Running(puppet, space=space, hold=True)
    commander.wait_for(states.READY, ["actor-0"], timeout=DEADLINE)
    assert commander.send("start")["actor-0"].state == states.RUNNING
    assert commander.send("pause")["actor-0"].state == states.PAUSED
    assert commander.worker("actor").state == states.PAUSED
    assert puppet.calls == ["configure", "on_pause"]
    puppet.tasks.put(lambda: None)
    commander.send("ping")
    assert "poll" not in puppet.calls  # A paused worker does not work.
    assert commander.send("resume")["actor-0"].state == states.RUNNING
    wait_until(lambda: "poll" in puppet.calls)
    assert commander.send("exit")["actor-0"].error is None
    assert running.join() == states.COMPLETED
    assert puppet.calls == ["configure", "on_pause", "on_resume", "poll", "close"]
    commander.wait_for(states.COMPLETED, ["actor-0"], timeout=DEADLINE)


def test_a_command_that_makes_no_sense_is_refused_and_changes_nothing(space, commander):
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    with pytest.raises(
        errors.JobError, match="'resume' needs a worker that is paused, but actor-0"
    ):
        commander.send("resume")
    with pytest.raises(errors.JobError, match="'jump' is not a command"):
        commander.send("jump")
    assert commander.worker("actor").state == states.RUNNING
    finish(running)


def test_commands_go_to_the_kind_and_index_named(space, commander):
    everyone = [
        toy_workers.Running(toy_workers.Puppet(), kind, index, space=space)
        for kind, index in (("actor", 0), ("actor", 1), ("learner", 0))
    ]
    commander.wait_for(states.RUNNING, ["actor-0", "actor-1", "learner-0"], timeout=DEADLINE)
    assert set(commander.send("pause", kind="actor")) == {"actor-0", "actor-1"}
    assert set(commander.send("resume", kind="actor", index=1)) == {"actor-1"}
    found = [(seen.name, seen.state) for seen in commander.workers()]
    assert found == [("actor-0", "paused"), ("actor-1", "running"), ("learner-0", "running")]
    with pytest.raises(errors.JobError, match="no evaluator of run run is alive"):
        commander.send("pause", kind="evaluator")
    commander.send("exit")
    for running in everyone:
        running.join()


def test_a_long_poll_keeps_beating_is_visible_and_answers_pings_but_no_commands(space, commander):
    puppet, release = toy_workers.Puppet(), threading.Event()
    began = threading.Event()
    puppet.tasks.put(lambda: (began.set(), release.wait(DEADLINE)) and None)
    running = toy_workers.Running(puppet, space=space)
    assert began.wait(DEADLINE)
    assert commander.send("ping")["actor-0"].poll_seconds > 0
    with pytest.raises(errors.JobTimeoutError, match="'pause' was not answered .* by actor-0"):
        commander.send("pause", timeout=0.5)
    wait_until(lambda: commander.worker("actor").poll_seconds > 2.0)
    release.set()
    # Nobody waits for the answer to the pause any more, so it is not obeyed.
    assert commander.send("ping")["actor-0"].state == states.RUNNING
    assert "on_pause" not in puppet.calls
    finish(running)


def test_one_that_takes_no_commands_keeps_them_from_nobody_else(space, commander):
    everyone = [
        toy_workers.Running(toy_workers.Puppet(), "actor", index, space=space) for index in (0, 1)
    ]
    commander.wait_for(states.RUNNING, ["actor-0", "actor-1"], timeout=DEADLINE)
    stuck = memory.MemoryRegistry(space)
    # As a worker looks whose process was stopped: its lease lives, and its wire is silent.
    entry = dataclasses.replace(
        job_entries.LeaseEntry.of_this_process("a"), wire="tcp://127.0.0.1:9"
    )
    stuck.add(names.lease("run", "actor", 2), entry.to_json())
    shown = status.Status("actor", 2, states.CONFIGURING, incarnation="a").to_json()
    stuck.add(names.record("run", "actor", 2), shown)
    with pytest.raises(errors.JobTimeoutError, match="not answered within 5 s by actor-2 of"):
        commander.send("pause", timeout=5.0, only=[states.RUNNING])
    found = {seen.name: seen for seen in commander.workers()}
    assert {name: seen.state for name, seen in found.items()} == {
        "actor-0": "paused", "actor-1": "paused", "actor-2": "configuring"
    }  # fmt: skip
    assert found["actor-2"].silent_seconds > 2.0
    assert "(silent for 0:" in found["actor-2"].describe()
    stuck.clear_subtree(names.place("run", "actor", 2))
    commander.send("exit")
    for running in everyone:
        running.join()


@pytest.mark.parametrize(
    "body, words",
    [
        ({}, "a command needs a name"),
        ({"command": 3, "seconds": 1}, "a command needs a name"),
        ({"command": "pause", "seconds": "long"}, "'seconds' to wait"),
        ({"command": "jump", "seconds": 1}, "'jump' is not a command"),
    ],
)
def test_what_is_not_a_command_is_refused(space, commander, body, words):
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    with running.job.connect("actor", timeout=DEADLINE) as client:
        with pytest.raises(protocol.RefusedError, match=words):
            client.request(commands.COMMAND, body, timeout_seconds=DEADLINE)
    assert commander.send("ping")["actor-0"].state == states.RUNNING
    finish(running)


def test_commands_that_nobody_can_obey_yet_do_not_pile_up(space, commander):
    puppet, release, began = toy_workers.Puppet(), threading.Event(), threading.Event()
    puppet.tasks.put(lambda: (began.set(), release.wait(DEADLINE)) and None)
    running = toy_workers.Running(puppet, space=space)
    assert began.wait(DEADLINE)
    body = {"command": "start", "seconds": DEADLINE}
    with running.job.connect("actor", timeout=DEADLINE) as client:
        sent = [
            client.submit(commands.COMMAND, body, timeout_seconds=DEADLINE) for _ in range(1_100)
        ]
        client.request(commands.PING, timeout_seconds=DEADLINE)
        release.set()
        refused = [str(answer.exception(DEADLINE)) for answer in sent]
    assert (
        sum("1,000 commands are already waiting for actor-0" in words for words in refused) == 100
    )
    assert sum("'start' needs a worker that is ready" in words for words in refused) == 1_000
    finish(running)


def test_a_worker_that_is_closing_refuses_commands_at_once_and_agrees_to_end(space, commander):
    puppet, closing, release = toy_workers.Puppet(), threading.Event(), threading.Event()
    puppet.on_close = lambda: (closing.set(), release.wait(DEADLINE))
    running = toy_workers.Running(puppet, space=space)
    puppet.tasks.put(lambda: True)
    assert closing.wait(DEADLINE)
    assert commander.worker("actor").message == "closing"
    with pytest.raises(errors.JobError, match="actor-0 of run run is ending"):
        commander.send("pause", timeout=DEADLINE)
    assert commander.send("exit", timeout=DEADLINE)["actor-0"].error is None
    release.set()
    assert running.join() == states.COMPLETED


def test_exit_reaches_a_long_poll_that_looks_for_it(space, commander):
    puppet = toy_workers.Puppet()
    began = threading.Event()
    puppet.tasks.put(lambda: (began.set(), puppet.job.stopping.wait(DEADLINE)) and None)
    running = toy_workers.Running(puppet, space=space)
    assert began.wait(DEADLINE)
    assert commander.send("exit", timeout=DEADLINE)["actor-0"].error is None
    assert running.join() == states.COMPLETED


def test_an_exception_travels_to_the_controller_with_its_traceback(space, commander, tmp_path):
    def fail():
        try:
            {}["pager"]
        except KeyError as error:
            raise RuntimeError("no pager ±") from error

    puppet = toy_workers.Puppet()
    run_dir = run_directory.RunDirectory(tmp_path)
    running = toy_workers.Running(puppet, space=space, run_dir=run_dir)
    puppet.tasks.put(fail)
    with pytest.raises(RuntimeError, match="no pager"):
        running.join()
    assert puppet.calls[-1] == "close"
    failure = commander.failures()["actor-0"]
    assert (failure.type, failure.message) == ("RuntimeError", "no pager ±")
    assert "KeyError: 'pager'" in failure.traceback and "in fail" in failure.traceback
    written = (tmp_path / "jobs" / "actor-0" / "error.txt").read_text()
    assert failure.traceback in written
    with pytest.raises(errors.JobError, match="(?s)RuntimeError: no pager.*KeyError: 'pager'"):
        commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    # The next life begins without the old error.
    second = toy_workers.Running(toy_workers.Puppet(), space=space, run_dir=run_dir)
    assert finish(second) == states.COMPLETED
    assert not (tmp_path / "jobs" / "actor-0" / "error.txt").exists()
    assert commander.failures() == {}


@pytest.mark.parametrize("method", ["configure", "close"])
def test_a_failure_of_any_method_is_an_error(space, commander, method):
    puppet = toy_workers.Puppet()
    setattr(puppet, f"on_{method}", lambda: 1 / 0)
    puppet.tasks.put(lambda: True)
    with pytest.raises(ZeroDivisionError):
        toy_workers.Running(puppet, space=space).join()
    assert puppet.calls.count("close") == 1
    assert commander.worker("actor").failure.type == "ZeroDivisionError"


def test_what_is_closed_after_a_failure_does_not_hide_it(space, commander):
    puppet = toy_workers.Puppet()
    puppet.on_close = lambda: 1 / 0
    puppet.tasks.put(lambda: [][0])
    with pytest.raises(IndexError):
        toy_workers.Running(puppet, space=space).join()
    assert commander.worker("actor").failure.type == "IndexError"


def test_a_status_carries_rates_version_and_what_the_worker_adds(space, commander):
    puppet = toy_workers.Puppet()
    running = toy_workers.Running(puppet, "learner", space=space, restarts=3, incarnation="a")
    for steps in range(3):
        puppet.contributed = {
            "steps": np.int64(100 * steps), "version": 7, "message": "warm", "loss": 0.5
        }  # fmt: skip
        reached = lambda steps=steps: commander.workers()[0].steps == 100 * steps  # noqa: E731
        wait_until(lambda reached=reached: commander.workers() and reached())
    seen = commander.worker("learner")
    assert (seen.version, seen.message, seen.restarts) == (7, "warm", 3)
    assert seen.details == {"loss": 0.5}
    assert seen.steps_per_second > 0
    assert seen.describe().startswith("learner-0: running, 200 steps, ")
    finish(running)
    last = commander.worker("learner")
    assert last.state == states.COMPLETED and last.steps == 200 and last.steps_per_second is None


@pytest.mark.parametrize(
    "contributed, words",
    [
        ({"model": object()}, "which JSON cannot represent"),
        ({"steps": "many"}, "steps='many'"),
        ([1], "returned a list"),
        ({"text": "x" * 9_000}, "9,0.. characters"),
    ],
)
def test_a_status_that_cannot_be_shown_is_an_error_that_names_it(space, contributed, words):
    puppet = toy_workers.Puppet()
    puppet.contributed = contributed
    with pytest.raises(errors.JobError, match=words):
        toy_workers.Running(puppet, space=space).join()


def test_a_poll_that_returns_something_else_is_an_error(space):
    puppet = toy_workers.Puppet()
    puppet.tasks.put(lambda: 3)
    with pytest.raises(errors.JobError, match="returned 3; it must return True, False"):
        toy_workers.Running(puppet, space=space).join()


def test_of_two_processes_that_want_a_place_the_second_is_refused(space, commander):
    first = toy_workers.Running(toy_workers.Puppet(), "learner", space=space)
    commander.wait_for(states.RUNNING, ["learner-0"], timeout=DEADLINE)
    second = toy_workers.Puppet()
    with pytest.raises(errors.JobError, match="learner-0 of run run is already running, as proc"):
        toy_workers.Running(second, "learner", space=space).join()
    assert second.calls == []
    assert commander.worker("learner").state == states.RUNNING
    finish(first)
    third = toy_workers.Running(toy_workers.Puppet(), "learner", space=space)
    assert finish(third) == states.COMPLETED


def test_a_worker_whose_place_was_taken_ends_and_leaves_the_successor_alone(space, commander):
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    thief = memory.MemoryRegistry(space)
    thief.add(names.lease("run", "actor", 0), "{}", replace=True)
    with pytest.raises(errors.JobError, match="another process has taken its place"):
        running.join()
    assert running.worker.calls[-1] == "close" and running.job.displaced
    left = status.Status.from_json(thief.get(names.record("run", "actor", 0)))
    assert left.state in states.LIVE  # Not overwritten by the loser's end.


def test_a_worker_that_has_a_successor_by_the_time_it_is_told_to_end_knows_it(space, commander):
    puppet = toy_workers.Puppet()
    displaced = []
    puppet.on_close = lambda: displaced.append(puppet.job.displaced)
    # One heartbeat, and then none for longer than the test takes: as if it had been stopped.
    running = toy_workers.Running(
        puppet, space=space, heartbeat_seconds=10 * DEADLINE, lost_after_seconds=20 * DEADLINE
    )
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)

    def succeed_and_end():
        memory.MemoryRegistry(space).add(names.lease("run", "actor", 0), "{}", replace=True)
        return True

    puppet.tasks.put(succeed_and_end)
    with pytest.raises(errors.JobError, match="another process has taken its place"):
        running.join()
    assert displaced == [True]


def test_a_worker_whose_place_was_taken_while_it_waited_does_not_complete(space, commander):
    puppet = toy_workers.Puppet()
    puppet.on_configure = lambda: puppet.job.address_of("replay", timeout=10 * DEADLINE)
    running = toy_workers.Running(puppet, space=space)
    commander.wait_for(states.CONFIGURING, ["actor-0"], timeout=DEADLINE)
    memory.MemoryRegistry(space).add(names.lease("run", "actor", 0), "{}", replace=True)
    with pytest.raises(errors.JobError, match="another process has taken its place"):
        running.join()


def test_a_worker_that_is_forgotten_by_its_registry_comes_back(space, commander):
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    memory.MemoryRegistry(space).clear_subtree("run")
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    finish(running)


def test_a_silent_worker_is_lost_and_those_who_wait_are_told(space, commander):
    running = toy_workers.Running(toy_workers.Puppet(), space=space)
    commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    finish(running)
    registry = memory.MemoryRegistry(space)
    name = names.record("run", "actor", 0)
    registry.add(name, registry.get(name).replace("completed", "running"), replace=True)
    seen = commander.worker("actor")
    assert seen.state == states.LOST
    assert "was running; its heartbeats have stopped" in seen.describe()
    with pytest.raises(errors.JobTimeoutError, match="actor-0: lost.*; actor-1: never seen"):
        commander.wait_for(states.RUNNING, ["actor-0", "actor-1"], timeout=0.1)
    commander.forget_ended()
    assert commander.workers() == []
    with pytest.raises(errors.JobError, match="no worker actor-0; it has none"):
        commander.worker("actor")


def test_an_address_lives_as_long_as_its_job(space, commander):
    server = toy_workers.Puppet()
    hold = threading.Event()
    server.on_configure = lambda: (
        hold.wait(DEADLINE), server.job.publish_address("10.0.0.7:8008")
    )  # fmt: skip
    serving = toy_workers.Running(server, "replay", space=space)
    client = toy_workers.Puppet()
    found = []
    client.on_configure = lambda: found.append(client.job.address_of("replay", timeout=DEADLINE))
    asking = toy_workers.Running(client, "actor", space=space)
    hold.set()
    finish(asking)
    assert found == ["10.0.0.7:8008"]
    finish(serving)
    with pytest.raises(errors.JobTimeoutError, match="actor-0 of run run has waited 0 s for repl"):
        asking.job.address_of("replay", timeout=0)


def test_a_job_that_waits_for_an_address_can_be_asked_to_end(space, commander):
    puppet = toy_workers.Puppet()
    puppet.on_configure = lambda: puppet.job.address_of("replay", timeout=10 * DEADLINE)
    running = toy_workers.Running(puppet, space=space)
    commander.wait_for(states.CONFIGURING, ["actor-0"], timeout=DEADLINE)
    commander.send("exit")
    assert running.join() == states.COMPLETED
    assert puppet.calls == ["configure", "close"]


def test_jobs_import_no_tensorflow():
    code = (
        "import sys, actor_learner, actor_learner.jobs.worker, actor_learner.jobs.controller\n"
        "import actor_learner.jobs.main, actor_learner.launch.supervisor\n"
        "assert 'tensorflow' not in sys.modules and 'reverb' not in sys.modules\n"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

"""`actor-learner control`: jobs of a run under way are shown, paused, resumed and ended."""

import dataclasses
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from actor_learner import cli
from actor_learner.jobs import controller, states
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import job_entries
from actor_learner.jobs.presence import names as job_names
from actor_learner.naming import files
from tests.jobs import toy_workers


@pytest.fixture
def workers():
    """The puppets that live as jobs of the run, by name."""
    return {name: toy_workers.Puppet() for name in ("actor-0", "actor-1", "watcher-0")}


@pytest.fixture
def run(tmp_path, monkeypatch, workers):
    """The directory of a run with two actors and a watcher."""
    monkeypatch.delenv("ACTOR_LEARNER_REGISTRY", raising=False)
    directory = tmp_path / "run"
    directory.mkdir()
    registry = directory / "registry"
    jobs = [
        toy_workers.Running(
            workers[f"{kind}-{index}"],
            kind,
            index,
            names=files.FileRegistry(registry),
            run_dir=None,
        )
        for kind, index in (("actor", 0), ("actor", 1), ("watcher", 0))
    ]
    names = files.FileRegistry(registry)
    watching = controller.Controller(names, "run")
    everybody = ["actor-0", "actor-1", "watcher-0"]
    watching.wait_for(states.RUNNING, everybody, timeout=toy_workers.DEADLINE)
    yield directory, watching
    live = [s.name for s in watching.workers() if s.state in states.LIVE]
    if live:
        watching.send(states.EXIT)
    for job in jobs:
        job.join()


def control(directory, *arguments):
    return cli.main(["control", str(directory), *arguments])


def state_of(watching):
    return {status.name: status.state for status in watching.workers()}


def test_one_job_a_kind_and_all_jobs_are_paused_and_resumed(run, capsys):
    directory, watching = run
    assert control(directory, "pause", "--job=actor-1") == 0
    assert capsys.readouterr().out == "actor-1 is paused\n"
    assert state_of(watching) == {
        "actor-0": "running", "actor-1": "paused", "watcher-0": "running"
    }  # fmt: skip
    assert control(directory, "pause") == 0  # The one that is paused already stays so.
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["actor-0 is paused", "watcher-0 is paused"]
    assert len(shown) == 3 and shown[2].startswith("not reached: actor-1: paused")
    assert control(directory, "resume", "--job=actor") == 0
    assert state_of(watching) == {
        "actor-0": "running", "actor-1": "running", "watcher-0": "paused"
    }  # fmt: skip


def test_a_job_is_ended_by_name_and_never_all_by_mistake(run, capsys):
    directory, watching = run
    assert control(directory, "exit") == 2
    assert "which job is to end?" in capsys.readouterr().err
    assert control(directory, "exit", "--job=actor-0") == 0
    watching.wait_for(states.COMPLETED, ["actor-0"], timeout=toy_workers.DEADLINE)
    assert state_of(watching)["actor-1"] == "running"


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["resume"], 1, "no worker of run run is paused. Known workers: actor-0: running"),
        (
            ["pause", "--job=learner"],
            1,
            "no learner of run run is alive. Known workers: actor-0: running",
        ),
        (["resume", "--job=actor-0"], 1, "'resume' needs a worker that is paused, but actor-0"),
        (["pause", "--job=actor-one"], 2, "--job=actor-one is not a job"),
    ],
)
def test_what_cannot_be_done_is_said(run, capsys, arguments, code, words):
    assert control(run[0], *arguments) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["control", "nowhere", "status"], ["scale", "nowhere", "--actors=2"]]
)
def test_a_run_that_is_not_there_is_missed_by_its_name(command, capsys, monkeypatch):
    monkeypatch.delenv("ACTOR_LEARNER_REGISTRY", raising=False)
    assert cli.main(command) == 2
    assert "there is no directory nowhere: give that of a run" in capsys.readouterr().err


def leave(directory, made):
    """Leaves the status of a worker that shows no heartbeats."""
    with files.FileRegistry(directory / "registry") as names:
        names.add(job_names.record("run", made.kind, made.index), made.to_json())


def test_status_shows_all_workers_in_a_table(run, workers, capsys):
    directory, watching = run
    workers["actor-0"].contributed = {"steps": 1_200, "version": 90, "message": "two  words"}
    leave(
        directory,
        status_lib.Status("learner", 0, "completed", 7, "beta", restarts=2, steps=99, version=100),
    )
    deadline = time.monotonic() + toy_workers.DEADLINE
    while watching.worker("actor").steps != 1_200:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert control(directory, "status") == 0
    head, *rows = (re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines())
    assert head == [
        "job", "state", "process", "steps", "steps/s", "version", "lag", "restarts", "note"
    ]  # fmt: skip
    by_name = {row[0]: row[1:] for row in rows}
    assert list(by_name) == ["actor-0", "actor-1", "learner-0", "watcher-0"]
    assert by_name["learner-0"] == ["completed", "beta/7", "99", "-", "100", "-", "2", "-"]
    state, process, steps, _, version, lag, restarts, note = by_name["actor-0"]
    assert process == f"{socket.gethostname()}/{os.getpid()}"
    assert (state, steps, version, lag) == ("running", "1,200", "90", "10")
    assert (restarts, note) == ("0", "two words")
    assert control(directory, "status", "--job=actor") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_ping_tells_who_answers_even_during_a_poll_and_who_does_not(run, workers, capsys):
    directory, _ = run
    began, end = threading.Event(), threading.Event()
    workers["actor-1"].tasks.put(lambda: began.set() or end.wait(toy_workers.DEADLINE) and None)
    assert began.wait(toy_workers.DEADLINE)
    leave(directory, status_lib.Status("learner", 0, "completed"))
    try:
        assert control(directory, "ping") == 0
    finally:
        end.set()
    lines = capsys.readouterr().out.splitlines()
    for job in ("actor-0", "actor-1", "watcher-0"):
        assert any(
            re.fullmatch(rf"{job} answers: running, in a poll for \d+\.\d s", line)
            for line in lines
        )
    assert "learner-0: completed" in lines
    leave(directory, status_lib.Status("actor", 7, "running"))
    assert control(directory, "ping") == 1
    said = capsys.readouterr().out
    assert "no answer of actor-7: lost (was running; its heartbeats have stopped)" in said
    assert said.count("answers: running") == 3
    assert control(directory, "ping", "--job=actor-0") == 0


def test_a_live_worker_that_is_silent_is_named(run, capsys):
    directory, _ = run
    # Its heartbeats go on, but nobody listens on its wire.
    leave(directory, status_lib.Status("painter", 0, "running"))
    entry = dataclasses.replace(
        job_entries.LeaseEntry.of_this_process(""), wire="tcp://127.0.0.1:9"
    )
    with files.FileRegistry(directory / "registry") as names:
        names.add(job_names.lease("run", "painter", 0), entry.to_json())
        assert control(directory, "ping", "--timeout=0.5", "--job=painter") == 1
        names.delete(job_names.lease("run", "painter", 0))
    said = capsys.readouterr().out
    assert re.fullmatch(r"no answer of painter-0: running \(silent for \S+\)\n", said)


def test_workers_that_were_never_there_are_said(run, capsys):
    directory, _ = run
    assert control(directory, "status", "--job=learner") == 1
    assert "has no worker learner; it has actor-0, actor-1, watcher-0" in capsys.readouterr().err
    assert control(directory, "ping", "--job=actor-9") == 1
    assert "has no worker actor-9" in capsys.readouterr().err


def test_a_run_is_looked_at_without_tensorflow(run):
    script = (
        "import sys; from actor_learner import cli; "
        "code = cli.main(['control', sys.argv[1], 'status']) or "
        "cli.main(['control', sys.argv[1], 'ping']); "
        "sys.exit(code or 5 * ('tensorflow' in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", script, str(run[0])], check=True, timeout=120)


def test_a_run_that_is_nowhere_is_not_made(tmp_path, capsys):
    assert control(tmp_path / "no" / "run", "pause") == 2
    assert "does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

"""`actor-learner control`: jobs of a run under way are paused, resumed and ended by name."""

import pytest

from actor_learner import cli
from actor_learner.jobs import controller, states
from actor_learner.naming import files
from tests.jobs import toy_workers


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The directory of a run with two actors and a watcher."""
    monkeypatch.delenv("ACTOR_LEARNER_REGISTRY", raising=False)
    directory = tmp_path / "run"
    directory.mkdir()
    registry = directory / "registry"
    jobs = [
        toy_workers.Running(
            toy_workers.Puppet(), kind, index, names=files.FileRegistry(registry), run_dir=None
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
    assert capsys.readouterr().out == "actor-0 is paused\nwatcher-0 is paused\n"
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
        (["resume"], 1, "no worker of run run is paused. Those known: actor-0: running"),
        (["pause", "--job=learner"], 1, "no learner of run run is alive"),
        (["resume", "--job=actor-0"], 1, "is running: 'resume' is for one that is paused"),
        (["pause", "--job=actor-one"], 2, "--job=actor-one is no job"),
    ],
)
def test_what_cannot_be_done_is_said(run, capsys, arguments, code, words):
    assert control(run[0], *arguments) == code
    assert words in capsys.readouterr().err


def test_a_run_that_is_nowhere_is_not_made(tmp_path, capsys):
    assert control(tmp_path / "no" / "run", "pause") == 2
    assert "does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

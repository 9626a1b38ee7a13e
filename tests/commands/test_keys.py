"""The keys of a run: made by hand or by `up`, read by whoever has its directory, never shown."""

import json
import os
import pathlib
import stat
import sys

import pytest

from actor_learner import cli, run_directory
from actor_learner.commands import up
from actor_learner.jobs import controller, job, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.messaging import keys
from actor_learner.naming import files
from actor_learner.support import errors
from tests.commands import test_up
from tests.jobs import toy_workers

OUTSIDE = "10.1.2.3"


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACTOR_LEARNER_REGISTRY", raising=False)
    monkeypatch.delenv(keys.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(rendezvous, "interface_address", lambda: OUTSIDE)


def test_keys_are_made_for_their_owner_only_and_never_overwritten(tmp_path, capsys):
    assert cli.main(["keys", "mine.keys"]) == 0
    said = capsys.readouterr().out
    assert "chmod 600" in said and keys.VARIABLE in said
    made = keys.RunKeys.load("mine.keys")
    assert stat.S_IMODE(os.stat("mine.keys").st_mode) == 0o600
    assert made.server_secret not in said and made.client_secret not in said
    assert cli.main(["keys", "mine.keys"]) == 2
    assert "exists: jobs may be using these keys" in capsys.readouterr().err
    assert keys.RunKeys.load("mine.keys").to_json() == made.to_json()


def test_a_run_on_this_machine_alone_needs_no_keys(monkeypatch):
    jobs = test_up.started_with(monkeypatch, "--run_dir=run")
    assert not any(keys.VARIABLE in spec.environment for spec in jobs.values())
    assert not pathlib.Path("run/keys.json").exists()


@pytest.mark.parametrize(
    "flags", [["--registry=elsewhere"], ["--host=alpha"], ["--replay_host=alpha"]]
)
def test_up_makes_keys_where_other_machines_may_take_part(monkeypatch, flags):
    jobs = test_up.started_with(monkeypatch, "--run_dir=run", *flags)
    made = keys.RunKeys.load("run/keys.json")
    assert stat.S_IMODE(os.stat("run/keys.json").st_mode) == 0o600
    for spec in jobs.values():
        assert keys.RunKeys.from_json(spec.environment[keys.VARIABLE]) == made
        secrets = [value for name, value in json.loads(made.to_json()).items()]
        shown = [*spec.command, repr(spec)]
        assert not any(secret in text for secret in secrets for text in shown)
    # A resumed run has the same, so that jobs that were started by hand still belong to it.
    seen = {}
    monkeypatch.setattr(up.run_jobs, "run_jobs", lambda *_, **settings: seen.update(settings) or 0)
    assert test_up.run("--resume=run", *flags) == 0
    assert seen["keys"] == made


def test_up_on_one_machine_with_a_registry_elsewhere_can_do_without_keys(monkeypatch):
    jobs = test_up.started_with(
        monkeypatch, "--run_dir=run", "--registry=elsewhere", "--host=localhost"
    )
    assert not pathlib.Path("run/keys.json").exists()
    assert all("--host=localhost" in spec.command for spec in jobs.values())


def test_whoever_has_the_run_directory_has_its_keys(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    run_dir = run_directory.RunDirectory(tmp_path / "run")
    made = rendezvous.make_keys(run_dir)
    assert rendezvous.keys_of(run_dir) == rendezvous.make_keys(run_dir) == made
    registry = rendezvous.registry_in(run_dir)
    running = toy_workers.Running(
        toy_workers.Puppet(), names=files.FileRegistry(registry), keys=made, host="127.0.0.1"
    )
    with files.FileRegistry(registry) as names:
        with controller.Controller(names, "run", keys=made) as commander:
            commander.wait_for(states.RUNNING, ["actor-0"], timeout=toy_workers.DEADLINE)
        assert cli.main(["control", str(run_dir), "pause"]) == 0
        assert capsys.readouterr().out == "actor-0 is paused\n"
        # Without them one sees that there is a job, and why it does not answer.
        with controller.Controller(names, "run") as stranger:
            assert "demands the keys of its run" in stranger.worker("actor").describe()
            with pytest.raises(errors.ConfigError, match="actor-0 demands the keys of its run"):
                stranger.send("pause", timeout=5.0)
            with pytest.raises(errors.ConfigError, match="actor-0 demands the keys of its run"):
                stranger.wait_for(states.RUNNING, ["actor-0"], timeout=toy_workers.DEADLINE)
    os.chmod(rendezvous.keys_in(run_dir), 0o644)
    assert cli.main(["control", str(run_dir), "exit", "--job=actor"]) == 2
    assert "can be read by others: chmod 600" in capsys.readouterr().err
    os.chmod(rendezvous.keys_in(run_dir), 0o600)
    assert cli.main(["control", str(run_dir), "exit", "--job=actor"]) == 0
    running.join()


def test_a_job_by_hand_is_told_both_ways_out(tmp_path, capfd, monkeypatch):
    flags = ["actor", "--gin_file=dqn_cartpole", "--run=word", "--registry=names"]
    assert cli.main(flags) == 2
    said = capfd.readouterr().err
    assert f"as {OUTSIDE}, but the run has no keys" in said
    assert "actor-learner keys FILE" in said and "--host=localhost" in said
    with files.FileRegistry("names") as names:
        assert job.Job("learner", 0, "word", names).wire_address_of("actor") is None

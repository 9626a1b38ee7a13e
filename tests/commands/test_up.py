"""`actor-learner up`: what is checked first, what jobs are started with, what a run keeps."""

import argparse
import dataclasses
import json
import pathlib
import shlex
import sys

import gin
import pytest

from actor_learner import config, frozen_config, run_directory
from actor_learner.commands import up, up_options
from actor_learner.configuring import program, statements
from actor_learner.support import errors
from tests.launch import toy_up


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACTOR_LEARNER_REGISTRY", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def options(*argv):
    """The options that a command line amounts to."""
    parser = argparse.ArgumentParser()
    up.add_parser(parser.add_subparsers())
    return parser.parse_args(["up", *argv])


def run(*argv):
    arguments = options(*argv)
    return arguments.command(arguments)


def bindings_of(source):
    """What a configuration binds, in the order of execution: later ones win."""
    found = {}
    for _, step in program.read(source.gin_files, source.bindings).steps:
        if isinstance(step, statements.Binding):
            found[step.key] = step.value
    return found


@pytest.mark.parametrize(
    "argv, words",
    [
        ([], "up needs --gin_file=FILE. Ready-made: .*dqn_cartpole"),
        (["--gin_file=dqn_cartpol"], "did you mean 'dqn_cartpole"),
        (["--gin_file=dqn_cartpole", "--actors=0"], "--actors must be at least 1, got 0"),
        (["--gin_file=dqn_cartpole", "--evaluators=-1"], "--evaluators must be at least 0"),
        (["--gin_file=dqn_cartpole", "--policies=-1"], "--policies must be at least 0"),
        (
            ["--gin_file=dqn_cartpole", "--gin_param=Actor.inference_stream = 'remote'"],
            "there are no policy jobs to ask: pass --policies=1",
        ),
        (["--gin_file=dqn_cartpole", "--max_restarts=-1"], "--max_restarts must be at least 0"),
        (["--gin_file=dqn_cartpole", "--seed=-1"], "--seed must lie in"),
        (["--gin_file=dqn_cartpole", "--tolerate=replay"], "without these only: actor, evaluator"),
        (["--gin_file=dqn_cartpole", "--replay_port=0"], "--replay_port must lie in 1 to 65535"),
        (["--gin_file=dqn_cartpole", "--replays=0"], "--replays must be at least 1"),
        (
            ["--gin_file=dqn_cartpole", "--replays=3", "--replay_port=65534"],
            "3 replay servers take the ports up to 65536",
        ),
        (["--gin_file=dqn_cartpole", "--grace_seconds=-1"], "--grace_seconds must be at least 0"),
        (["--gin_file=dqn_cartpole", "--replay_grace_seconds=nan"], "must be at least 0, got nan"),
        (["--gin_file=dqn_cartpole", "--address=a:1"], "add --launcher=ray"),
        (["--gin_file=dqn_cartpole", "--launcher=ray"], "no name registry is given"),
        (["--gin_file=dqn_cartpole", "--detach"], "--detach leaves a run to a Ray cluster"),
        (["--attach=runs/none"], "--attach=runs/none: there is no such run directory"),
        (["--attach=mine", "--resume=runs/mine"], "leave out --resume"),
        (["--attach=mine", "--actors=4"], "--actors=4 would have no effect: leave out --actors"),
        (["--attach=mine", "--gin_param=a.b = 1"], "leave out --gin_param, or start a run"),
        (["--attach=mine", "--tolerate=actor"], "--tolerate=actor would have no effect"),
        (["--attach=mine", "--registry=redis://x"], "leave out --registry"),
        (
            ["--gin_file=dqn_cartpole", "--gin_param=Ray.resources = {'actr': {'num_cpus': 1}}"],
            "Ray.resources names 'actr', .*did you mean 'actor'",
        ),
        (["--gin_file=dqn_cartpole", "--registry=memory://x"], "would not find one another"),
        (["--gin_file=dqn_cartpole", "--gin_param=dqn.learning_rat = 1"], "learning_rate"),
        (["--gin_file=dqn_cartpole", "--gin_param=Jobs.extra = 3"], "Jobs.extra"),
        (["--resume=nowhere"], "nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(argv, words, tmp_path):
    with pytest.raises(errors.ConfigError, match=words):
        run(*argv)
    assert not (tmp_path / "runs").exists()


def test_jobs_are_the_same_programs_that_a_user_may_start_by_hand(tmp_path):
    run_dir = run_directory.RunDirectory(tmp_path / "run")
    specs = up.make_specs(
        run_dir, registry="redis://:secret@host:1", seed=5, actors=2, evaluators=1,
        own={"watcher": 2, "painter": 0}, resources={"learner": {"GPU": 1}},
        paths=["/beside/the/leaf"],
    )  # fmt: skip
    assert [spec.name for spec in specs] == [
        "replay-0", "learner-0", "actor-0", "actor-1", "evaluator-0", "watcher-0", "watcher-1"
    ]  # fmt: skip
    by_name = {spec.name: spec for spec in specs}
    assert by_name["actor-1"].command == [
        *(sys.executable, "-m", "actor_learner.jobs.main", "actor"),
        f"--gin_file={tmp_path}/run/config.gin",
        f"--run={tmp_path}/run",
        "--seed=5",
        "--index=1",
    ]
    for spec in specs:
        assert spec.environment["ACTOR_LEARNER_REGISTRY"] == "redis://:secret@host:1"
        assert "secret" not in repr(spec)
    assert by_name["learner-0"].command[-1] == "--num_evaluators=1"
    settings = {"registry": "run", "seed": 5, "actors": 1, "evaluators": 3}
    tolerant = up.make_specs(run_dir, **settings, tolerate=["evaluator"])
    assert tolerant[1].command[-1] == "--num_evaluators=0"
    assert by_name["watcher-0"].command[2:4] == ["actor_learner.jobs.main", "custom"]
    assert by_name["watcher-1"].command[-2:] == ["--index=1", "--job=watcher"]
    assert by_name["learner-0"].resources == {"GPU": 1}
    assert by_name["actor-0"].resources == {"CPU": 1}
    assert by_name["actor-0"].environment["PYTHONPATH"].endswith("/beside/the/leaf")
    ranks = {spec.kind: spec.stop_rank for spec in specs}
    assert ranks["watcher"] == ranks["actor"] == ranks["evaluator"] < ranks["learner"]
    assert ranks["learner"] < ranks["replay"]


def started_with(monkeypatch, *argv):
    """The jobs that a command line amounts to, none of them started, by name."""
    seen = {}

    def note(specs, *_, **settings):
        seen.update({spec.name: spec for spec in specs})
        return 0

    monkeypatch.setattr(up.run_jobs, "run_jobs", note)
    assert run("--gin_file=dqn_cartpole", *argv) == 0
    return seen


def test_gin_says_how_many_there_are_of_a_job_of_the_users_own(monkeypatch):
    extra = "--gin_param=Jobs.extra = {'watcher': @dqn, 'painter': @dqn}"
    jobs = started_with(monkeypatch, extra, "--gin_param=Jobs.counts = {'watcher': 3}")
    own = [name for name in jobs if name.startswith(("watcher", "painter"))]
    assert own == ["watcher-0", "watcher-1", "watcher-2", "painter-0"]


def test_a_local_run_is_not_taken_for_one_that_ended_on_a_cluster(monkeypatch, tmp_path):
    started_with(monkeypatch, "--run_dir=run")
    for name in ("ending.json", "ray.json"):
        (tmp_path / "run" / name).write_text("{}")
    assert run("--resume=run") == 0
    assert not list(tmp_path.glob("run/ending.json")) and not list(tmp_path.glob("run/ray.json"))


def test_jobs_that_may_fail_are_named_by_kind(monkeypatch):
    extra = "--gin_param=Jobs.extra = {'watcher': @dqn}"
    jobs = started_with(monkeypatch, extra, "--actors=2", "--tolerate=actor,watcher")
    tolerated = [name for name, spec in jobs.items() if spec.tolerated]
    assert tolerated == ["actor-0", "actor-1", "watcher-0"]
    assert not any(spec.tolerated for spec in started_with(monkeypatch).values())


def test_the_address_of_the_replay_server_can_be_given(monkeypatch):
    jobs = started_with(monkeypatch, "--replay_host=alpha", "--replay_port=8008")
    assert jobs["replay-0"].command[-2:] == ["--host=alpha", "--port=8008"]
    others = [job.command for name, job in jobs.items() if name != "replay-0"]
    assert not any(word.startswith(("--host", "--port")) for command in others for word in command)
    assert not started_with(monkeypatch)["replay-0"].command[-1].startswith("--port")


def test_several_replay_servers_know_how_many_they_are_and_have_ports_of_their_own(monkeypatch):
    jobs = started_with(monkeypatch, "--replays=2", "--replay_port=8008")
    assert [name for name in jobs if name.startswith("replay")] == ["replay-0", "replay-1"]
    for index in range(2):
        flags = {f"--index={index}", "--num_replays=2", f"--port={8008 + index}"}
        assert flags <= {*jobs[f"replay-{index}"].command}
    others = [job.command for name, job in jobs.items() if not name.startswith("replay")]
    assert not any("--num_replays" in word for command in others for word in command)


def test_the_replay_server_has_more_time_to_end_and_both_times_are_settings(monkeypatch):
    jobs = started_with(monkeypatch)
    assert (jobs["learner-0"].grace_seconds, jobs["replay-0"].grace_seconds) == (60, 300)
    jobs = started_with(monkeypatch, "--grace_seconds=90", "--replay_grace_seconds=1800")
    assert (jobs["actor-0"].grace_seconds, jobs["replay-0"].grace_seconds) == (90, 1_800)


def test_a_run_keeps_a_copy_of_its_configuration_that_says_the_same(tmp_path):
    beside = tmp_path / "mine"
    (beside / "parts").mkdir(parents=True)
    (beside / "leaf.gin").write_text(
        "include 'dqn_cartpole.gin'\n# Faster.\ndqn.learning_rate = 1e-2\n"
        "include 'parts/more.gin'  # At the end.\nExperiment.batch_size = 7\n"
    )
    (beside / "parts" / "more.gin").write_text("dqn:\n    n_step = 2\n    gamma = 0.5\n")
    source = config.ConfigSource((str(beside / "leaf.gin"),), ("dqn.n_step = 3", "dqn.n_step = 4"))
    config.check(source)
    run_dir = run_directory.RunDirectory(tmp_path / "run")
    frozen_config.write(run_dir, source)
    before = bindings_of(source)
    (beside / "leaf.gin").write_text("dqn.n_step = 9\n")
    (beside / "parts" / "more.gin").unlink()
    copy = config.ConfigSource((str(run_dir.config),))
    config.check(copy)
    assert bindings_of(copy) == before
    assert before["dqn.n_step"] == 4 and before["dqn.gamma"] == 0.5
    assert "# Faster." in (tmp_path / "run/config/00-leaf.gin").read_text()

    frozen_config.extend(run_dir, ["dqn.n_step = 5"])
    frozen_config.extend(run_dir, [])
    frozen_config.extend(run_dir, ["dqn.n_step = 6"])
    config.check(copy)
    assert bindings_of(copy) == {**before, "dqn.n_step": 6}

    elsewhere = tmp_path / "node"
    for name, text in frozen_config.contents(run_dir).items():
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text(text)
    shipped = config.ConfigSource((str(elsewhere / "config.gin"),))
    assert bindings_of(shipped) == bindings_of(copy)


def test_policy_jobs_are_started_before_the_actors_that_are_told_to_ask_them(monkeypatch):
    started = started_with(monkeypatch, "--policies=2", "--run_dir=run")
    names = list(started)
    assert names.index("policy-0") < names.index("policy-1") < names.index("actor-0")
    assert started["policy-1"].command[2:4] == ["actor_learner.jobs.main", "policy"]
    ranks = {spec.kind: spec.stop_rank for spec in started.values()}
    assert ranks["actor"] < ranks["policy"] < ranks["learner"]
    bound = bindings_of(config.ConfigSource(("run/config.gin",)))
    assert bound["Actor.inference_stream"] == "remote"
    gin.clear_config()


def test_a_run_is_described_locked_supervised_and_resumed(tmp_path, monkeypatch, capfd):
    started = []

    def toys(run_dir, **settings):
        started.append(settings)
        (run_dir.path / "learner-0.finish").touch()
        run_dir.metrics_jsonl.write_text('{"environment_steps": 5}\n')
        with pytest.raises(errors.ConfigError, match="is being trained by process"):
            with run_dir.locked():
                pass
        return [toy_up.spec(str(run_dir.path.absolute()), "learner-0")]

    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).resolve().parents[2]))
    monkeypatch.setattr(up, "make_specs", toys)
    assert run("--gin_file=dqn_cartpole", "--run_dir=run", "--seed=3", "--actors=2") == 0
    run_dir = run_directory.RunDirectory("run")
    assert run_dir.read_description()["seed"] == 3
    assert run_dir.read_description()["name"] == "dqn_cartpole"
    assert started[0]["registry"] == str(tmp_path / "run" / "registry")
    said = capfd.readouterr().err
    assert "run directory: run (seed 3)" in said and "completed: run" in said
    assert "actor-learner up --actors=2 --resume run" in said

    assert run("--resume=run", "--gin_param=dqn.n_step = 6", "--actors=5") == 0
    assert bindings_of(config.ConfigSource(("run/config.gin",)))["dqn.n_step"] == 6
    assert (started[1]["seed"], started[1]["actors"]) == (3, 5)
    assert len(json.loads((tmp_path / "run/run.json").read_text())["resumed"]) == 1
    with pytest.raises(errors.ConfigError, match="leave out --run_dir"):
        run("--resume=run", "--gin_file=dqn_cartpole")
    gin.clear_config()


def test_a_run_that_is_refused_on_the_way_leaves_no_directory(tmp_path, monkeypatch):
    def unreachable(*arguments, **settings):
        raise errors.JobError("run x is under way on this cluster")

    monkeypatch.setattr(up.ray_driver, "RayRun", unreachable)
    with pytest.raises(errors.JobError, match="is under way"):
        run("--gin_file=dqn_cartpole", "--launcher=ray", f"--registry={tmp_path}/names")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("trained", [False, True])
def test_a_run_whose_configuration_a_job_refuses_leaves_no_directory(
    trained, tmp_path, monkeypatch, capfd
):
    def toys(run_dir, **settings):
        if trained:  # Until an environment of the wrong shape was met, say.
            run_dir.metrics_jsonl.write_text("{}\n")
        return [toy_up.spec(str(run_dir.path.absolute()), "learner-0 --fail=configuration")]

    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).resolve().parents[2]))
    monkeypatch.setattr(up, "make_specs", toys)
    assert run("--gin_file=dqn_cartpole", "--run_dir=new/run") == 2
    said = capfd.readouterr().err
    assert said.count("error: the toy has no batteries") == 1
    assert (tmp_path / "new").exists() == trained
    gin.clear_config()


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--actors=3", "--evaluators=0", "--seed=7"],
        ["--tolerate=actor,evaluator", "--max_restarts=2", "--host=10.0.0.7"],
        ["--registry=/mnt/a b", "--grace_seconds=5", "--replay_grace_seconds=9.5"],
        ["--replay_host=10.0.0.8", "--replay_port=8008"],
        ["--replays=2"],
        ["--launcher=ray", "--address=10.0.0.9:6379", "--detach", "--registry=redis://x:1"],
    ],
)
def test_the_command_to_resume_starts_the_same_run_again(argv):
    def read(argv):
        return up_options.options_of(options(*argv))

    begun = read(["--gin_file=dqn_cartpole", "--run_dir=run", "--gin_param=dqn.n_step = 6", *argv])
    command, *flags = shlex.split(up_options.resume_command(begun))
    resumed = read([*flags, "--resume=run"])
    assert command == "up"
    # The run directory has these.
    kept = {"gin_files": (), "bindings": (), "run_dir": None, "seed": None}
    assert resumed == dataclasses.replace(begun, **kept, resume="run")
    # A seed that replaces the run's is in no file.
    again = up_options.resume_command(dataclasses.replace(resumed, seed=9))
    assert read([*shlex.split(again)[1:], "--resume=run"]).seed == 9


def test_the_command_to_resume_does_not_show_a_password():
    begun = up_options.UpOptions((), (), registry="redis://:secret@host:6379/0")
    assert up_options.resume_command(begun) == "up --registry=redis://host:6379/0"


def test_how_long_evaluators_may_take_in_the_end_is_a_setting(monkeypatch):
    seen = {}
    monkeypatch.setattr(up.run_jobs, "run_jobs", lambda *_, **settings: seen.update(settings) or 0)
    assert run("--gin_file=dqn_cartpole", "--gin_param=Jobs.final_evaluation_seconds = 7") == 0
    assert seen["final_seconds"] == 14


def test_a_run_of_this_machine_cannot_be_attached_to(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(errors.ConfigError, match="was not begun on a Ray cluster.* status"):
        run("--attach=mine")

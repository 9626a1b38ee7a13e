"""Jobs as programs: flags, exit codes, signals, and a job of the user's own from gin."""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from actor_learner import cli, config, jobs_settings
from actor_learner.jobs import controller, flags, main, states, worker
from actor_learner.jobs.presence import names
from actor_learner.naming import connect, files
from actor_learner.support import errors
from tests.jobs import toy_workers
from tests.launch import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 120.0


def parsed(*argv):
    parser = argparse.ArgumentParser()
    flags.add(parser)
    return parser.parse_args(argv)


def start(module, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_a_job_save_and_sets_its_exit_code(tmp_path, number, code):
    process = start("tests.launch.toy_job", "actor", f"--run={tmp_path}")
    watching = controller.Controller(files.FileRegistry(tmp_path / "registry"), tmp_path.name)
    processes.lines_of(tmp_path / "actor-0.pids", 1)
    watching.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    process.send_signal(number)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, said
    assert (tmp_path / "actor-0.saved").exists()
    assert "actor-0: running" in said and "actor-0: completed" in said
    assert watching.worker("actor").state == states.COMPLETED


def test_of_a_killed_job_the_place_is_free_at_once(tmp_path):
    first = start("tests.launch.toy_job", "learner", f"--run={tmp_path}")
    processes.lines_of(tmp_path / "learner-0.pids", 1)
    second = start("tests.launch.toy_job", "learner", f"--run={tmp_path}")
    _, said = second.communicate(timeout=DEADLINE)
    assert second.returncode == 1
    assert f"is already running, as process {first.pid}" in said
    first.kill()
    first.communicate(timeout=DEADLINE)
    (tmp_path / "learner-0.finish").touch()
    third = start("tests.launch.toy_job", "learner", f"--run={tmp_path}")
    _, said = third.communicate(timeout=DEADLINE)
    assert third.returncode == 0, said
    assert f"replaces process {first.pid}, which has died" in said


def test_an_exception_sets_the_exit_code_and_is_told_once(tmp_path):
    process = start("tests.launch.toy_job", "actor", f"--run={tmp_path}", "--fail=poll")
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert said.count("Traceback") == 1
    assert "error: RuntimeError: actor-0 of run" in said
    assert re.search(r"Raised in: .*toy_job\.py:\d+, in poll", said)


def test_a_job_started_by_hand_writes_its_log_to_the_run_directory(tmp_path):
    (tmp_path / "actor-0.finish").touch()
    process = start("tests.launch.toy_job", "actor", f"--run={tmp_path}")
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    log = tmp_path / "jobs" / "actor-0" / "log"
    assert f"log in {log}" in said
    logged = log.read_text()
    assert "actor-0 of run" in logged and "running" in logged
    # Whoever looks at the output of a container sees what is logged, too.
    assert [line for line in logged.splitlines() if line.endswith(": running")][0] in said


def test_a_launcher_that_keeps_the_log_of_a_job_is_left_to_it(tmp_path):
    (tmp_path / "actor-0.finish").touch()
    process = start(
        "tests.launch.toy_job", "actor", f"--run={tmp_path}", ACTOR_LEARNER_INCARNATION="1"
    )
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    assert "running" in said and not (tmp_path / "jobs" / "actor-0" / "log").exists()


def test_a_job_that_meets_a_nan_says_so_by_an_exit_code_of_its_own(tmp_path):
    process = start("tests.launch.toy_job", "actor", f"--run={tmp_path}", "--fail=nan")
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == states.FAILED_FOR_GOOD, said
    assert "met a NaN" in said


@pytest.mark.parametrize(
    "argv, words",
    [
        ([], "--run is missing"),
        (["--run=word"], "no name registry is given"),
        (["--run=word", "--registry=memory://x"], "within one process"),
        (["--run=runs/x", "--registry=./names", "--seed=-1"], "--seed=-1 is out of range"),
        (["--run=runs/x", "--registry=./names", "--index=-1"], "--index must be at least 0"),
        (["--run=/", "--registry=./names"], "contains no name"),
    ],
)
def test_wrong_flags_are_refused_with_what_to_do(argv, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(connect.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.delenv(flags.RUN_VARIABLE, raising=False)
    with pytest.raises(errors.ConfigError, match=words):
        flags.make_job("actor", parsed(*argv), None)


def test_a_flag_of_earlier_versions_is_refused_with_the_reason_before_tensorflow_is_imported(
    tmp_path,
):
    program = (
        "import sys, atexit; from actor_learner.jobs import main\n"
        "try: code = main.run(sys.argv[1:])\n"
        "except SystemExit as ended: code = ended.code\n"
        "sys.exit(9 if 'tensorflow' in sys.modules else code)"
    )
    flags_given = ["actor", "--gin_file=dqn_cartpole", f"--run={tmp_path}/mine", "--index=2"]
    refused = subprocess.run(
        [sys.executable, "-c", program, *flags_given, "--num_actors=2"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert refused.returncode == 2, refused.stderr
    assert "--num_actors is no longer needed: actors may join and leave" in refused.stderr


def test_calls_that_still_wait_for_a_server_do_not_spoil_the_exit_code():
    program = (
        "import threading; from actor_learner.support import abandoned_calls;"
        "wait = threading.Event().wait;"
        "threading.Thread(target=wait, name=abandoned_calls.NAME, daemon=True).start();"
        "abandoned_calls.end_despite_them(143); print('the end', end=''); raise SystemExit(134)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE
    )
    assert (ended.returncode, ended.stdout) == (143, "the end")


def test_flags_and_variables_say_who_a_job_is(tmp_path, monkeypatch):
    run = tmp_path / "my run"
    run.mkdir()
    (run / "run.json").write_text('{"seed": 7}')
    monkeypatch.setenv(flags.RUN_VARIABLE, str(run))
    made = flags.make_job("actor", parsed("--index=3"), None)
    assert (made.kind, made.index, made.run, made.seed) == (
        "actor", 3, "my_run", 7
    )  # fmt: skip
    assert made.directory == run / "jobs" / "actor-3"
    assert (run / "registry").is_dir()
    named = flags.make_job("actor", parsed("--run=word", f"--registry={tmp_path / 'r'}"), None)
    assert (named.run, named.run_dir, named.directory) == ("word", None, None)


def test_a_job_without_its_gin_file_says_which_there_are(tmp_path):
    process = start("actor_learner.jobs.main", "custom", "--job=watcher", f"--run={tmp_path}")
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2 and "dqn_cartpole" in said


@pytest.mark.parametrize("kind", ["Actor", "two words", "../up", ""])
def test_a_kind_that_cannot_be_a_name_is_refused(kind):
    with pytest.raises(errors.ConfigError, match="cannot be the kind of a job"):
        jobs_settings.check_kind(kind)


def declared(*bindings):
    return jobs_settings.declared(config.ConfigSource((), bindings))


def test_the_users_jobs_are_read_without_importing_anything():
    nothing = declared()
    assert nothing.extra == {}
    assert (nothing.final_evaluation_seconds, nothing.no_actors_seconds) == (300.0, 60.0)
    assert (nothing.silent_seconds, nothing.stuck_seconds) == (120.0, 1_800.0)
    found = declared(
        "Jobs.extra = {'watcher': @no.such.Module, 'other': @scope/Thing}",
        "Jobs.final_evaluation_seconds = 20",
        "Jobs.counts = {'other': 3}",
        "Jobs.no_actors_seconds = 5",
        "Jobs.silent_seconds = 6",
        "Jobs.stuck_seconds = 7.5",
    )
    assert found.extra == {"watcher": 1, "other": 3}
    assert (found.final_evaluation_seconds, found.no_actors_seconds) == (20, 5)
    assert (found.silent_seconds, found.stuck_seconds) == (6, 7.5)
    assert declared("Jobs.extra = {'a': @X}", "Jobs.extra = None").extra == {}


@pytest.mark.parametrize(
    "binding, words",
    [
        ("Jobs.extra = {'actor': @X}", "a name that is reserved"),
        ("Jobs.extra = [@X]", "must be a literal dict"),
        ("Jobs.extra = %jobs", "must be a literal dict"),
        ("Jobs.counts = {'painter': 1}", "'painter', which is not in Jobs.extra \\(none\\)"),
        ("Jobs.counts = {'actor': 4}", "use --actors of `actor-learner up`"),
        ("Jobs.counts = {'actor': %many}", "must be a literal dict"),
        ("Jobs.extra = {'My Job': @X}", "cannot be the kind of a job"),
        ("Jobs.final_evaluation_seconds = -1", "number, at least 0; got -1"),
        ("Jobs.final_evaluation_seconds = None", "number, at least 0; got None"),
        ("Jobs.final_evaluation_seconds = %seconds", "a literal number"),
        ("Jobs.silent_seconds = 'long'", "Jobs.silent_seconds must be a literal number"),
        ("Jobs.stuck_seconds = -1", "Jobs.stuck_seconds must"),
        ("Jobs.no_actors_seconds = True", "Jobs.no_actors_seconds must"),
        ("Jobs.extra = {'launcher': @X}", "a name that is reserved"),
    ],
)
def test_wrong_declarations_are_refused(binding, words):
    with pytest.raises(errors.ConfigError, match=words):
        declared(binding)


@pytest.mark.parametrize("count", [-1, 1.5, True, None])
def test_a_number_of_jobs_that_is_none_is_refused(count):
    with pytest.raises(errors.ConfigError, match="must be a whole number, at least 0"):
        declared("Jobs.extra = {'watcher': @X}", f"Jobs.counts = {{'watcher': {count}}}")


def test_a_job_of_the_users_own_is_a_command(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(main, "_run", lambda kind, _, arguments, __: seen.append((kind, arguments)))
    cli.main(["custom", "watcher", "--run=mine", "--index=2"])
    cli.main(["custom", "--run=mine", "--job=watcher"])
    (kind, arguments), (other, _) = seen
    assert kind == other == "watcher"
    assert (arguments.job, arguments.run, arguments.index) == ("watcher", "mine", 2)
    for argv, words in (
        (["--run=mine"], "required: --job"),
        (["replay", "--run=mine"], "use `actor-learner replay`"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["custom", *argv])
        assert ended.value.code == 2 and words in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["custom", "--help"])
    assert ended.value.code == 0 and "its name in Jobs.extra" in capsys.readouterr().out


def test_what_is_no_worker_is_refused():
    jobs = jobs_settings.Jobs(extra={"watcher": dict})
    with pytest.raises(errors.ConfigError, match="makes a dict; it must make an instance of"):
        main.make_custom(jobs, "watcher")
    with pytest.raises(errors.ConfigError, match="has no job 'painter'; it has watcher"):
        main.make_custom(jobs, "painter")


def test_a_worker_needs_a_poll():
    with pytest.raises(TypeError, match="poll"):
        worker.Worker()


def test_a_job_of_the_users_own_is_built_from_gin_and_finds_the_replay(tmp_path):
    from actor_learner.replay.server import server, tables

    with server.ReplayServer([tables.uniform_table("experience", 100)]) as replay:
        for number in range(3):
            replay.client().insert(float(number), {"experience": 1.0})
        registry = files.FileRegistry(tmp_path / "registry")
        registry.add(names.address(tmp_path.name, "replay", 0), replay.address)
        process = start(
            *("actor_learner.jobs.main", "custom", "--job=watcher", f"--run={tmp_path}"),
            "--gin_file=examples/table_watcher.gin",
            "--gin_param=TableWatcher.interval_seconds = 0.01",
            "--gin_param=TableWatcher.most_rows = 2",
        )
        _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    written = (tmp_path / "jobs" / "watcher-0" / "tables.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in written]
    assert [row["experience"]["size"] for row in rows] == [3, 3]
    status = controller.Controller(registry, tmp_path.name).worker("watcher")
    assert (status.state, status.steps, status.message) == ("completed", 2, "3 items")
    assert status.details == {"items": 3}


def test_the_watcher_needs_no_run_directory_and_follows_a_replay_that_moves(tmp_path, capfd):
    from actor_learner.replay.server import server, tables
    from examples import table_watcher

    registry = files.FileRegistry(tmp_path)
    address = names.address("run", "replay", 0)
    with server.ReplayServer([tables.uniform_table("before", 100)]) as replay:
        registry.add(address, replay.address)
        made = table_watcher.TableWatcher(interval_seconds=0.0, timeout_seconds=0.5)
        watching = toy_workers.Running(made, "watcher", names=files.FileRegistry(tmp_path))
        everyone = controller.Controller(registry, "run")
        processes.wait_until(
            lambda: everyone.workers("watcher") and everyone.worker("watcher").steps, "it has a row"
        )
    message = f"waits for the replay server, last at {replay.address}"
    processes.wait_until(lambda: everyone.worker("watcher").message == message, "it waits")
    with server.ReplayServer([tables.uniform_table("after", 100)]) as replay:
        registry.add(address, replay.address, replace=True)
        processes.wait_until(lambda: everyone.worker("watcher").message == "0 items", "it goes on")
        everyone.send(states.EXIT, timeout=DEADLINE)
        watching.join()
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines() if "time" in line]
    assert {"before", "after"} == {name for row in rows for name in row} - {"time"}


@pytest.mark.parametrize("argv", [[], ["--run=mine"], ["painter"]])
def test_a_program_that_is_not_told_which_job_it_is_says_which_there_are(argv, capsys):
    assert main.run(argv) == 2
    assert "one of replay, actor, policy, learner, evaluator, custom" in capsys.readouterr().err

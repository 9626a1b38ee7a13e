"""The replay job outlives a disk that is full, and what its registry has forgotten."""

import signal
import tempfile

import pytest

from actor_learner.naming import connect
from tests.jobs import job_processes
from tests.launch import processes
from tests.naming import conftest as servers

pytestmark = pytest.mark.timeout(600)

FLAGS = (
    "--gin_file=dqn_cartpole",
    "--gin_param=Checkpoints.replay_seconds = 0.2",
    "--gin_param=dqn.fc_layer_params = (16,)",
)


def message(watch):
    status = watch.status("replay")
    return "" if status is None else status.message


def test_a_failed_save_is_told_and_does_not_end_the_server(tmp_path):
    machine = job_processes.Machine(tmp_path / "machine")
    run = machine.directory / "mine"
    run.mkdir()
    process = machine.start("replay", *FLAGS, f"--run={run}")
    watch = job_processes.Watch(str(run / "registry"), "mine")
    try:
        saved = lambda: list((run / "replay").glob("checkpoint-*"))  # noqa: E731
        watch.wait(saved, "it has saved", [process])
        # What fails as a full disk does: there is no place to write to.
        incoming, aside = run / "replay" / "incoming", run / "aside"

        def fill():
            while not incoming.is_file():
                incoming.rename(aside)
                incoming.touch()

        fill()
        watch.wait(lambda: "0 items; NOT SAVED: " in message(watch), "it says so", [process])
        incoming.unlink()
        aside.rename(incoming)
        watch.wait(lambda: message(watch) == "0 items", "it has saved again", [process])
        fill()
        watch.wait(lambda: "NOT SAVED" in message(watch), "it cannot save", [process])
        process.process.send_signal(signal.SIGTERM)
        assert process.exit_code() == 1, process.said  # What was to be saved is lost.
        assert "The contents are not saved" in process.said
    finally:
        process.kill()
        watch.names.close()


def test_a_registry_that_has_forgotten_the_run_is_told_again(tmp_path):
    port = servers.free_port()
    url = f"redis://127.0.0.1:{port}/0"
    machine = job_processes.Machine(tmp_path / "machine", url)
    # Started before its registry, for which it waits.
    process = machine.start("replay", *FLAGS, "--run=mine", "--host=localhost")
    # The lease comes again with the next heartbeat, and then the others.
    known = ["mine/run_id", "mine/replay_port"]
    told = []
    try:
        processes.wait_until(lambda: "for the registry" in process.said, "it waits")
        for _ in range(2):
            # Short paths: those of sockets are limited to a hundred characters or so.
            with (
                tempfile.TemporaryDirectory(prefix="redis-") as directory,
                servers.redis_server(directory, port),
                connect.connect(url) as registry,
            ):
                told.append([registry.wait(name, job_processes.DEADLINE) for name in known])
    finally:
        process.kill()
    assert told[0] == told[1]
    run_id, port = told[0]
    assert len(run_id) == 32 and int(port) > 0


def test_a_table_that_would_keep_actors_and_learner_waiting_for_each_other_is_refused(tmp_path):
    machine = job_processes.Machine(tmp_path / "machine")
    process = machine.start(
        "replay",
        "--gin_file=dqn_cartpole",
        f"--run={tmp_path / 'mine'}",
        "--gin_param=Experiment.replay = @LaneReplay()",
        "--gin_param=LaneReplay.table = @uniform_table",
        "--gin_param=uniform_table.rate_limiter = @sample_to_insert_ratio()",
        "--gin_param=sample_to_insert_ratio.samples_per_insert = 2.0",
        "--gin_param=sample_to_insert_ratio.min_size = 5",
        "--gin_param=sample_to_insert_ratio.error_buffer = 10.0",
    )
    assert process.exit_code() == 2
    assert "actors and learner can wait for each other" in process.said

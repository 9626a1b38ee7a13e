"""The guardian of one job, with real processes: ends, signals, and nobody left behind."""

import os
import signal
import subprocess
import sys

import pytest

from actor_learner.launch import job_spec, local
from actor_learner.support import errors
from tests.launch import processes

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def guard(tmp_path):
    """Starts a shell script under a guardian; kills what a failed test leaves running."""
    started = []

    def start(script, grace_seconds=processes.DEADLINE, **more):
        process = local.LocalProcess(
            ["bash", "-c", script],
            {**ENVIRONMENT, "OUT": str(tmp_path)},
            tmp_path / "log",
            grace_seconds=grace_seconds,
            incarnation="first",
            **more,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(processes.DEADLINE)


def pids(tmp_path, number):
    return [int(line) for line in processes.lines_of(tmp_path / "pids", number)]


# A job with a child, and one in a session of its own.
FAMILY = "sleep 1000 & echo $! >> $OUT/pids; setsid sleep 1000 & echo $! >> $OUT/pids; "


@pytest.mark.parametrize(
    "script, code", [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -11), ("kill -9 $$", -9)]
)
def test_the_guardian_ends_as_its_job_did(guard, script, code):
    process = guard(script)
    assert process.wait(processes.DEADLINE) == code
    assert process.poll() == code


def test_what_the_job_prints_is_logged_and_a_missing_program_is_explained(guard, tmp_path):
    guard("echo out; echo error >&2; read nothing || echo empty").wait(processes.DEADLINE)
    assert (tmp_path / "log").read_text().split() == ["out", "error", "empty"]
    missing = local.LocalProcess(
        ["/no/such/program"], ENVIRONMENT, tmp_path / "log", grace_seconds=1.0, incarnation="x"
    )
    assert missing.wait(processes.DEADLINE) == 127
    assert "/no/such/program cannot be run: " in (tmp_path / "log").read_text()
    with pytest.raises(errors.JobError, match="cannot be started"):
        local.LocalProcess(
            ["true\0"], ENVIRONMENT, tmp_path / "log", grace_seconds=1.0, incarnation="x"
        )


def test_what_a_job_leaves_running_is_killed_with_it(guard, tmp_path):
    assert guard(FAMILY + "exit 3").wait(processes.DEADLINE) == 3
    assert not any(map(processes.is_alive, pids(tmp_path, 2)))


def test_terminate_reaches_the_job_but_not_its_children(guard, tmp_path):
    save = "trap 'kill -0 %1 && echo whole > $OUT/saved; exit 5' TERM; "
    script = FAMILY + save + "echo $$ >> $OUT/pids; wait"
    process = guard(script)
    family = pids(tmp_path, 3)
    process.terminate()
    assert process.wait(processes.DEADLINE) == 5
    assert (tmp_path / "saved").read_text() == "whole\n"
    assert not any(map(processes.is_alive, family))


def test_a_job_that_ignores_the_request_is_killed_after_its_grace(guard, tmp_path):
    process = guard(FAMILY + "trap '' TERM; echo $$ >> $OUT/pids; wait", grace_seconds=0.2)
    family = pids(tmp_path, 3)
    process.terminate()
    assert process.wait(processes.DEADLINE) == -signal.SIGKILL
    assert not any(map(processes.is_alive, family))


def test_kill_waits_for_nothing(guard, tmp_path):
    process = guard(FAMILY + "trap 'sleep 1000' TERM; echo $$ >> $OUT/pids; wait")
    family = pids(tmp_path, 3)
    process.kill()
    assert process.wait(processes.DEADLINE) == -signal.SIGKILL
    assert not any(map(processes.is_alive, family))


@pytest.mark.parametrize("hasty", [False, True])
def test_when_the_launcher_vanishes_the_job_may_save_unless_told_otherwise(tmp_path, hasty):
    script = FAMILY + "trap 'echo yes > $OUT/saved; exit 0' TERM; echo $$ >> $OUT/pids; wait"
    reading, lifeline = os.pipe()
    guardian = subprocess.Popen(
        [sys.executable, "-I", "-S", local.GUARDIAN, "60", str(reading), "0", "bash", "-c", script],
        env={**ENVIRONMENT, "OUT": str(tmp_path)},
        pass_fds=[reading],
        start_new_session=True,
    )
    os.close(reading)
    family = pids(tmp_path, 3)
    if hasty:
        os.write(lifeline, b"!")
    os.close(lifeline)  # What the system does for a launcher that is killed.
    assert guardian.wait(processes.DEADLINE) == (-signal.SIGKILL if hasty else 0)
    assert (tmp_path / "saved").exists() is not hasty
    assert not any(map(processes.is_alive, family))


def test_a_detached_guardian_ends_its_job_in_order_when_the_children_of_its_launcher_are_killed(
    guard, tmp_path
):
    script = FAMILY + "trap 'echo yes > $OUT/saved; exit 0' TERM; echo $$ >> $OUT/pids; wait"
    process = guard(script, detached=True)
    family = pids(tmp_path, 3)
    os.kill(process.pid, signal.SIGKILL)
    # Seeing its end closes the lifeline, as the end of the launcher itself would.
    assert process.wait(processes.DEADLINE) == -signal.SIGKILL
    processes.wait_until_gone(family)
    assert (tmp_path / "saved").read_text() == "yes\n"
    assert guard("exit 4", detached=True).wait(processes.DEADLINE) == 4


def test_a_killed_guardian_takes_its_job_along(guard, tmp_path):
    process = guard("echo $$ >> $OUT/pids; exec sleep 1000")
    (job,) = pids(tmp_path, 1)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(processes.DEADLINE) == -signal.SIGKILL
    processes.wait_until_gone([job])


def test_the_log_of_a_job_says_how_it_was_started_without_passwords(tmp_path):
    command = ["true", "--registry=redis://:secret@host:6379/0"]
    started = local.LocalLauncher().launch(
        job_spec.JobSpec("actor", 0, command), 0, tmp_path / "log"
    )
    assert started.wait(processes.DEADLINE) == 0
    log = (tmp_path / "log").read_text()
    assert "true --registry=redis://host:6379/0" in log and "secret" not in log
    with pytest.raises(errors.JobError) as caught:
        local.LocalProcess(
            [*command, "\0"], ENVIRONMENT, tmp_path / "log", grace_seconds=1.0, incarnation="x"
        )
    assert "secret" not in str(caught.value)


def test_every_job_has_the_grace_of_its_own_spec(tmp_path):
    script = (
        "sleep 1000 & trap 'echo asked >> $OUT/asked-$KIND' TERM; echo up >> $OUT/up; "
        "while :; do wait; done"
    )
    launcher = local.LocalLauncher()
    started = [
        launcher.launch(
            job_spec.JobSpec(
                kind,
                0,
                ["bash", "-c", script],
                environment={"OUT": str(tmp_path), "KIND": kind},
                grace_seconds=seconds,
            ),
            0,
            tmp_path / "log",
        )
        for kind, seconds in (("actor", 0.2), ("replay", 10 * processes.DEADLINE))
    ]
    hasty, patient = started
    try:
        processes.lines_of(tmp_path / "up", 2)
        for process in started:
            process.terminate()
        assert hasty.wait(processes.DEADLINE) == -signal.SIGKILL
        processes.lines_of(tmp_path / "asked-replay", 1)
        assert patient.poll() is None
    finally:
        for process in started:
            process.kill()
            process.wait(processes.DEADLINE)

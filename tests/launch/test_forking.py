"""Jobs forked from one process that has imported what they need, as good as jobs of their own."""

import json
import os
import pathlib
import signal
import sys
import sysconfig

import pytest

from actor_learner.launch import forking, job_spec, local
from actor_learner.support import errors
from tests.launch import processes

PROGRAM = "tests.launch.forked_program"


class Forked:
    """A fork server, what was started by it, and the logs."""

    def __init__(self, directory, modules):
        self._leave_pytest_out()
        self.server = forking.ForkServer(modules)
        self._directory = directory
        self._started = []

    def start(self, *arguments, restarts=0, environment=None):
        log = self._directory / f"log-{len(self._started)}"
        spec = job_spec.JobSpec(
            "actor",
            0,
            [sys.executable, "-m", PROGRAM, *arguments],
            environment={**forking.ENVIRONMENT, **(environment or {})},
            grace_seconds=processes.DEADLINE,
        )
        self._leave_pytest_out()
        process = local.LocalLauncher(self.server).launch(spec, restarts, log)
        process.log = log
        self._started.append(process)
        return process

    @staticmethod
    def _leave_pytest_out():
        """Unsets what pytest changes between set-up and call: the server would not fork for it."""
        os.environ.pop("PYTEST_CURRENT_TEST", None)

    def said(self, process):
        """What a job has printed, after the line that says how it was started."""
        return process.log.read_text().split("\n", 1)[1]

    def job(self, process):
        """The pid of a job that waits."""
        processes.wait_until(lambda: "up" in self.said(process), "the job is up")
        return int(self.said(process).split()[1])

    def close(self):
        for process in self._started:
            process.kill()
            process.wait(processes.DEADLINE)
        self.server.close()


@pytest.fixture
def forked(tmp_path):
    held = Forked(tmp_path, ["json"])
    yield held
    held.close()


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


@pytest.mark.parametrize("what, code", [("exit0", 0), ("exit7", 7), ("signal11", -11)])
def test_a_forked_job_ends_as_it_would_by_itself(forked, what, code):
    process = forked.start(what)
    assert process.wait(processes.DEADLINE) == code
    assert process.poll() == code


def test_a_forked_job_is_what_its_command_says(forked, tmp_path):
    ours = {"PYTHONPATH": str(tmp_path), "ACTOR_LEARNER_RUN": "mine"}
    process = forked.start("describe", "--index=3", environment=ours)
    assert process.wait(processes.DEADLINE) == 0
    seen = json.loads(forked.said(process))
    assert seen["argv"] == ["describe", "--index=3"]
    assert seen["main"] == PROGRAM
    assert seen["variables"]["ACTOR_LEARNER_RUN"] == "mine"
    assert seen["variables"]["ACTOR_LEARNER_INCARNATION"] == process.incarnation
    assert str(tmp_path) in seen["path"]
    assert seen["parent"] == process.pid and seen["group"]
    assert seen["stdin"] == ""
    # Standard streams, and the directory it reads; nothing of the launcher, server or guardian.
    assert seen["files"] == [0, 1, 2, 3]


def test_a_forked_job_looks_for_modules_where_its_own_variables_say(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/gone", "/stays"]))
    held = Forked(tmp_path, ["json"])
    try:
        variable = os.pathsep.join(["/new", "/stays"])
        process = held.start("describe", environment={"PYTHONPATH": variable})
        assert process.wait(processes.DEADLINE) == 0
        path = json.loads(held.said(process))["path"]
    finally:
        held.close()
    assert path[1:3] == ["/new", "/stays"]
    assert "/gone" not in path and path.count("/stays") == 1
    assert sysconfig.get_paths()["stdlib"] in path


def test_a_forked_job_is_interrupted_like_any_python_program(forked):
    process = forked.start("wait")
    os.kill(forked.job(process), signal.SIGINT)
    assert process.wait(processes.DEADLINE) == -signal.SIGINT
    assert forked.said(process).rstrip().endswith("KeyboardInterrupt")


def test_it_is_shown_by_ps_under_its_own_command_and_ends_in_order(forked):
    process = forked.start("wait", "--run=/some/run")
    job = forked.job(process)
    command = pathlib.Path(f"/proc/{job}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    assert command == [sys.executable, "-m", PROGRAM, "wait", "--run=/some/run"]
    assert parent_of(job) == process.pid
    process.terminate()
    assert process.wait(processes.DEADLINE) == 5
    assert forked.said(process).endswith("saved\n")


def test_a_killed_guardian_takes_its_job_along(forked):
    process = forked.start("wait")
    job = forked.job(process)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(processes.DEADLINE) == -signal.SIGKILL
    processes.wait_until_gone([job])


def test_two_forked_jobs_do_not_draw_the_same_random_numbers(forked):
    started = [forked.start("describe") for _ in range(2)]
    assert [process.wait(processes.DEADLINE) for process in started] == [0, 0]
    first, second = (json.loads(forked.said(process))["random"] for process in started)
    assert first[0] != second[0] and first[1] != second[1]


def test_jobs_outlive_a_killed_server_and_others_start_without_it(forked):
    process = forked.start("wait")
    job = forked.job(process)
    os.kill(forked.server.pid, signal.SIGKILL)
    later = forked.start("exit7")
    assert later.wait(processes.DEADLINE) == 7
    assert processes.is_alive(job) and process.poll() is None
    process.terminate()
    assert process.wait(processes.DEADLINE) == 5


def test_a_job_asked_for_is_started_plainly_if_the_server_dies_before(forked):
    os.kill(forked.server.pid, signal.SIGSTOP)
    process = forked.start("exit7")
    assert process.poll() is None
    os.kill(forked.server.pid, signal.SIGKILL)
    assert process.wait(processes.DEADLINE) == 7


def test_a_job_forked_earlier_does_not_keep_what_waits_at_a_dead_server(forked):
    first = forked.start("wait")
    forked.job(first)
    os.kill(forked.server.pid, signal.SIGSTOP)
    second = forked.start("exit7")
    assert second.poll() is None
    forked.server.kill()  # As `kill` of a job does that the server has not answered.
    assert second.wait(processes.DEADLINE) == 7
    assert first.poll() is None


def test_a_wait_for_a_job_that_a_stuck_server_keeps_ends_in_time(forked):
    os.kill(forked.server.pid, signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{forked.server.pid}/stat")
    processes.wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stops")
    process = forked.start("exit7")
    with pytest.raises(errors.JobTimeoutError, match=f"{PROGRAM} exit7 has not ended within 0.1"):
        process.wait(0.1)


def test_kill_does_not_wait_for_a_server_that_is_stuck(forked):
    os.kill(forked.server.pid, signal.SIGSTOP)
    process = forked.start("wait")
    process.kill()
    assert process.wait(processes.DEADLINE) == -signal.SIGKILL


@pytest.mark.parametrize(
    "change",
    [
        {"restarts": 1},  # Whatever has made it fail shall not be shared.
        {"environment": {"OMP_NUM_THREADS": "1"}},  # Read by libraries when they are imported.
    ],
)
def test_what_forking_does_not_suit_is_started_by_itself(forked, change):
    os.kill(forked.server.pid, signal.SIGSTOP)
    assert forked.start("exit7", **change).wait(processes.DEADLINE) == 7


def test_a_server_whose_imports_start_threads_forks_nothing_and_says_why(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "busy.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1_000,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    held = Forked(tmp_path, ["busy"])
    try:
        assert held.start("exit7").wait(processes.DEADLINE) == 7
        assert "an import has started threads" in caplog.text
    finally:
        held.close()


def test_tensorflow_and_reverb_work_in_jobs_forked_from_what_has_imported_them(tmp_path):
    held = Forked(tmp_path, forking.JOB_MODULES)
    try:
        started = [held.start("draw") for _ in range(2)]
        assert [process.wait(processes.DEADLINE) for process in started] == [0, 0], held.said(
            started[0]
        )
        assert not held.server.has_died()
        first, second = (json.loads(held.said(p).splitlines()[-1]) for p in started)
        assert len(first) == 4 and first != second
    finally:
        held.close()

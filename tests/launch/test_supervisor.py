"""A launcher and its jobs as real processes: restarts, ends, interruptions, and what is left."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from actor_learner.jobs import controller, states
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import names
from actor_learner.messaging import protocol
from actor_learner.naming import files
from tests.launch import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = processes.DEADLINE


class Launched:
    """A toy launcher with toy jobs, in a process of its own."""

    def __init__(self, run, *descriptions):
        self.run = run
        run.mkdir(exist_ok=True)
        self._said = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.launch.toy_up", str(run), *descriptions],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pids(self, job, number=1, what="pids"):
        return [int(line) for line in processes.lines_of(self.run / f"{job}.{what}", number)]

    def finish(self, name):
        (self.run / f"{name}.finish").touch()

    def wait_until_it_says(self, *words):
        """Reads what the launcher says, up to a line by which it has said all of `words`."""
        for line in self.process.stderr:
            self._said += line
            if all(word in self._said for word in words):
                return
        raise AssertionError(f"the launcher has ended before it said {words}:\n{self._said}")

    def end(self):
        """Waits for the launcher's end; returns its exit code and all it has said."""
        _, rest = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, self._said + rest

    def order(self):
        return (self.run / "order").read_text().split()

    def controller(self):
        return controller.Controller(files.FileRegistry(self.run / "registry"), self.run.name)

    def scale(self, number):
        """Asks for so many actors, as a user does; returns exit code and words."""
        asked = subprocess.run(
            [
                *(sys.executable, "-m", "actor_learner.cli", "scale", str(self.run)),
                f"--actors={number}",
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        return asked.returncode, asked.stdout + asked.stderr


@pytest.fixture
def launch(tmp_path):
    started = []

    def start(*descriptions):
        launched = Launched(tmp_path / "run", *descriptions)
        started.append(launched)
        return launched

    yield start
    for launched in started:
        launched.process.kill()
        launched.process.wait(DEADLINE)
        for pid in processes.with_word(str(launched.run)):
            with contextlib.suppress(ProcessLookupError):  # It has ended by itself.
                os.kill(pid, signal.SIGKILL)


def test_a_completed_learner_ends_the_run_in_order_and_evaluators_finish_first(launch):
    launched = launch("replay-0", "actor-0", "learner-0", "evaluator-0 --after_learner")
    for job in ("replay-0", "actor-0", "evaluator-0"):
        launched.pids(job)
    watching = launched.controller()
    watching.wait_for(
        states.RUNNING, ["replay-0", "actor-0", "learner-0", "evaluator-0"], timeout=DEADLINE
    )
    processes.wait_until(lambda: watching.worker("learner").version == 10, "it shows its version")
    launched.wait_until_it_says("actor-0 running", "lag 3")
    launched.finish("learner-0")
    code, said = launched.end()
    assert code == 0, said
    order = launched.order()
    assert order[0] == "learner-0" and order[-1] == "replay-0"
    assert set(order[1:3]) == {"actor-0", "evaluator-0"}
    # Not asked to end, the evaluator has finished by itself.
    log = (launched.run / "jobs" / "evaluator-0" / "log").read_text()
    assert "start of evaluator-0" in log and "evaluator-0: completed" in log
    assert "SIGTERM" not in log
    assert "SIGTERM" in (launched.run / "jobs" / "actor-0" / "log").read_text()
    assert "training is complete" in said and f"completed: {launched.run}" in said
    assert processes.with_word(str(launched.run)) == []


def test_a_killed_job_comes_back_and_ctrl_c_stops_everything_in_order(launch):
    launched = launch("replay-0", "actor-0 --grandchildren=2", "learner-0")
    (victim,) = launched.pids("actor-0")
    launched.pids("learner-0")
    launched.pids("replay-0")
    orphans = launched.pids("actor-0", 2, "grandchildren")
    os.kill(victim, signal.SIGKILL)
    _, successor = launched.pids("actor-0", 2)
    assert successor != victim
    processes.wait_until_gone(orphans)
    watching = launched.controller()
    processes.wait_until(lambda: watching.worker("actor").pid == successor, "its status is new")
    assert watching.worker("actor").restarts == 1
    launched.process.send_signal(signal.SIGINT)
    code, said = launched.end()
    assert code == 130, said
    assert launched.order() == ["actor-0", "learner-0", "replay-0"]
    assert "actor-0 ended with signal SIGKILL" in said and "restart 1 of 2 in 0.01 s" in said
    assert f"interrupted: {launched.run}" in said
    assert not any(map(processes.is_alive, launched.pids("actor-0", 4, "grandchildren")))
    assert processes.with_word(str(launched.run)) == []


def test_a_job_that_keeps_failing_ends_the_run_and_its_error_is_told_once_as_the_users(launch):
    launched = launch("actor-0 --fail=poll", "learner-0")
    launched.pids("learner-0")
    code, said = launched.end()
    assert code == 1, said
    assert len(launched.pids("actor-0", 3)) == 3  # The start and two restarts.
    assert "actor-0 failed for good: exit code 1" in said
    assert said.count("error: RuntimeError: actor-0 of run run broke its toy") == 1
    assert re.search(r"^Raised in: .*toy_job\.py:\d+, in poll$", said, re.MULTILINE)
    log = launched.run / "jobs/actor-0/log"
    assert "Traceback" not in said and str(log) in said
    assert "Traceback" in log.read_text()
    assert launched.order()[-1] == "learner-0"  # It was given the time to save.
    assert "broke its toy" in (launched.run / "jobs" / "actor-0" / "error.txt").read_text()


def test_a_job_that_finds_its_configuration_wrong_is_not_restarted(launch):
    launched = launch("learner-0 --fail=configuration")
    code, said = launched.end()
    assert code == 2, said
    assert said.count("error: the toy has no batteries") == 1 and "restart 1" not in said


def test_a_job_that_would_fail_once_more_is_not_restarted(launch):
    launched = launch("learner-0 --fail=evaluation")
    code, said = launched.end()
    assert code == 1, said
    assert "error: the toy has no score" in said and "restart 1" not in said
    assert "exit code 5" in said and "which a restart does not cure" in said


def test_when_the_launcher_is_killed_its_jobs_save_and_nothing_is_left(launch):
    launched = launch("actor-0 --grandchildren=2", "learner-0")
    left = launched.pids("actor-0") + launched.pids("learner-0")
    left += launched.pids("actor-0", 2, "grandchildren")
    launched.process.kill()
    processes.wait_until_gone(left)
    processes.wait_until(
        lambda: not processes.with_word(str(launched.run)), "the guardians have ended"
    )
    assert sorted(launched.order()) == ["actor-0", "learner-0"]


def test_sigterm_gives_143_and_a_launcher_started_anew_goes_on_at_once(launch):
    first = launch("learner-0")
    first.pids("learner-0")
    first.process.send_signal(signal.SIGTERM)
    code, said = first.end()
    assert code == 143, said
    second = launch("learner-0")
    second.pids("learner-0", 2)
    second.finish("learner-0")
    assert second.end()[0] == 0


def test_the_second_ctrl_c_kills_what_does_not_end(launch):
    launched = launch("actor-0 --slow_to_save", "learner-0")
    left = launched.pids("actor-0") + launched.pids("learner-0")
    launched.process.send_signal(signal.SIGINT)
    launched.pids("actor-0", what="saving")
    launched.process.send_signal(signal.SIGINT)
    code, said = launched.end()
    assert code == 130 and "once more to exit without saving" in said
    processes.wait_until_gone(left)
    assert not (launched.run / "order").exists()  # The learner's turn had not come.


def test_jobs_without_a_learner_end_when_all_have_completed(launch):
    launched = launch("actor-0", "actor-1")
    for job in ("actor-0", "actor-1"):
        launched.pids(job)
        launched.finish(job)
    assert launched.end()[0] == 0


def test_a_run_whose_learner_a_controller_has_ended_is_stopped_and_not_complete(launch):
    launched = launch("replay-0", "actor-0", "actor-1", "learner-0")
    everybody = ["replay-0", "actor-0", "actor-1", "learner-0"]
    watching = launched.controller()
    watching.wait_for(states.RUNNING, everybody, timeout=DEADLINE)
    watching.send(states.EXIT, kind="actor", index=1, timeout=DEADLINE)
    launched.wait_until_it_says("actor-1 was told to end by a controller")
    watching.send(states.EXIT, kind="learner", timeout=DEADLINE)
    code, said = launched.end()
    assert code == states.TOLD_TO_EXIT == 3, said
    assert "training is complete" not in said and f"stopped: {launched.run}" in said
    assert launched.order() == ["actor-1", "learner-0", "actor-0", "replay-0"]
    assert len(launched.pids("actor-1")) == 1  # It was not started again.


def test_a_job_that_is_stopped_is_said_and_started_again(launch):
    launched = launch("--silent_seconds=13", "replay-0", "actor-0", "learner-0")
    (victim,) = launched.pids("actor-0")
    watching = launched.controller()
    everybody = ["replay-0", "actor-0", "learner-0"]
    watching.wait_for(states.RUNNING, everybody, timeout=DEADLINE)
    launched.wait_until_it_says("actor-0 running")
    os.kill(victim, signal.SIGSTOP)
    # Before it is said: from then on it is only three seconds until there is a successor.
    processes.wait_until(lambda: watching.worker("actor").silent_seconds > 0, "it is silent")
    launched.wait_until_it_says("actor-0 has not answered for 10 s: its process is stopped, or h")
    _, successor = launched.pids("actor-0", 2)
    processes.wait_until_gone([victim])
    watching.wait_for(states.RUNNING, everybody, timeout=DEADLINE)
    assert watching.worker("actor").pid == successor
    launched.finish("learner-0")
    code, said = launched.end()
    assert code == 0, said
    assert "actor-0 has not answered for 13 s (Jobs.silent_seconds): it is killed" in said
    assert "actor-0 ended with signal SIGKILL" in said and "restart 1 of 2" in said


def test_a_job_that_does_not_end_its_poll_is_started_again(launch):
    launched = launch("--stuck_seconds=3", "actor-0 --stuck", "learner-0")
    assert len(launched.pids("actor-0", 2)) == 2
    launched.finish("learner-0")
    code, said = launched.end()
    assert code == 0, said
    words = r"actor-0 has been in one poll for 0:\d\d, longer than Jobs.stuck_seconds"
    assert re.search(words, said), said


def test_a_run_whose_actors_were_all_ended_says_so_and_does_not_wait_for_ever(launch):
    launched = launch("--no_actors_seconds=20", "replay-0", "actor-0", "actor-1", "learner-0")
    watching = launched.controller()
    watching.wait_for(
        states.RUNNING, ["replay-0", "actor-0", "actor-1", "learner-0"], timeout=DEADLINE
    )
    watching.send(states.EXIT, kind="actor", timeout=DEADLINE)
    launched.wait_until_it_says("no actor is left: all were ended, and the learner waits", "scale")
    assert watching.worker("learner").state == states.RUNNING
    code, said = launched.end()
    assert code == 1, said
    assert "no actor was left for 20 s, since a controller had ended them all" in said
    assert launched.order()[2:] == ["learner-0", "replay-0"]  # In order, having saved.


def test_actors_that_are_started_again_in_time_save_a_run_without_any(launch):
    launched = launch("--no_actors_seconds=1000", "actor-0", "learner-0")
    watching = launched.controller()
    watching.wait_for(states.RUNNING, ["actor-0", "learner-0"], timeout=DEADLINE)
    watching.send(states.EXIT, kind="actor", timeout=DEADLINE)
    launched.wait_until_it_says("actor-0 was told to end by a controller")
    code, said = launched.scale(1)
    assert code == 0 and "actor-0 is started" in said, said
    assert len(launched.pids("actor-0", 2)) == 2
    launched.finish("learner-0")
    assert launched.end()[0] == 0


def test_a_run_under_way_is_given_more_actors_and_fewer(launch):
    launched = launch("replay-0", "actor-0", "learner-0")
    watching = launched.controller()
    watching.wait_for(states.RUNNING, ["replay-0", "actor-0", "learner-0"], timeout=DEADLINE)
    code, said = launched.scale(4)
    assert code == 0, said
    assert [line for line in said.splitlines() if "started" in line] == [
        "actor-1 is started", "actor-2 is started", "actor-3 is started"
    ]  # fmt: skip
    actors = [f"actor-{index}" for index in range(4)]
    watching.wait_for(states.RUNNING, actors, timeout=DEADLINE)
    launched.wait_until_it_says("actor-3 running")
    code, said = launched.scale(2)
    assert code == 0 and "actor-3 is ending" in said and "actor-2 is ending" in said, said
    watching.wait_for(states.COMPLETED, ["actor-2", "actor-3"], timeout=DEADLINE)
    assert set(launched.order()) == {"actor-2", "actor-3"}  # They have saved what they had.
    # An index is free once its process has ended, which is a moment after the job says so.
    processes.wait_until_gone(launched.pids("actor-2") + launched.pids("actor-3"))
    code, said = launched.scale(3)
    assert code == 0 and "actor-2 is started" in said, said
    assert len(launched.pids("actor-2", 2)) == 2
    assert len(launched.pids("actor-3", 1)) == 1  # What was ended stays so.
    code, said = launched.scale(3)
    assert code == 0 and "started" not in said and "is to have 3 actors" in said, said
    assert {status.kind for status in watching.workers()} == {"replay", "actor", "learner"}
    launched.finish("learner-0")
    code, said = launched.end()
    assert code == 0, said
    code, said = launched.scale(1)
    assert code == 1 and "no launcher is at work on run run" in said


def test_a_number_of_actors_that_is_none_is_refused(launch, tmp_path):
    launched = launch("actor-0", "learner-0")
    launched.pids("learner-0")
    assert launched.scale(0)[0] == 2
    with files.FileRegistry(launched.run / "registry") as registry:
        asking = job_lib.Job("learner", 0, "run", registry)
        with asking.connect(names.LAUNCHER, timeout=DEADLINE) as client:
            for actors in (0, -1, True, "8", None, 10**9, [1]):
                with pytest.raises(protocol.RefusedError, match="a run has 1 to 10,000 actors"):
                    client.request("scale", {"actors": actors}, timeout_seconds=DEADLINE)
    launched.finish("learner-0")
    assert launched.end()[0] == 0


def test_a_second_launcher_of_the_same_run_is_refused(launch):
    first = launch("learner-0")
    first.pids("learner-0")
    second = launch("learner-0")
    code, said = second.end()
    assert code == 1, said
    assert f"launcher-0 of run run is already running, as process {first.process.pid}" in said
    first.finish("learner-0")
    assert first.end()[0] == 0


def test_a_job_that_goes_on_before_its_time_is_up_is_left_alone(launch):
    launched = launch("--silent_seconds=1000", "actor-0", "learner-0")
    (paused,) = launched.pids("actor-0")
    watching = launched.controller()
    watching.wait_for(states.RUNNING, ["actor-0", "learner-0"], timeout=DEADLINE)
    os.kill(paused, signal.SIGSTOP)
    processes.wait_until(lambda: watching.worker("actor").silent_seconds > 4.0, "it is silent")
    shown = watching.worker("actor")
    assert shown.state == states.RUNNING and "silent for 0:" in shown.describe()
    os.kill(paused, signal.SIGCONT)
    processes.wait_until(lambda: not watching.worker("actor").silent_seconds, "it answers again")
    assert watching.worker("actor").pid == paused
    launched.finish("learner-0")
    code, said = launched.end()
    assert code == 0 and "killed" not in said, said

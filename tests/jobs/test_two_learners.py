"""A learner that was stopped for longer than its lease finds another one in its place."""

import os
import signal

import pytest

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import states
from actor_learner.reporting import jsonl
from actor_learner.support import fault_points
from tests.jobs import job_processes, logged_run
from tests.launch import processes

pytestmark = pytest.mark.timeout(600)


def test_a_learner_that_was_stopped_is_refused_everywhere_and_says_so(tmp_path):
    run = logged_run.LoggedRun(tmp_path)
    # As if by launchers on two machines: by hand, the lock of the directory would refuse one.
    machine = job_processes.Machine(tmp_path / "machine")
    flags = [f"--gin_file={run.gin_file}", f"--run={run.run_dir}", "--seed=1"]
    flags.append("--gin_param=Experiment.environment_steps = 1_000_000")
    started = []

    def start(kind, incarnation):
        machine.environment[job_lib.INCARNATION_VARIABLE] = incarnation
        started.append(machine.start("tests.jobs.short_lease", kind, *flags))
        return started[-1]

    try:
        start("replay", "r")
        # In the middle of a poll: when it is continued, it is about to tell, publish and write.
        machine.environment[fault_points.STOP_VARIABLE] = (
            f"{fault_points.CHECKPOINT_SAVED}@{tmp_path}"
        )
        first = start("learner", "first")
        actor = start("actor", "a")
        run.process, run.output = first.process, first.path
        stopped = tmp_path / fault_points.CHECKPOINT_SAVED
        run.wait(stopped.exists, "the first learner has saved")
        run.wait(lambda: run.status("learner").state == states.LOST, "its lease has run out")
        second = start("learner", "second")
        run.process, run.output = second.process, second.path
        run.wait(
            lambda: (
                (status := run.status("learner")).incarnation == "second"
                and status.state == states.RUNNING
            ),
            "there is a second learner",
        )
        run.wait_for_steps(500)
        os.kill(first.pid, signal.SIGCONT)
        assert first.exit_code() == 1
        assert "another process has" in first.said
        run.wait_for_steps(500)
        run.enough.touch()
        assert second.exit_code() == 0, second.said[-3_000:]
        assert actor.exit_code() == 0, actor.said[-3_000:]
        rows = [r for r in jsonl.read_rows(run.run_dir.metrics_jsonl) if "eval_return" not in r]
        assert rows[-1]["environment_steps"] == run.steps.stat().st_size
        # The first has written nothing after the second had begun.
        for column in ("environment_steps", "train_steps", "seconds"):
            values = [row[column] for row in rows]
            assert values == sorted(values), column
    finally:
        for process in started:
            process.kill()
        run.close()
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))

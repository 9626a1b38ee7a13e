"""A run as separate jobs, with real processes: any of them may die, and training goes on.

One run, in which every kind of job is killed once at a random moment, because starting the jobs is
what takes the time.
"""

import ast
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.naming import connect
from actor_learner.replay.server import checkpoints
from actor_learner.reporting import jsonl
from tests.launch import processes

CHECKPOINT_INTERVAL = 500
STEPS = 48_000
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    "Evaluation.target_return = None",
    "Evaluation.interval = 2_000",
    "Evaluation.episodes = 5",
    "Checkpoints.replay_seconds = 1.0",
    f"Learner.checkpoint_interval = {CHECKPOINT_INTERVAL}",
)
# Not the experiment's target, which would end the run before everybody was killed.
TARGET_RETURN = 195.0
DEADLINE = 240.0


class Run:
    """`actor-learner up` in a process of its own, and a look at its jobs."""

    def __init__(self, directory, *more, actors=2):
        self.run_dir = run_directory.RunDirectory(directory / "faults")
        self.output = open(directory / "up.txt", "w+")
        command = [sys.executable, "-m", "actor_learner.cli", "up", "--gin_file=dqn_cartpole"]
        command += [f"--gin_param={binding}" for binding in BINDINGS]
        command += [f"--run_dir={self.run_dir}", "--seed=3", f"--actors={actors}", *more]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT)
        self.names = connect.connect(str(rendezvous.registry_in(self.run_dir)), who="test")
        self.controller = controller.Controller(self.names, "faults")

    def status(self, kind, index=0):
        found = [s for s in self.controller.workers(kind) if s.index == index]
        return found[0] if found else None

    def wait(self, predicate, what):
        deadline = time.monotonic() + DEADLINE
        while not predicate():
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"waited in vain until {what}:\n{self.text()}"
            time.sleep(0.05)

    def environment_steps(self):
        status = self.status("learner")
        if status is None or status.state != states.RUNNING:
            return 0
        return status.details.get("environment_steps", 0)

    def kill(self, kind):
        """Kills one job at a random moment and waits until its successor runs; returns both."""
        before = self.status(kind)
        os.kill(before.pid, signal.SIGKILL)
        others_go_on = kind in ("actor", "evaluator")
        if others_go_on:
            further = self.environment_steps() + 300
            self.wait(lambda: self.environment_steps() >= further, f"there is life after {kind}")
            # A process needs longer to start than the rest of the training would take.
            self.controller.send(states.PAUSE, kind="learner")

        def is_back():
            now = self.status(kind)
            return now.incarnation != before.incarnation and now.state == states.RUNNING

        self.wait(is_back, f"{kind} is back")
        if others_go_on:
            self.controller.send(states.RESUME, kind="learner")
        return before, self.status(kind)

    def incarnations(self, *kinds):
        workers = [status for kind in kinds for status in self.controller.workers(kind)]
        return {(status.kind, status.index): status.incarnation for status in workers}

    def checkpoints(self):
        return list((self.run_dir.tensorboard / "checkpoints").glob("ckpt-*.index"))

    def saved_items(self):
        """Items by table in the newest checkpoint of the replay; none if there is none."""
        while True:
            found = checkpoints.CheckpointDirectory(self.run_dir.replay, 2).newest_first()
            try:
                return checkpoints.count_items(found[0]) if found else {}
            except tf.errors.NotFoundError:
                continue  # It has been replaced by a newer one at this very moment.

    def log(self, kind):
        return self.run_dir.log(kind).read_text()

    def text(self):
        self.output.seek(0)
        return self.output.read()[-4_000:]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.names.close()
        self.output.close()


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_training_goes_on_whichever_job_is_killed(run):
    seed = int(os.environ.get("FAULT_SEED", random.randrange(2**32)))
    print("to repeat the moments: FAULT_SEED =", seed)
    chance = random.Random(seed)
    done = 1_000
    for kind in chance.sample(["actor", "evaluator", "learner", "replay"], 4):
        moment = done + chance.randrange(500, 2_000)
        run.wait(lambda m=moment: run.environment_steps() >= m, f"step {moment}")
        saved, others = {}, {}
        if kind == "learner":
            run.wait(lambda: run.checkpoints(), "the learner has saved")
        if kind == "replay":
            others = run.incarnations("learner", "actor")
            run.wait(run.saved_items, "the replay is saved")
            saved = run.saved_items()
        before, after = run.kill(kind)
        assert after.restarts == before.restarts + 1
        if kind == "learner":
            (restored,) = re.findall(r"Restored \S+/ckpt-(\d+)", run.log("learner"))
            assert 0 < int(restored) and before.steps - int(restored) <= CHECKPOINT_INTERVAL
        if kind == "replay":
            restored = ast.literal_eval(
                re.findall(r"Restored (\{.+\}) items", run.log("replay"))[-1]
            )
            # A later checkpoint may have been the last. Experience is all there is in it.
            (table,) = saved
            assert restored[table] >= saved[table] > 0
            further = run.environment_steps() + 300
            run.wait(lambda m=further: run.environment_steps() >= m, "both sides have reconnected")
            assert run.incarnations("learner", "actor") == others
        done = moment

    run.process.wait(DEADLINE)
    assert run.process.returncode == 0, run.text()
    rows = jsonl.read_rows(run.run_dir.metrics_jsonl)
    steps = [row["environment_steps"] for row in rows if "eval_return" not in row]
    # Whoever died, every step was counted once: actors are two turns of 256 ahead at most.
    assert steps == sorted(steps) and STEPS <= steps[-1] <= STEPS + 2 * 2 * 2 * 256
    trained = [row["train_steps"] for row in rows if "eval_return" not in row]
    assert trained == sorted(trained)
    # The final version was evaluated, and training has reached its target.
    final = run.status("evaluator")
    assert final.state == states.COMPLETED and final.version == trained[-1]
    assert max(row["eval_return"] for row in rows if "eval_return" in row) >= TARGET_RETURN
    assert (run.run_dir.best / "policy" / "saved_model.pb").exists()
    assert (run.run_dir.policies / "greedy_policy" / "saved_model.pb").exists()
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))

"""`actor-learner up` as a process of a test that stops and kills its jobs at random moments."""

import os
import re
import signal
import subprocess
import sys
import time

import tensorflow as tf

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.naming import connect
from actor_learner.replay.server import checkpoints
from tests.launch import processes

DEADLINE = 240.0


class Run:
    """`actor-learner up` in a process of its own, and a look at its jobs.

    Args:
      directory: Where the run directory is made.
      gin_file: What is trained,
      bindings: and how that differs here.
      more: Further flags.
      actors: How many.
    """

    def __init__(self, directory, gin_file, bindings, *more, actors=2):
        self.run_dir = run_directory.RunDirectory(directory / "faults")
        self.output = open(directory / "up.txt", "w+")
        command = [sys.executable, "-m", "actor_learner.cli", "up", f"--gin_file={gin_file}"]
        command += [f"--gin_param={binding}" for binding in bindings]
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

    def stop_and_continue(self, kind):
        """Stops one job at a random moment until it is seen to be silent, and continues it."""
        before = self.status(kind)
        others_go_on = kind in ("actor", "evaluator")
        os.kill(before.pid, signal.SIGSTOP)
        try:
            if others_go_on:  # They would be done before everybody had been stopped and killed.
                self.controller.send(states.PAUSE, kind="learner")
            self.wait(lambda: self.status(kind).silent_seconds, f"{kind} is silent")
        finally:
            os.kill(before.pid, signal.SIGCONT)
        self.wait(lambda: not self.status(kind).silent_seconds, f"{kind} answers again")
        if others_go_on:
            self.controller.send(states.RESUME, kind="learner")
        assert self.status(kind).incarnation == before.incarnation

    def kill(self, kind):
        """Kills one job at a random moment and waits until its successor runs; returns both."""
        before = self.status(kind)
        os.kill(before.pid, signal.SIGKILL)
        self.wait(lambda: not processes.is_alive(before.pid), f"{kind} is gone")
        self.saved_at_kill = self.saved_steps()  # Its successor needs seconds to start.
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

    def saved_steps(self):
        """Train steps of the checkpoints on disk, in order."""
        return sorted(int(re.search(r"ckpt-(\d+)", path.name)[1]) for path in self.checkpoints())

    def saved_items(self, share=""):
        """Items by table in the newest checkpoint of the replay; none if there is none.

        Args:
          share: Directory of one of several servers.
        """
        while True:
            path = self.run_dir.replay / share
            found = checkpoints.CheckpointDirectory(path, 2).newest_first()
            try:
                return checkpoints.count_items(found[0]) if found else {}
            except tf.errors.NotFoundError:
                continue  # It has been replaced by a newer one at this very moment.

    def log(self, kind, index=0):
        return self.run_dir.log(kind, index).read_text()

    def text(self):
        self.output.seek(0)
        return self.output.read()[-4_000:]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.names.close()
        self.output.close()

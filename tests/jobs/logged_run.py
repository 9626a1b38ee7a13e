"""A tiny run as jobs whose environment writes down each step, to compare with the count."""

import os
import subprocess
import sys
import time

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.naming import connect
from actor_learner.reporting import jsonl
from tests.jobs import job_processes

TURN = 64
DEADLINE = 300.0
CONFIGURATION = """
import tests.jobs.logged_environment
include 'dqn_cartpole.gin'
Experiment.environment = @LoggedEnvironment
LoggedEnvironment.path = '{steps}'
evaluation/LoggedEnvironment.path = None
Evaluation.environment = @evaluation/LoggedEnvironment
Evaluation.interval = 500
Evaluation.episodes = 1
Evaluation.target_return = None
Experiment.initial_random_steps = 100
Experiment.collect_steps = {turn}
Experiment.updates_per_step = 0.1
Checkpoints.replay_seconds = 0.5
Learner.checkpoint_interval = 50
Learner.triggers = [@StopWhenFileExists()]
StopWhenFileExists.path = '{enough}'
Reporting.seconds = 0.2
dqn.fc_layer_params = (4,)
LaneReplay.rows_per_item = 1
"""


class LoggedRun:
    """A run in a directory of its own, and the steps that its environments have taken.

    Args:
      directory: Takes the run, its configuration and the output of `up`.
      registry: URL of the run's registry; None for the one in its directory.
    """

    def __init__(self, directory, registry=None):
        self.steps = directory / "steps"
        self.gin_file = directory / "logged.gin"
        self.enough = directory / "enough"
        self.gin_file.write_text(
            CONFIGURATION.format(steps=self.steps, turn=TURN, enough=self.enough)
        )
        self.run_dir = run_directory.RunDirectory(directory / "logged")
        self.registry = registry
        self.output = directory / "output"
        self.environment = {**os.environ, "PYTHONPATH": str(job_processes.ROOT)}
        self.process = None
        self._names = None

    def up(self, *flags, environment_steps, **variables):
        """Starts `up`, with jobs that are started again at once."""
        command = [sys.executable, "-m", "tests.jobs.hasty_up", "up"]
        if self.run_dir.config.exists():
            command.append(f"--resume={self.run_dir}")
        else:
            command += [f"--gin_file={self.gin_file}", f"--run_dir={self.run_dir}", "--seed=1"]
        command += [f"--gin_param=Experiment.environment_steps = {environment_steps}", *flags]
        if self.registry is not None:
            command += [f"--registry={self.registry}", "--host=localhost"]
            command.append("--replay_host=localhost")
        with open(self.output, "a") as file:
            self.process = subprocess.Popen(
                command,
                env={**self.environment, **variables},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        return self.process

    @property
    def controller(self):
        if self._names is None:
            url = self.registry or str(rendezvous.registry_in(self.run_dir))
            self._names = connect.connect(url, who="test")
            self._controller = controller.Controller(self._names, "logged")
        return self._controller

    def status(self, kind, index=0):
        """The status of a job; None before it has shown itself."""
        found = [s for s in self.controller.workers(kind) if s.index == index]
        return found[0] if found else None

    def is_running(self, kind, index=0):
        status = self.status(kind, index)
        return status is not None and status.state == states.RUNNING and not status.silent_seconds

    def environment_steps(self):
        """What the learner has counted; 0 while it does not run."""
        status = self.status("learner")
        return 0 if status is None else status.details.get("environment_steps", 0)

    def wait(self, predicate, what):
        """Waits until the predicate holds; fails if `up` ends before."""
        deadline = time.monotonic() + DEADLINE
        while not predicate():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"waited in vain until {what}:\n{self.text()}"
            time.sleep(0.05)

    def wait_for_steps(self, number):
        """Waits until the learner has counted so many more steps."""
        wanted = self.environment_steps() + number
        self.wait(lambda: self.environment_steps() >= wanted, f"step {wanted}")

    def text(self):
        return self.output.read_text()[-6_000:]

    def require_exact_counts(self):
        """Waits for the end of `up`; returns the learner's count if it is the environments' own."""
        assert self.process.wait(DEADLINE) == 0, self.text()
        rows = [r for r in jsonl.read_rows(self.run_dir.metrics_jsonl) if "eval_return" not in r]
        counted = rows[-1]["environment_steps"]
        assert counted == self.steps.stat().st_size, self.text()
        for column in ("environment_steps", "train_steps"):
            values = [row[column] for row in rows]
            assert values == sorted(values), column
        return counted

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        if self._names is not None:
            self._controller.close()
            self._names.close()

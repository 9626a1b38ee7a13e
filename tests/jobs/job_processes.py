"""Jobs as processes of a test: started, watched, waited for; each in a directory of its own."""

import pathlib
import subprocess
import time

from actor_learner.jobs import controller, states
from actor_learner.naming import connect
from tests import forked

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 240.0


class Machine:
    """A working directory, and the jobs started in it.

    Args:
      directory: Is made.
      registry: URL that its jobs are told by a variable of the environment; None for none.
    """

    def __init__(self, directory, registry=None):
        self.directory = directory
        directory.mkdir()
        self._outputs = directory.parent / f"output of {directory.name}"
        self._outputs.mkdir()
        self.environment = {connect.ENVIRONMENT_VARIABLE: registry}

    def start(self, *command):
        return Process(command, self.directory, self.environment, self._outputs)


class Process:
    """One job; `command` is what follows `actor-learner`, or a module and its flags."""

    def __init__(self, command, directory, environment, outputs):
        self.name = command[0]
        self.path = outputs / f"{len(list(outputs.iterdir()))}-{command[0]}"
        is_module = command[0].startswith(("actor_learner.", "tests."))
        program = command if is_module else ("actor_learner.cli", *command)
        self.process = forked.Popen(
            *program, directory=directory, environment=environment, output=self.path
        )

    @property
    def pid(self):
        return self.process.pid

    @property
    def said(self):
        return self.path.read_text()

    def exit_code(self):
        """Waits for its end."""
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.said[-3000:]}") from None

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)


class Watch:
    """Looks at the jobs of a run through its registry, and waits for what they come to."""

    def __init__(self, url, run):
        self.names = connect.connect(url, who="test")
        self.controller = controller.Controller(self.names, run)

    def status(self, kind):
        """The last status of the first job of a kind; None if there is none."""
        return next(iter(self.controller.workers(kind)), None)

    def is_running(self, kind):
        """Whether the first job of a kind has got ready and works."""
        status = self.status(kind)
        return status is not None and status.state == states.RUNNING

    def details(self, kind, name):
        status = self.status(kind)
        return 0 if status is None else status.details.get(name, 0)

    def wait(self, predicate, what, processes):
        """Waits until the predicate holds; fails if one of the processes ends before."""
        deadline = time.monotonic() + DEADLINE
        while not predicate():
            for process in processes:
                ended = process.process.poll()
                assert ended is None, f"{process.name}: {ended} before {what}:\n{process.said}"
            assert time.monotonic() < deadline, f"waited in vain until {what}: " + "; ".join(
                status.describe() for status in self.controller.workers()
            )
            time.sleep(0.05)

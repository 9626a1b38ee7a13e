"""Programs that tests start as processes, without each importing TensorFlow and all by itself.

They are forked, as the jobs of `actor-learner up` are, from one process per worker of the tests
that has it imported; which takes a tenth of the time. That a program starts by itself as well is
shown by tests that do not use this.
"""

import atexit
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from actor_learner.launch import forking, local

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **forking.ENVIRONMENT}
"""Of every program here, besides what the tests' own process has."""

# Which pytest changes from test to test: a server forks only for the environment that it has.
_CURRENT_TEST = "PYTEST_CURRENT_TEST"
_GRACE_SECONDS = 60.0
_ASK_SECONDS = 60.0


@functools.cache
def _server():
    before = dict(os.environ)
    os.environ.pop(_CURRENT_TEST, None)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = ENVIRONMENT["TF_CPP_MIN_LOG_LEVEL"]
    try:
        server = forking.ForkServer()
    finally:
        os.environ.clear()
        os.environ.update(before)
    atexit.register(server.close)
    return server


class Popen:
    """`python -m MODULE …`, forked: a `subprocess.Popen` as far as tests need one.

    It has a guardian, which ends it and all that it has started with the tests.

    Args:
      module: The program.
      *arguments: Of the program.
      directory: Where it runs.
      environment: What its environment has besides `ENVIRONMENT`; None for a variable it has not.
      output: Where its standard output is appended.
      errors: Where its standard error is; None for the same.
    """

    def __init__(self, module, *arguments, directory=ROOT, environment=None, output, errors=None):
        self.args = [module, *map(str, arguments)]
        wanted = {**os.environ, **ENVIRONMENT, _CURRENT_TEST: None, **(environment or {})}
        self._process = local.LocalProcess(
            [
                *(sys.executable, "-m", "tests.in_directory"),
                *map(str, (directory, output, errors or output, *self.args)),
            ],
            {name: value for name, value in wanted.items() if value is not None},
            pathlib.Path(output),
            grace_seconds=_GRACE_SECONDS,
            incarnation="",
            server=_server(),
        )
        self.pid = self._job()

    @property
    def returncode(self):
        return self._process.poll()

    def poll(self):
        return self._process.poll()

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _job(self):
        """The pid of the program itself, which is the first child of its guardian."""
        deadline = time.monotonic() + _ASK_SECONDS
        guardian = self._process.pid
        children = pathlib.Path(f"/proc/{guardian}/task/{guardian}/children")
        while self.poll() is None:
            try:
                found = children.read_text().split()
            except OSError:
                break  # Both have ended.
            if found:
                return int(found[0])
            assert time.monotonic() < deadline, f"{self.args} is not started"
        return -1


def run(module, *arguments, timeout, **more):
    """Runs a program to its end, as `subprocess.run(…, capture_output=True, text=True)` does.

    Args:
      module: The program.
      *arguments: Of the program.
      timeout: Seconds that it may take.
      **more: As `Popen` has it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output, errors = (pathlib.Path(scratch) / name for name in ("output", "errors"))
        process = Popen(module, *arguments, output=output, errors=errors, **more)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            process.args, code, output.read_text(), errors.read_text() if errors.exists() else ""
        )

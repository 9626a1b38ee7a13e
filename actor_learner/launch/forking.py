"""Asks the fork server for jobs, and starts them as new processes if it cannot fork them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Callable

from absl import logging

from actor_learner.launch import fork_server

# What a killed job printed last is what one wants to read.
ENVIRONMENT = {"PYTHONUNBUFFERED": "1"}
"""Set for every job, whether it is forked or not, besides variables of ours."""

JOB_MODULES = (
    "tensorflow",
    "tf_agents",
    "reverb",
    "actor_learner.components",
    "actor_learner.jobs.workers.replay",
    "actor_learner.jobs.workers.learner",
    "actor_learner.jobs.workers.actor",
    "actor_learner.jobs.workers.evaluator",
    "actor_learner.jobs.workers.policy",
)
"""What jobs import, except for their program, which runs as `__main__`."""

_OURS = ("ACTOR_LEARNER_", "PYTHONPATH")  # Variables that no module reads when it is imported.
_ROOM_FOR_NAMES = 2_048  # For the commands that `ps` is to show.
_CANNOT_RUN = 127
_LOOK_SECONDS = 0.02
_LAST_SECONDS = 1.0
_SAID_BYTES = 4_096


class ForkServer:
    """A process that has imported what jobs need, and forks them; takes seconds to be ready.

    Jobs may be requested before it is ready. If it dies, or cannot fork, the jobs that it has
    forked continue, and others are started without it.

    Args:
      modules: What it imports.
    """

    def __init__(self, modules: Sequence[str] = JOB_MODULES) -> None:
        self._environment = {**os.environ, **ENVIRONMENT}
        self._said = os.memfd_create("fork_server")  # There may be no run directory yet.
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", fork_server.__name__),
                    *(str(theirs.fileno()), ",".join(modules), "-" * _ROOM_FOR_NAMES),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the launcher.
            )

    @property
    def pid(self) -> int:
        """The pid of the server."""
        return self._process.pid

    def ask(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        log: int,
        lifeline: int,
        grace_seconds: float,
    ) -> int | None:
        """Requests a job under a guardian; does not wait. See `guardian` for the arguments.

        Returns:
          A pipe in which the guardian reports its pid, and how the job ends; it stays empty if the
          server dies before. None if this job cannot be forked.
        """
        program = [sys.executable, "-m"]
        if self.has_died() or list(command[:2]) != program or len(command) < 3:
            return None
        changed = {
            name: environment.get(name)
            for name in {*environment, *self._environment}
            if environment.get(name) != self._environment.get(name)
        }
        if not all(name.startswith(_OURS) for name in changed):
            return None
        body = {
            "command": list(command),
            "module": command[2],
            "arguments": list(command[3:]),
            "environment": changed,
            "grace_seconds": grace_seconds,
        }
        message = json.dumps(body).encode()
        if len(message) > fork_server.MESSAGE_BYTES:
            return None
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._control, [message], [log, lifeline, writing])
        except OSError:  # It has just died, or takes no more requests.
            os.close(reading)
            return None
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        return reading

    def kill(self) -> None:
        """Ends the server, not the jobs it has forked."""
        self._process.kill()

    def close(self) -> None:
        """Ends the server and frees what is held for it; its jobs live on."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        os.close(self._said)

    def has_died(self, within_seconds: float = 0.0) -> bool:
        """Whether the server has died; logs why, once."""
        if self._process.returncode is not None:
            return True
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        size = os.fstat(self._said).st_size
        said = os.pread(self._said, _SAID_BYTES, max(0, size - _SAID_BYTES))
        logging.warning(
            "The process that imports what jobs need ended with exit code %s; each job now imports "
            "it by itself. It said last:\n%s",
            self._process.returncode,
            said.decode("utf-8", "replace"),
        )
        return True


class ForkedGuardian:
    """A guardian that the fork server makes, with the methods of `subprocess.Popen` we need.

    Args:
      server: The fork server.
      report: What `ForkServer.ask` returned.
      lifeline: What `ForkServer.ask` was given; closed once the guardian has it.
      start_plainly: Starts the guardian if the server does not; called at most once.
    """

    def __init__(
        self,
        server: ForkServer,
        report: int,
        lifeline: int,
        start_plainly: Callable[[], subprocess.Popen],
    ) -> None:
        self._server = server
        self._report = report
        self._told = b""
        self._lifeline = lifeline
        self._start_plainly = start_plainly
        self._plain: subprocess.Popen | None = None
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """The pid of the guardian; waits for the server to be ready."""
        while self._pid is None and self.poll() is None:
            time.sleep(_LOOK_SECONDS)
        return self._pid if self._plain is None else self._plain.pid

    def poll(self) -> int | None:
        if self._plain is not None:
            return self._plain.poll()
        if self._code is None:
            self._hear()
        return self._code

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked job", timeout)
            time.sleep(_LOOK_SECONDS)
        return code

    def hasten(self) -> None:
        """Kills a server that has not answered, which may be stuck in an import."""
        if self.poll() is None and self._pid is None and self._plain is None:
            self._server.kill()

    def _hear(self) -> None:
        """Reads what the guardian has reported; the pipe ends when the guardian does."""
        try:
            told = os.read(self._report, _SAID_BYTES)
        except BlockingIOError:
            return
        self._told += told
        numbers = [int(line) for line in self._told.split(b"\n")[:-1]]
        if numbers and self._pid is None:
            self._pid = numbers[0]
            os.close(self._lifeline)
        if len(numbers) > 1:
            self._code = numbers[1]
        elif not told and self._pid is not None:
            self._code = -signal.SIGKILL  # It was killed, and its job with it.
        elif not told:
            self._start_without_server()
        if not told or len(numbers) > 1:
            os.close(self._report)

    def _start_without_server(self) -> None:
        self._server.has_died(_LAST_SECONDS)  # Its files are closed: it says why.
        try:
            self._plain = self._start_plainly()
        except OSError as error:
            logging.error("A job cannot be started: %s", error)
            self._code = _CANNOT_RUN
        finally:
            os.close(self._lifeline)

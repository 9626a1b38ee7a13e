"""Starts jobs as processes of this machine, each under a guardian of its own."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.launch import forking, job_spec
from actor_learner.support import atomic, disk_space, errors, redaction

GUARDIAN = pathlib.Path(__file__).with_name("guardian.py")
_TERMINATE, _KILL, _FORGO_GRACE = b"t", b"k", b"!"  # What a guardian understands.


class LocalProcess:
    """One job under its guardian. See `job_spec.Process`.

    Args:
      command: What to run.
      environment: All of its environment variables.
      log: Where its output is appended.
      grace_seconds: How long it may take to end when asked.
      incarnation: Identifies this process of the job in its status.
      detached: Set if this process, or what runs it, may kill its children when it ends; the job
        then still ends in order.
      server: Forks the job if it can; None starts it as a new process.
    """

    note = ""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: pathlib.Path,
        *,
        grace_seconds: float,
        incarnation: str,
        detached: bool = False,
        server: forking.ForkServer | None = None,
    ) -> None:
        self.incarnation = incarnation
        self._command = command
        reading, self._lifeline = os.pipe()

        def start_guardian() -> subprocess.Popen:
            arguments = [f"{grace_seconds:g}", str(reading), "1" if detached else "0", *command]
            with _open_log(log) as output:
                return subprocess.Popen(
                    [sys.executable, "-I", "-S", str(GUARDIAN), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                    pass_fds=[reading],
                    start_new_session=True,  # Ctrl-C is for the launcher, which stops in order.
                )

        report = None
        if server is not None:
            with _open_log(log) as output:
                report = server.ask(
                    command,
                    environment,
                    log=output.fileno(),
                    lifeline=reading,
                    grace_seconds=grace_seconds,
                )
        self._process: subprocess.Popen | forking.ForkedGuardian
        if report is not None:
            self._process = forking.ForkedGuardian(server, report, reading, start_guardian)
            return
        try:
            self._process = start_guardian()
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument.
            os.close(self._lifeline)
            raise errors.JobError(f"{_shown(command)} cannot be started: {error}") from error
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        """The pid of the guardian; the job is its child."""
        return self._process.pid

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None and self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        return code

    def wait(self, timeout: float) -> int:
        """Waits for the end; returns what `poll` does then.

        Raises:
          errors.JobTimeoutError: If it has not ended by then.
        """
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise errors.JobTimeoutError(
                f"{_shown(self._command)} has not ended within {timeout:g} s"
            ) from error
        return self.poll()

    def terminate(self) -> None:
        self._tell(_TERMINATE)

    def kill(self) -> None:
        self._tell(_KILL)
        if isinstance(self._process, forking.ForkedGuardian):
            self._process.hasten()

    def forgo_grace(self) -> None:
        self._tell(_FORGO_GRACE)

    def _tell(self, what: bytes) -> None:
        if self.poll() is None:
            with contextlib.suppress(BrokenPipeError):  # It has ended just now.
                os.write(self._lifeline, what)


class LocalLauncher:
    """Starts jobs here. See `job_spec.Launcher`.

    Args:
      server: Forks the jobs; its owner closes it after the jobs have ended. Without one, and for a
        job that has failed, each is started as a new process.
    """

    def __init__(self, server: forking.ForkServer | None = None) -> None:
        self._server = server

    def launch(self, spec: job_spec.JobSpec, restarts: int, log: pathlib.Path) -> LocalProcess:
        note_start(log, spec, restarts)
        return start(spec, restarts, log, server=None if restarts else self._server)

    def close(self) -> None:
        """Does nothing: the launcher holds nothing."""


def start(
    spec: job_spec.JobSpec,
    restarts: int,
    log: pathlib.Path,
    *,
    detached: bool = False,
    server: forking.ForkServer | None = None,
) -> LocalProcess:
    """Starts a job on this machine. See `LocalProcess` for `detached` and `server`."""
    incarnation = uuid.uuid4().hex
    environment = {
        **os.environ,
        **spec.environment,
        job_lib.INCARNATION_VARIABLE: incarnation,
        job_lib.RESTARTS_VARIABLE: str(restarts),
    }
    return LocalProcess(
        spec.command,
        environment,
        log,
        grace_seconds=spec.grace_seconds,
        incarnation=incarnation,
        detached=detached,
        server=server,
    )


def note_start(log: pathlib.Path, spec: job_spec.JobSpec, restarts: int) -> None:
    """Begins a new section of a job's log."""
    when = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    what = f"restart {restarts}" if restarts else "start"
    line = f"--- {what} of {spec.name}, {when}: {_shown(spec.command)}\n"
    with _open_log(log) as file:
        try:
            atomic.append(file, line.encode())
        except OSError as error:
            if not disk_space.is_out_of_space(error):
                raise
            logging.warning("%s is not noted in its log, the disk is full: %s", what, log)


def _open_log(log: pathlib.Path) -> BinaryIO:
    """Opens a log for appending, unbuffered; on a full disk the job starts without one."""
    try:
        return open(log, "ab", buffering=0)
    except OSError as error:
        if not disk_space.is_out_of_space(error):
            raise
        logging.warning("%s cannot be made, the disk is full: the job runs without it", log)
        return open(os.devnull, "ab", buffering=0)


def _shown(command: Sequence[str]) -> str:
    return shlex.join(map(redaction.redacted, command))

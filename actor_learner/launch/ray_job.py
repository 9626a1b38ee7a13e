"""Runs on the node of a job, for the Ray launcher: starts the job there, and reports on it.

It is a Ray actor whose constructor starts the job as a process, under a guardian, exactly as the
local launcher does. When the actor's process dies, the guardian ends the job.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence

from actor_learner.launch import job_spec, local, ray_cluster

_HOST = "--host="
_PYTHONPATH = "PYTHONPATH"
_MAX_LOG_BYTES = 1 << 18  # In one report; the rest follows with the next.


@dataclasses.dataclass(frozen=True)
class Report:
    """What a node knows about its job.

    Attributes:
      incarnation: What the job's status carries.
      exit_code: As `job_spec.Process.poll`; None while it runs.
      host: Where it runs.
      log: What it has printed since the last report.
    """

    incarnation: str
    exit_code: int | None
    host: str
    log: bytes


class RayJob:
    """One job on the node that Ray has chosen for it.

    Args:
      spec: The job.
      restarts: How often it was restarted before.
      files: Contents of files it needs, by their paths relative to `files_from`.
      files_from: Where they are on the launcher's machine. Flags of the command that name them are
        changed to name the copies here.
      program: The launcher's Python; this node's own takes its place.
    """

    def __init__(
        self,
        spec: job_spec.JobSpec,
        restarts: int,
        *,
        files: Mapping[str, str],
        files_from: str,
        program: str,
    ) -> None:
        import ray

        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="actor-learner-job-"))
        self._log = self._directory / "log"
        for name, text in files.items():
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        command = command_here(spec.command, files, files_from, self._directory, program)
        if not any(argument.startswith(_HOST) for argument in command):
            command.append(f"{_HOST}{ray.util.get_node_ip_address()}")
        here = dataclasses.replace(
            spec, command=command, environment=environment_here(spec.environment, os.environ)
        )
        local.note_start(self._log, here, restarts)
        given = ray_cluster.amounts_in_words(ray.get_runtime_context().get_assigned_resources())
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(f"--- on {socket.gethostname()}, with {given}\n")
        # Ray kills the children of its workers when they end.
        self._process = local.start(here, restarts, self._log, detached=True)

    def report(self, received: int) -> Report:
        """Returns how the job is doing. Does not wait.

        Args:
          received: How many bytes of its log have come so far; those that follow come now.
        """
        code = self._process.poll()
        with open(self._log, "rb") as file:
            file.seek(received)
            log = file.read(_MAX_LOG_BYTES)
        if len(log) == _MAX_LOG_BYTES:
            code = None  # Its end is reported with the end of its log.
        return Report(self._process.incarnation, code, socket.gethostname(), log)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def forgo_grace(self) -> None:
        self._process.forgo_grace()

    def clean_up(self) -> None:
        """Removes what was written on this node; the job must have ended."""
        shutil.rmtree(self._directory, ignore_errors=True)


def command_here(
    command: Sequence[str],
    files: Mapping[str, str],
    files_from: str,
    directory: pathlib.Path,
    program: str,
) -> list[str]:
    """The command with this node's Python, and with the copies of `files` for the originals."""
    changed = [sys.executable if argument == program else argument for argument in command]
    for name in files:
        original, copy = str(pathlib.Path(files_from) / name), str(directory / name)
        changed = [
            argument[: -len(original)] + copy if argument.endswith(f"={original}") else argument
            for argument in changed
        ]
    return changed


def environment_here(given: Mapping[str, str], node: Mapping[str, str]) -> dict[str, str]:
    """A job's variables, with the modules of a `runtime_env` found behind those of the launcher."""
    paths = [given.get(_PYTHONPATH), node.get(_PYTHONPATH)]
    return {**given, _PYTHONPATH: os.pathsep.join(filter(None, paths))}

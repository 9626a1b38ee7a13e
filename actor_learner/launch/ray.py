"""Starts jobs on a Ray cluster: one Ray actor each, which runs the job as a process.

The jobs are the same as on one machine, and so is what happens when one fails or its node dies: the
supervisor starts it again, and Ray finds a node for it. For this, all nodes need

- the same version of this package, and of the modules that the gin files import;
- the name registry: a Redis server, or a directory that all of them see;
- for the jobs that leave files, the run directory on storage that all of them see. Without it, a
  learner that comes back on another node begins again, and a run's files are on the learner's node.
"""

from __future__ import annotations

import pathlib
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from absl import logging

from actor_learner import ray_settings
from actor_learner.jobs import states
from actor_learner.launch import job_spec, ray_cluster, ray_job, ray_placement
from actor_learner.reporting import log_limit
from actor_learner.support import atomic, disk_space, errors

_REPORT_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0  # Before it is pointed out that a job has no node, or its node is silent.
_LOST_SECONDS = 60.0  # A node that only returns errors for so long is given up.
_DIED = 1
_GONE_SECONDS = 5.0


class RayProcess:
    """One job on the cluster. See `job_spec.Process`.

    Args:
      ray: The module.
      actor: Handle of the `ray_job.RayJob`.
      spec: The job.
      log: Where what it prints is appended, here.
      placement: Says why it has no node.
      wait_seconds: How long it may be without one.

    Attributes:
      incarnation: Of the job that runs; empty before it has a node.
      note: What to tell the user about its node.
    """

    def __init__(
        self,
        ray: Any,
        actor: Any,
        spec: job_spec.JobSpec,
        log: pathlib.Path,
        placement: ray_placement.Placement,
        wait_seconds: float,
    ) -> None:
        self.incarnation = ""
        self.note = ""
        self._ray = ray
        self._actor = actor
        self._spec = spec
        self._log = log
        self._placement = placement
        self._wait_seconds = wait_seconds
        self._code: int | None = None
        self._kill_by: float | None = None
        self._asked_at = self._heard_at = time.monotonic()
        self._received = 0  # Bytes of its log.
        self._pending = actor.report.remote(self._received)

    def poll(self) -> int | None:
        if self._code is not None:
            return self._code
        now = time.monotonic()
        if self._kill_by is not None and now > self._kill_by:
            self._give_up(-signal.SIGKILL)  # Its node does not answer.
        elif now - self._asked_at >= _REPORT_SECONDS:
            ready, _ = self._ray.wait([self._pending], timeout=0)
            if ready:
                self._hear(now)
            else:
                self._wait(now - self._heard_at)
        return self._code

    def terminate(self) -> None:
        if self.incarnation:
            self._order("terminate")
        else:
            self._give_up(-signal.SIGTERM)  # It has no node yet.

    def kill(self) -> None:
        if self._kill_by is None:
            self._kill_by = time.monotonic() + _GONE_SECONDS
            self._order("kill")

    def forgo_grace(self) -> None:
        self._order("forgo_grace")

    def _hear(self, now: float) -> None:
        """Takes what its node says, or what Ray says in its place."""
        gone = self._ray.exceptions
        self._asked_at = now
        try:
            report = self._ray.get(self._pending)
        except (gone.ActorUnavailableError, gone.GetTimeoutError) as error:
            self._outage(error, now)
        except gone.RayError as error:
            # The actor has died, with its node or alone, or cannot be started or asked.
            self._append(
                f"--- Ray has lost {self._spec.name} ({type(error).__name__}): {error}\n".encode()
            )
            self._give_up(_DIED)
        else:
            self._heard_at = now
            self._take(report)

    def _outage(self, error: BaseException, now: float) -> None:
        """Asks again after an error that may pass; gives the node up if it does not."""
        silent = now - self._heard_at
        self.note = f"its node is not reached: {ray_cluster.first_line(error)}"
        if silent <= _LOST_SECONDS:
            self._pending = self._actor.report.remote(self._received)
            return
        self._append(f"--- the node of {self._spec.name} was silent for {silent:.0f} s\n".encode())
        self._give_up(_DIED)

    def _wait(self, seconds: float) -> None:
        if seconds <= _PATIENCE_SECONDS:
            return
        if self.incarnation:
            self.note = f"its node has not answered for {seconds:.0f} s"
            return
        self.note = f"waits for room on the cluster for {seconds:.0f} s"
        self._placement.explain(self._spec, seconds)
        if seconds > self._wait_seconds:
            asked = ray_cluster.amounts_in_words(self._spec.resources)
            self._append(
                f"--- no node had room for {self._spec.name}, which asks for {asked}, within "
                f"{self._wait_seconds:g} s (Ray.wait_seconds)\n".encode()
            )
            self._give_up(states.FAILED_FOR_GOOD)

    def _take(self, report: ray_job.Report) -> None:
        if not self.incarnation:
            self._placement.found_room()
        self._append(report.log)
        self._received += len(report.log)
        self.note = f"on {report.host}"
        self.incarnation = report.incarnation
        if report.exit_code is None:
            self._pending = self._actor.report.remote(self._received)
            return
        self._code = report.exit_code
        self._actor.clean_up.remote()
        self._actor.__ray_terminate__.remote()  # Ends the actor, after what was asked before.

    def _order(self, method: str) -> None:
        if self._code is None:
            getattr(self._actor, method).remote()

    def _give_up(self, code: int) -> None:
        """Ends the actor, even if it has no node yet; the guardian ends the job."""
        self._code = code
        try:
            self._ray.kill(self._actor, no_restart=True)
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds; it has ended, or will.
            logging.warning("%s cannot be ended by Ray: %s", self._spec.name, error)

    def _append(self, text: bytes) -> None:
        if text:
            with open(self._log, "ab", buffering=0) as file:
                try:
                    atomic.append(file, text)
                except OSError as error:
                    if not disk_space.is_out_of_space(error):
                        raise
                    logging.warning("a part of %s is lost: the disk is full", self._log)
            log_limit.move_if_large(self._log, log_limit.log_limit())


class RayLauncher:
    """Starts jobs on a Ray cluster. See `job_spec.Launcher`.

    When the process that made it ends, for whatever reason, its jobs end too.

    Args:
      ray: The module, connected to the cluster.
      specs: The jobs that the run begins with, for which room is made together.
      say: Takes a line for the user.
      settings: How they are placed.
      files: Contents of files that the jobs need, by paths relative to `files_from`; nodes get
        copies, and commands that name them (`--flag=<file>`) name the copies.
      files_from: Where they are here.
      program: The Python in the commands, in whose place each node puts its own.
    """

    def __init__(
        self,
        ray: Any,
        specs: Sequence[job_spec.JobSpec],
        say: Callable[[str], None],
        *,
        settings: ray_settings.RaySettings,
        files: Mapping[str, str] | None = None,
        files_from: str | pathlib.Path = "",
        program: str = sys.executable,
    ) -> None:
        self._ray = ray
        self._wait_seconds = settings.wait_seconds
        self._files = dict(files or {})
        self._files_from = str(files_from)
        self._program = program
        self._placement = ray_placement.Placement(ray, specs, settings.placement, say)

    def launch(self, spec: job_spec.JobSpec, restarts: int, log: pathlib.Path) -> RayProcess:
        try:
            actor = (
                self._ray.remote(ray_job.RayJob)
                .options(
                    name=f"{spec.name}-{restarts}-{time.monotonic_ns()}",
                    max_restarts=0,  # The supervisor does that, and counts.
                    **self._placement.options(spec),
                )
                .remote(
                    spec,
                    restarts,
                    files=self._files,
                    files_from=self._files_from,
                    program=self._program,
                )
            )
        except Exception as error:  # Ray raises many kinds.
            raise errors.JobError(
                f"{spec.name} cannot be started: Ray says {ray_cluster.first_line(error)}"
            ) from error
        return RayProcess(self._ray, actor, spec, log, self._placement, self._wait_seconds)

    def close(self) -> None:
        self._placement.close()

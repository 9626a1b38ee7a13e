"""Places jobs on an existing Ray cluster: one Ray actor each, which runs the job as a process.

The jobs are the same as on one machine. A job that fails is restarted by the supervisor, as there;
a job whose node dies is restarted by Ray, on another node. So that this can work, all nodes need

- the same version of this package, and of the modules that the gin files import;
- the name registry: a Redis server, or a directory that all of them see;
- for the jobs that leave files, the run directory on storage that all of them see. Without it, a
  learner that comes back on another node begins anew, and a run's files are on the learner's node.
"""

from __future__ import annotations

import pathlib
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from absl import logging

from actor_learner.launch import job_spec, ray_job
from actor_learner.reporting import log_limit
from actor_learner.support import atomic, disk_space, errors, extras

_REPORT_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0  # Before it is pointed out that a job has no node.
_DIED = 1
_GONE_SECONDS = 5.0


class RayProcess:
    """One job on the cluster. See `job_spec.Process`.

    Args:
      ray: The module.
      actor: Handle of the `ray_job.RayJob`.
      spec: The job.
      log: Where what it prints is appended, here.

    Attributes:
      incarnation: Of the job that runs now; empty before it has a node.
      note: What to tell the user about its node.
      relaunches: How often Ray has restarted it.
    """

    def __init__(self, ray: Any, actor: Any, spec: job_spec.JobSpec, log: pathlib.Path) -> None:
        self.incarnation = ""
        self.note = ""
        self.relaunches = 0
        self._ray = ray
        self._actor = actor
        self._spec = spec
        self._log = log
        self._code: int | None = None
        self._asked = ""  # The last order given: a job that Ray brings back needs it again.
        self._kill_by: float | None = None
        self._asked_at = time.monotonic()
        self._heard_at = time.monotonic()
        self._pending = actor.report.remote()

    def poll(self) -> int | None:
        if self._code is not None:
            return self._code
        now = time.monotonic()
        ready, _ = self._ray.wait([self._pending], timeout=0)
        if self._kill_by is not None and now > self._kill_by:
            self._give_up(-signal.SIGKILL)  # Its node does not answer.
            return self._code
        if not ready:
            if now - self._heard_at > _PATIENCE_SECONDS:
                needed = ", ".join(f"{k} {v:g}" for k, v in sorted(self._spec.resources.items()))
                self.note = f"no node has answered for {now - self._heard_at:.0f} s; needs {needed}"
            return None
        if now - self._asked_at < _REPORT_SECONDS:
            return None
        try:
            report = self._ray.get(self._pending)
        except self._ray.exceptions.RayActorError as error:
            self._append(f"--- Ray gave {self._spec.name} up: {error}\n".encode())
            self._code = _DIED
            return self._code
        self._asked_at = self._heard_at = now
        self._take(report)
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
        if self._code is None:
            self._actor.forgo_grace.remote()

    def _take(self, report: ray_job.Report) -> None:
        self._append(report.log)
        self.note = f"on {report.host}"
        if self.incarnation not in ("", report.incarnation):
            self.relaunches += 1
            if self._asked:
                self._order(self._asked)
        self.incarnation = report.incarnation
        if report.exit_code is None:
            self._pending = self._actor.report.remote()
            return
        self._code = report.exit_code
        self._actor.clean_up.remote()
        self._actor.__ray_terminate__.remote()  # Ends the actor, after what was asked before.

    def _order(self, method: str) -> None:
        if self._code is None:
            self._asked = method
            getattr(self._actor, method).remote()

    def _give_up(self, code: int) -> None:
        """Ends the actor, wherever it is or is to be; the guardian sees to the job."""
        if self._code is None:
            self._code = code
            self._ray.kill(self._actor, no_restart=True)

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

    Its jobs end with the process that has made it, whatever becomes of it.

    Args:
      address: Of the cluster: `auto`, or `host:port`.
      namespace: Names the run to Ray.
      files: Contents of files that the jobs need, by paths relative to `files_from`; nodes get
        copies, and commands that name them (`--flag=<file>`) name the copies.
      files_from: Where they are here.
    """

    def __init__(
        self,
        address: str,
        *,
        namespace: str,
        files: Mapping[str, str] | None = None,
        files_from: str | pathlib.Path = "",
    ) -> None:
        self._ray = extras.require("ray", "ray")
        self._files = dict(files or {})
        self._files_from = str(files_from)
        try:
            self._ray.init(address=address, namespace=namespace, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise errors.ConfigError(
                f"there is no Ray cluster at --address={address}: {error}. Start one with "
                "`ray start --head`, or run on this machine with --launcher=local"
            ) from error

    def launch(self, spec: job_spec.JobSpec, restarts: int, log: pathlib.Path) -> RayProcess:
        resources = dict(spec.resources)
        actor_class = self._ray.remote(ray_job.RayJob).options(
            name=f"{spec.name}-{restarts}-{time.monotonic_ns()}",
            num_cpus=resources.pop("CPU", 0),
            num_gpus=resources.pop("GPU", 0),
            resources=resources or None,
            max_restarts=spec.restart.most,
            max_task_retries=-1,  # A report asked for before a node died is given by the next one.
        )
        actor = actor_class.remote(
            spec,
            restarts,
            files=self._files,
            files_from=self._files_from,
            program=sys.executable,
        )
        return RayProcess(self._ray, actor, spec, log)

    def close(self) -> None:
        self._ray.shutdown()

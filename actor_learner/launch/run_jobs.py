"""Runs a list of jobs to the end of their run, with any launcher, and makes the exit code."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from absl import logging

from actor_learner import jobs_settings, run_directory
from actor_learner.jobs import controller as controller_lib
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import heartbeat, lease, wire
from actor_learner.jobs.presence import names as names_lib
from actor_learner.launch import job_spec, status_reader, supervisor, view
from actor_learner.launch import scaling as scaling_lib
from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import server
from actor_learner.naming import connect
from actor_learner.naming import registry as registry_lib
from actor_learner.reporting import run_summary, summary
from actor_learner.support import programs, signals

OK, FAILED, BAD_CONFIGURATION, LACKING = 0, 1, 2, 4

_HEADLINES = {
    supervisor.COMPLETED: "completed",
    supervisor.INTERRUPTED: "interrupted",
    supervisor.STOPPED: "interrupted",
    supervisor.FAILED: "failed",
}


class Ending(NamedTuple):
    """How a run has ended, as its user is told.

    Attributes:
      code: The exit code of the command: see `run_jobs`.
      lines: What to print, after the view is closed.
    """

    code: int
    lines: list[str]


def run_jobs(
    specs: Sequence[job_spec.JobSpec],
    launcher: job_spec.Launcher,
    *,
    run: str,
    run_dir: run_directory.RunDirectory,
    registry: str,
    terminal: TextIO,
    **more: Any,
) -> int:
    """Runs jobs to the end of their run, and tells the user about it on `terminal`.

    Args:
      specs: The jobs.
      launcher: Starts them; the caller closes it.
      run: Name of the run in the registry.
      run_dir: Takes the logs.
      registry: URL of the registry that the jobs use.
      terminal: Where the user looks.
      **more: Settings that `supervise` has.

    Returns:
      0: the run is complete. 1: a job has failed for good, or no actor is left. 2: its
      configuration is wrong. 3: ended in order by a controller. 4: complete, though a job has
      failed for good, which was tolerated. 130, 143: by Ctrl-C or SIGTERM.
    """
    with (
        connect.connect(registry, who=names_lib.LAUNCHER) as names,
        signals.stop_on_signal(terminal) as stop,
    ):
        shown = view.make_view(terminal, run)
        stop.say = shown.message
        ending = supervise(
            specs, launcher, shown, stop, run=run, run_dir=run_dir, names=names, **more
        )
    return tell(ending, terminal)


def tell(ending: Ending, terminal: TextIO) -> int:
    """Prints the last lines about a run; returns the exit code."""
    for line in ending.lines:
        print(line, file=terminal, flush=True)
    return ending.code


def supervise(
    specs: Sequence[job_spec.JobSpec],
    launcher: job_spec.Launcher,
    shown: view.JobsView,
    stop: signals.StopRequest,
    *,
    run: str,
    run_dir: run_directory.RunDirectory,
    names: registry_lib.NameRegistry,
    host: str = "localhost",
    keys: keys_lib.RunKeys | None = None,
    resume: str = "up",
    final_seconds: float = supervisor.FINAL_SECONDS,
    no_actors_seconds: float = jobs_settings.NO_ACTORS_SECONDS,
    silent_seconds: float = jobs_settings.SILENT_SECONDS,
    stuck_seconds: float = jobs_settings.STUCK_SECONDS,
) -> Ending:
    """Runs jobs to the end of their run, in a process that has a terminal or in one that has none.

    Args:
      specs: The jobs.
      launcher: Starts them; the caller closes it.
      shown: Shows how they do; not yet started.
      stop: Ends the run in order.
      run: Name of the run in the registry.
      run_dir: Takes the logs.
      names: The registry that the jobs use.
      host: How other machines reach this one; `localhost` if none need to.
      keys: Of the run, which its wires demand; None for none.
      resume: The command that resumes the run, all but `--resume=RUN`; the user is told.
      final_seconds: How long evaluators may take after the learner has completed.
      no_actors_seconds: How long the run may be without actors.
      silent_seconds: How long a job may be silent before it is restarted.
      stuck_seconds: How long one poll of a job may last before the job is restarted.
    """
    scaling = scaling_lib.ScaleRequests()
    with controller_lib.Controller(names, run, keys=keys, who=names_lib.LAUNCHER) as controller:
        job = job_lib.Job(
            names_lib.LAUNCHER, 0, run, names, run_dir=run_dir, host=host, keys=keys,
            incarnation=uuid.uuid4().hex, stopping=stop.event,
        )  # fmt: skip
        with (
            _open_wire(job) as opened,
            status_reader.StatusReader(controller, [spec.name for spec in specs]) as reader,
        ):
            controller.forget_ended()
            opened.handle(scaling_lib.SCALE, scaling.take)
            outcome = supervisor.Supervisor(
                specs,
                launcher,
                reader,
                run_dir,
                shown,
                stop.event,
                scaling=scaling,
                final_seconds=final_seconds,
                no_actors_seconds=no_actors_seconds,
                silent_seconds=silent_seconds,
                stuck_seconds=stuck_seconds,
            ).run()
    lacks = outcome.status == supervisor.COMPLETED and bool(outcome.without)
    without = f" without {', '.join(outcome.without)}" if lacks else ""
    where = str(run_dir)
    if outcome.bad_configuration and not run_dir.has_checkpoints:
        where = "the configuration is wrong"  # And there is nothing to be found there.
    lines = [*outcome.lines, f"{outcome.status}{without}: {where}"]
    then = summary.NextSteps.commands(run_dir.path, programs.directory(), resume=resume)
    lines += run_summary.closing_lines(run_dir, _HEADLINES[outcome.status], then)
    return Ending(_exit_code(outcome, stop), lines)


def _exit_code(outcome: supervisor.Outcome, stop: signals.StopRequest) -> int:
    if outcome.status == supervisor.INTERRUPTED:
        return stop.exit_code
    if outcome.status == supervisor.COMPLETED:
        return LACKING if outcome.without else OK
    if outcome.status == supervisor.STOPPED:
        return states.TOLD_TO_EXIT
    return BAD_CONFIGURATION if outcome.bad_configuration else FAILED


@contextlib.contextmanager
def _open_wire(job: job_lib.Job) -> Iterator[server.Server]:
    """Holds the launcher's lease and keeps its wire open while the context lasts.

    Args:
      job: Of kind `names.LAUNCHER`.

    Raises:
      errors.JobError: If another launcher is at work on this run.
      errors.ConfigError: If it may be reached from other machines and the run has no keys.
      job_lib.Stopping: If it is asked to end while it waits for a predecessor to be lost.
    """

    def status() -> status_lib.Status:
        return status_lib.Status(
            job.kind,
            job.index,
            states.RUNNING,
            pid=os.getpid(),
            host=socket.gethostname(),
            incarnation=job.incarnation,
        )

    held = lease.Lease(job)
    held.claim()
    with wire.held_wire(job, held) as opened:
        beating = heartbeat.Heartbeat(
            job, held, status, lambda: logging.error("%s has lost its lease", job)
        )
        beating.start()
        try:
            yield opened
        finally:
            beating.stop()

"""From a list of jobs to an exit code: what every launcher's command comes down to."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TextIO

from actor_learner import run_directory
from actor_learner.jobs import controller as controller_lib
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import settings, states
from actor_learner.jobs.presence import names as names_lib
from actor_learner.launch import job_spec, launcher_wire, status_reader, supervisor, view
from actor_learner.launch import scaling as scaling_lib
from actor_learner.messaging import keys as keys_lib
from actor_learner.naming import connect
from actor_learner.reporting import run_summary, summary
from actor_learner.support import programs, signals

OK, FAILED, BAD_CONFIGURATION, LACKING = 0, 1, 2, 4

_HEADLINES = {
    supervisor.COMPLETED: "completed",
    supervisor.INTERRUPTED: "interrupted",
    supervisor.STOPPED: "interrupted",
    supervisor.FAILED: "failed",
}


def run_jobs(
    specs: Sequence[job_spec.JobSpec],
    launcher: job_spec.Launcher,
    *,
    run: str,
    run_dir: run_directory.RunDirectory,
    registry: str,
    terminal: TextIO,
    host: str = "localhost",
    keys: keys_lib.RunKeys | None = None,
    final_seconds: float = supervisor.FINAL_SECONDS,
    no_actors_seconds: float = settings.NO_ACTORS_SECONDS,
    silent_seconds: float = settings.SILENT_SECONDS,
    stuck_seconds: float = settings.STUCK_SECONDS,
) -> int:
    """Runs jobs to the end of their run, and tells the user about it on `terminal`.

    Args:
      specs: The jobs.
      launcher: Starts them; the caller closes it.
      run: Name of the run in the registry.
      run_dir: Takes the logs.
      registry: URL of the registry that the jobs use.
      terminal: Where the user looks.
      host: How other machines reach this one; `localhost` if none need to.
      keys: Of the run, which its wires demand; None for none.
      final_seconds: How long evaluators may take after the learner has completed.
      no_actors_seconds: How long the run may be without actors.
      silent_seconds: How long a job may not answer before it is started again.
      stuck_seconds: How long one poll of a job may last before it is.

    Returns:
      0: the run is complete. 1: a job has failed for good, or no actor is left. 2: its
      configuration is wrong. 3: ended in order by a controller. 4: complete, though a job has
      failed for good, which was tolerated. 130, 143: by Ctrl-C or SIGTERM.
    """
    scaling = scaling_lib.ScaleRequests()
    with (
        connect.connect(registry, who=names_lib.LAUNCHER) as names,
        controller_lib.Controller(names, run, keys=keys, who=names_lib.LAUNCHER) as controller,
        signals.stop_on_signal(terminal) as stop,
    ):
        job = job_lib.Job(
            names_lib.LAUNCHER, 0, run, names, run_dir=run_dir, host=host, keys=keys,
            incarnation=uuid.uuid4().hex, stopping=stop.event,
        )  # fmt: skip
        with (
            launcher_wire.launcher_wire(job) as wire,
            status_reader.StatusReader(controller, [spec.name for spec in specs]) as reader,
        ):
            controller.forget_ended()
            wire.handle(scaling_lib.SCALE, scaling.take)
            outcome = supervisor.Supervisor(
                specs,
                launcher,
                reader,
                run_dir,
                view.make_view(terminal, run),
                stop.event,
                scaling=scaling,
                final_seconds=final_seconds,
                no_actors_seconds=no_actors_seconds,
                silent_seconds=silent_seconds,
                stuck_seconds=stuck_seconds,
            ).run()
    lacks = outcome.status == supervisor.COMPLETED and bool(outcome.without)
    without = f" without {', '.join(outcome.without)}" if lacks else ""
    for line in [*outcome.lines, f"{outcome.status}{without}: {run_dir}"]:
        print(line, file=terminal, flush=True)
    then = summary.NextSteps.commands(run_dir.path, programs.directory(), resume="up")
    for line in run_summary.closing_lines(run_dir, _HEADLINES[outcome.status], then):
        print(line, file=terminal, flush=True)
    if outcome.status == supervisor.INTERRUPTED:
        return stop.exit_code
    if outcome.status == supervisor.COMPLETED:
        return LACKING if lacks else OK
    if outcome.status == supervisor.STOPPED:
        return states.TOLD_TO_EXIT
    return BAD_CONFIGURATION if outcome.bad_configuration else FAILED

"""From a list of jobs to an exit code: what every launcher's command comes down to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from actor_learner import run_directory
from actor_learner.jobs import controller as controller_lib
from actor_learner.jobs import states
from actor_learner.launch import job_spec, status_reader, supervisor, view
from actor_learner.naming import connect
from actor_learner.support import signals

OK, FAILED, BAD_CONFIGURATION, LACKING = 0, 1, 2, 4


def run_jobs(
    specs: Sequence[job_spec.JobSpec],
    launcher: job_spec.Launcher,
    *,
    run: str,
    run_dir: run_directory.RunDirectory,
    registry: str,
    terminal: TextIO,
    final_seconds: float = supervisor.FINAL_SECONDS,
) -> int:
    """Runs jobs to the end of their run, and tells the user about it on `terminal`.

    Args:
      specs: The jobs.
      launcher: Starts them; the caller closes it.
      run: Name of the run in the registry.
      run_dir: Takes the logs.
      registry: URL of the registry that the jobs use.
      terminal: Where the user looks.
      final_seconds: How long evaluators may take after the learner has completed.

    Returns:
      0: the run is complete. 1: a job has failed for good. 2: its configuration is wrong. 3: ended
      in order by a controller. 4: complete, though a job has failed for good, which was tolerated.
      130, 143: by Ctrl-C or SIGTERM.
    """
    with connect.connect(registry, who="launcher") as names:
        controller = controller_lib.Controller(names, run)
        controller.forget_ended()
        with (
            signals.stop_on_signal(terminal) as stop,
            status_reader.StatusReader(controller, [spec.name for spec in specs]) as reader,
        ):
            outcome = supervisor.Supervisor(
                specs,
                launcher,
                reader,
                run_dir,
                view.make_view(terminal, f"{run}: {len(specs)} jobs"),
                stop.event,
                final_seconds=final_seconds,
            ).run()
    lacks = outcome.status == supervisor.COMPLETED and bool(outcome.without)
    without = f" without {', '.join(outcome.without)}" if lacks else ""
    for line in [*outcome.lines, f"{outcome.status}{without}: {run_dir}"]:
        print(line, file=terminal, flush=True)
    if outcome.status == supervisor.INTERRUPTED:
        return stop.exit_code
    if outcome.status == supervisor.COMPLETED:
        return LACKING if lacks else OK
    if outcome.status == supervisor.STOPPED:
        return states.TOLD_TO_EXIT
    return BAD_CONFIGURATION if outcome.bad_configuration else FAILED

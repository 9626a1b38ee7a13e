"""What a job started by hand does to the run directory in place of a launcher."""

from __future__ import annotations

import contextlib
import os
import sys

from absl import logging

from actor_learner import config, frozen_config, import_path
from actor_learner.jobs import job as job_lib


def lock_run(job: job_lib.Job, closing: contextlib.ExitStack) -> None:
    """Keeps others from training in the run directory, whatever their registry, until `closing`.

    A launcher has done so for the jobs that it has started.

    Raises:
      errors.ConfigError: If another process trains there.
    """
    if os.environ.get(job_lib.INCARNATION_VARIABLE):
        return
    try:
        closing.enter_context(job.run_dir.locked())
    except OSError as error:
        logging.warning("%s trains in %s without a lock: %s", job, job.run_dir, error)


def describe_run(job: job_lib.Job) -> None:
    """Writes `operative_config.gin` and, unless a launcher has, `config.gin` and `run.json`.

    With them the run can be evaluated and resumed like any other. The job must have a run directory
    and a configuration, and have built all that it builds from it.
    """
    run_dir = job.run_dir
    run_dir.write_text(run_dir.operative_config, config.operative_config())
    if run_dir.description.exists():
        return
    frozen_config.write(run_dir, job.source)
    run_dir.describe(
        seed=job.seed, argv=sys.argv, name=job.run, import_path=import_path.of(job.source)
    )

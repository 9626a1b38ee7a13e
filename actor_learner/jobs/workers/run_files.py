"""Locks and describes the run directory of a learner that was started without a launcher."""

from __future__ import annotations

import contextlib
import os
import sys

from absl import logging

from actor_learner import config, frozen_config, import_path
from actor_learner.jobs import job as job_lib


def lock_run(job: job_lib.Job, closing: contextlib.ExitStack) -> None:
    """Locks the run directory against other learners, whatever their registry, until `closing`.

    A launcher has locked it for the jobs that it starts.

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
    and a configuration. What it builds later is in `operative_config.gin` if this is called again.
    """
    run_dir = job.run_dir
    run_dir.write_text(run_dir.operative_config, config.operative_config())
    if run_dir.description.exists():
        return
    frozen_config.write(run_dir, job.source)
    run_dir.describe(
        seed=job.seed, argv=sys.argv, name=job.run, import_path=import_path.of(job.source)
    )

"""What a job started by hand leaves in the run directory in place of a launcher."""

from __future__ import annotations

import sys

from actor_learner import config, import_path
from actor_learner.commands import frozen_config
from actor_learner.jobs import job as job_lib


def describe_run(job: job_lib.Job) -> None:
    """Writes `operative_config.gin` and, unless a launcher has, `config.gin` and `run.json`.

    With them the run can be evaluated and resumed like any other. The job must have a run directory
    and a configuration, and have built all that it builds from it.
    """
    run_dir = job.run_dir
    run_dir.operative_config.write_text(config.operative_config())
    if run_dir.description.exists():
        return
    frozen_config.write(run_dir, job.source)
    run_dir.describe(
        seed=job.seed, argv=sys.argv, name=job.run, import_path=import_path.of(job.source)
    )

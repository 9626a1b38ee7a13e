"""The files of a run that its learner writes: lock, description, and the mark of completion."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
from typing import Any

from absl import logging

from actor_learner import config, frozen_config, import_path, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.jobs import job as job_lib
from actor_learner.support import atomic, unsaved


def lock_run(
    job: job_lib.Job, directory: run_directory.RunDirectory, closing: contextlib.ExitStack
) -> None:
    """Locks a directory against other learners, whatever their registry, until `closing`.

    A launcher has locked the run's for the jobs that it starts.

    Raises:
      errors.ConfigError: If another process trains there.
    """
    if os.environ.get(job_lib.INCARNATION_VARIABLE):
        return
    try:
        closing.enter_context(directory.locked())
    except OSError as error:
        logging.warning("%s trains in %s without a lock: %s", job, directory, error)


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


class DoneMarker:
    """Records the train step at which training was complete, and the settings that decided so.

    A learner that dies after its last train step, while evaluators rate the final version, is
    restarted and must not wait for actors, which have ended. If the run is resumed with more steps
    or another target, the settings differ and training is not complete.

    Args:
      directory: The run directory.
      experiment: Its settings decide when training is complete.
    """

    def __init__(self, directory: pathlib.Path, experiment: experiment_lib.Experiment) -> None:
        self._path = run_directory.RunDirectory(directory).completion
        self._settings = {
            "environment_steps": experiment.environment_steps,
            "target_return": experiment.evaluation.target_return,
        }

    def note(
        self,
        train_step: int,
        reason: str,
        *,
        status: str | None = None,
        failure: str | None = None,
    ) -> None:
        """Writes the marker.

        Args:
          train_step: The last one.
          reason: Why training is complete.
          status: As of `summary.closing_lines`; None is what the marker says already, or else
            "completed".
          failure: Why the run has failed nevertheless; None if it has not.
        """
        if status is None:
            status = (self._read(train_step) or {}).get("status", "completed")
        note = {
            "train_step": train_step,
            "reason": reason,
            "status": status,
            "failure": failure,
            **self._settings,
        }

        def write() -> None:
            with atomic.replacing(self._path) as path:
                path.write_text(json.dumps(note))

        unsaved.ledger().attempt(self._path.name, write, where=self._path)

    def of(self, train_step: int) -> str | None:
        """Returns why training is complete at `train_step`; None if it is not."""
        note = self._read(train_step)
        return None if note is None else note["reason"]

    def failure_of(self, train_step: int) -> str | None:
        """Returns why the run failed when it was complete at `train_step`; None if it did not.

        The evaluators do not tell a restarted learner again.
        """
        note = self._read(train_step)
        return None if note is None else note.get("failure")

    def _read(self, train_step: int) -> dict[str, Any] | None:
        try:
            note = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        same = all(note[name] == value for name, value in self._settings.items())
        return note if same and note["train_step"] == train_step else None

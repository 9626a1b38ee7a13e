"""Leaves in a run directory how the run has ended, for whoever asks afterwards."""

from __future__ import annotations

import json
import pathlib

from actor_learner import run_directory
from actor_learner.launch import run_jobs
from actor_learner.support import atomic, errors


def path_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    """Where it is."""
    return run_dir.path / "ending.json"


def write(run_dir: run_directory.RunDirectory, ending: run_jobs.Ending) -> None:
    """Writes it, whole or not at all.

    Raises:
      OSError: If it cannot be written.
    """
    with atomic.replacing(path_in(run_dir)) as temporary:
        temporary.write_text(json.dumps(ending._asdict(), indent=2) + "\n", encoding="utf-8")


def forget(run_dir: run_directory.RunDirectory) -> None:
    """Removes it: the run begins, or begins again."""
    path_in(run_dir).unlink(missing_ok=True)


def read(run_dir: run_directory.RunDirectory) -> run_jobs.Ending | None:
    """How the run has ended; None if it has not, or was never begun under a detached supervisor.

    Raises:
      errors.JobError: If it cannot be read.
    """
    try:
        found = json.loads(path_in(run_dir).read_text(encoding="utf-8"))
        return run_jobs.Ending(int(found["code"]), [str(line) for line in found["lines"]])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.JobError(f"{path_in(run_dir)} cannot be read: {error}") from error

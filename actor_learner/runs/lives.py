"""Counts the processes that have trained a run, so that none repeats the seeds of another."""

from __future__ import annotations

import pathlib

from actor_learner import run_directory
from actor_learner.support import atomic, errors

FILE = "lives"


def begin(run: run_directory.RunDirectory, job: str) -> int:
    """Counts one more; returns how many there were before it.

    A checkpoint could not tell: a process that was killed has left none, and its successor resumes
    from the same one as itself.

    Args:
      run: The run directory.
      job: The kind of job, whose directory keeps the count.

    Raises:
      errors.ConfigError: If the count cannot be read or written.
    """
    path = pathlib.Path(run.log(job)).parent / FILE
    try:
        before = int(path.read_text()) if path.exists() else 0
        with atomic.replacing(path) as temporary:
            temporary.write_text(f"{before + 1}\n")
    except (OSError, ValueError) as error:
        raise errors.ConfigError(
            f"{path} counts the processes that have trained this run, and cannot be used: {error}"
        ) from error
    return before

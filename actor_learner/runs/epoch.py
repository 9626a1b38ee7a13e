"""Counts the epochs of a run, so that only the latest of its learners may write.

A learner that is suspended for longer than its lease is replaced, and may wake up later. Both then
believe that they are the learner. The one with the lower epoch is refused when it saves or
publishes.
"""

from __future__ import annotations

import pathlib

from actor_learner import run_directory
from actor_learner.support import atomic, errors

FILE = "epoch"


class Epoch:
    """One incarnation of a run's learner.

    Attributes:
      number: How many incarnations came before, in one process or as jobs.

    Args:
      path: The file in the run directory that counts them.
      number: As above.
    """

    def __init__(self, path: pathlib.Path, number: int) -> None:
        self._path = path
        self.number = number

    @classmethod
    def begin(cls, run: run_directory.RunDirectory) -> Epoch:
        """Begins the next epoch. From now on all earlier ones are refused.

        A checkpoint cannot count them: a process that is killed before it saves is followed by one
        that resumes from the same checkpoint.

        Raises:
          errors.ConfigError: If the count cannot be read or written.
        """
        path = run.path / FILE
        number = _read(path)
        try:
            with atomic.replacing(path) as temporary:
                temporary.write_text(f"{number + 1}\n")
        except OSError as error:
            raise errors.ConfigError(
                f"{path} counts the processes that have trained this run, and cannot be written: "
                f"{error}"
            ) from error
        return cls(path, number)

    def require_latest(self) -> None:
        """Checks that no other process has begun to train the run.

        Raises:
          errors.SupersededError: If another process has.
          errors.ConfigError: If the count cannot be read.
        """
        latest = _read(self._path) - 1
        if latest > self.number:
            raise errors.SupersededError(
                f"another process has begun to train {self._path.parent} (epoch {latest}; this one "
                f"is {self.number}): this process was silent for too long, saves nothing and ends"
            )


def _read(path: pathlib.Path) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise errors.ConfigError(
            f"{path} counts the processes that have trained this run, and cannot be read: {error}"
        ) from error

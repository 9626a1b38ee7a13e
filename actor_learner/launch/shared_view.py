"""What a supervisor without a terminal lets others see: its view, and at last its run's ending."""

from __future__ import annotations

import json
import pathlib
import threading
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from absl import logging

from actor_learner import run_directory
from actor_learner.launch import run_jobs, view
from actor_learner.support import atomic, errors

_KEPT_MESSAGES = 1_000
RECENT_MESSAGES = 20
"""How many of the messages so far a new viewer sees."""


class Look(NamedTuple):
    """What a viewer sees at one moment.

    Attributes:
      rows: Of all jobs.
      messages: Those that the viewer has not seen.
      seen: For the next request: whose messages were seen, and how many.
      ending: How the run has ended; None before.
    """

    rows: tuple[view.JobRow, ...]
    messages: list[str]
    seen: tuple[str, int]
    ending: run_jobs.Ending | None


class SharedView:
    """Keeps rows and messages; see `view.JobsView` for what a supervisor calls.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id = uuid.uuid4().hex
        self._rows: tuple[view.JobRow, ...] = ()
        self._messages: list[str] = []
        self._forgotten = 0
        self._ending: run_jobs.Ending | None = None

    def start(self) -> None:
        """Does nothing: there is no terminal."""

    def update(self, rows: Sequence[view.JobRow]) -> None:
        self._rows = tuple(rows)

    def message(self, text: str) -> None:
        logging.info("%s", text)
        with self._lock:
            self._messages.append(text)
            extra = len(self._messages) - _KEPT_MESSAGES
            if extra > 0:
                del self._messages[:extra]
                self._forgotten += extra

    def close(self) -> None:
        """Does nothing: rows and messages stay."""

    def end(self, ending: run_jobs.Ending) -> None:
        """Sets how the run has ended; nothing follows."""
        with self._lock:
            self._ending = ending

    def look(self, seen: tuple[str, int] | None) -> Look:
        """Returns what there is to see now.

        Args:
          seen: As the last `Look` says; None for a viewer who has seen nothing.
        """
        with self._lock:
            end = self._forgotten + len(self._messages)
            # A viewer may have counted the messages of a predecessor that was lost.
            known = seen is not None and seen[0] == self._id
            first = max(0, (seen[1] if known else end - RECENT_MESSAGES) - self._forgotten)
            return Look(self._rows, self._messages[first:], (self._id, end), self._ending)


def _ending_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    return run_dir.path / "ending.json"


def write_ending(run_dir: run_directory.RunDirectory, ending: run_jobs.Ending) -> None:
    """Leaves in the run directory how the run has ended, whole or not at all.

    Raises:
      OSError: If it cannot be written.
    """
    with atomic.replacing(_ending_in(run_dir)) as temporary:
        temporary.write_text(json.dumps(ending._asdict(), indent=2) + "\n", encoding="utf-8")


def forget_ending(run_dir: run_directory.RunDirectory) -> None:
    """Removes what `write_ending` left: the run begins, or begins again."""
    _ending_in(run_dir).unlink(missing_ok=True)


def read_ending(run_dir: run_directory.RunDirectory) -> run_jobs.Ending | None:
    """Returns how the run has ended.

    None if it has not, or was never begun under a detached supervisor.

    Raises:
      errors.JobError: If it cannot be read.
    """
    try:
        found = json.loads(_ending_in(run_dir).read_text(encoding="utf-8"))
        return run_jobs.Ending(int(found["code"]), [str(line) for line in found["lines"]])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.JobError(f"{_ending_in(run_dir)} cannot be read: {error}") from error

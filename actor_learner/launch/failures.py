"""Tells the user why jobs have failed: each error once, however many jobs it meets how often."""

from __future__ import annotations

from typing import Callable

from actor_learner.jobs import status as status_lib
from actor_learner.launch import supervised_job


class Failures:
    """Tells errors as they appear, and sums them up at the end of a run.

    Args:
      say: Takes lines for the user.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: set[str] = set()

    def look(self, job: supervised_job.SupervisedJob, status: status_lib.Status | None) -> None:
        """Tells the error that has ended a job, unless it, or another job, has had it before."""
        failure = None if status is None else status.failure
        if failure is not None and self._is_new(failure):
            self._say(f"{job.spec.name}: {failure.shown}\nLog: {job.log}")

    def post_mortem(
        self, job: supervised_job.SupervisedJob, status: status_lib.Status | None
    ) -> list[str]:
        """Lines about a job that has failed for good; with its error if it was not told before."""
        name, log = job.spec.name, job.log
        failure = None if status is None else status.failure
        if failure is None:
            # It was killed, or crashed in native code: the log is all there is.
            tail = (f"  {line}" for line in job.tail())
            return [f"{name} failed for good: {job.last_words}", f"last lines of {log}:", *tail]
        lines = [f"{name} failed for good: {job.last_words} ({log})"]
        if self._is_new(failure):
            lines.append(failure.shown)
        return lines

    def _is_new(self, failure: status_lib.Failure) -> bool:
        """Whether it was not told yet; what the same line of the user's raises is the same."""
        key = failure.shown.rpartition(status_lib.RAISED_IN)[2]
        is_new = key not in self._told
        self._told.add(key)
        return is_new

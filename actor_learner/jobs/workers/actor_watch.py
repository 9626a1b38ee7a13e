"""Says that a learner has no actors, and ends its wait for one after a deadline."""

from __future__ import annotations

import time
from typing import Callable

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.support import errors

_SAY_SECONDS = 10.0


class ActorWatch:
    """Knows for how long a learner that waits for experience has had no actor.

    Args:
      job: The learner's.
      patience_seconds: How long it may be without one.
      clock: Returns seconds.

    Attributes:
      is_alone: Whether it was said that there is no actor.
    """

    def __init__(
        self,
        job: job_lib.Job,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._since: float | None = None
        self.is_alone = False

    def has_experience(self) -> None:
        """Notes that the learner need not wait at present."""
        self._since = None

    def look(self, there_are_actors: bool) -> None:
        """Notes whether there are actors, while the learner waits for experience.

        Raises:
          errors.JobTimeoutError: If there have been none for too long.
        """
        if there_are_actors:
            if self.is_alone:
                logging.info("%s has an actor again.", self._job)
            self._since, self.is_alone = None, False
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        alone = now - self._since
        if alone > _SAY_SECONDS and not self.is_alone:
            self.is_alone = True
            logging.warning(
                "%s waits for experience, and no actor has shown itself for %.0f s: start one with "
                "`actor-learner actor --run=… --index=N`.",
                self._job,
                alone,
            )
        if alone > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self._job} has waited {alone:.0f} s for an actor (Jobs.patience_seconds), and "
                "none has come"
            )

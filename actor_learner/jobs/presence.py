"""Whether a job's replay server is there, and still that of its run."""

from __future__ import annotations

import time
from typing import Callable

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import replay_connection as replay_connection_lib
from actor_learner.support import errors


class Presence:
    """Asks the server whose it is, after an outage and whenever nothing has told so for a while.

    Another run's server may have its port by then, to which whatever writes or reads would go over
    without a word.

    Args:
      job: Who asks.
      partner: The server.
      trust_seconds: How long an answer holds. Outages that nobody notices are shorter.
      heard_seconds: Returns how long ago something else told that it is this run's server.
    """

    def __init__(
        self,
        job: job_lib.Job,
        partner: replay_connection_lib.Partner,
        *,
        trust_seconds: float,
        heard_seconds: Callable[[], float] | None = None,
    ) -> None:
        self._job = job
        self._partner = partner
        self._trust_seconds = trust_seconds
        self._heard_seconds = heard_seconds
        self._is_away = False
        self._known_at = time.monotonic()

    @property
    def is_away(self) -> bool:
        """Whether it did not answer when something was last asked or sent."""
        return self._is_away

    def is_certain(self) -> bool:
        """Whether the server is there and this run's; asks it only if there is doubt.

        Raises:
          errors.OtherRunError: If it is another run's.
          errors.ReplayMovedError: If it is elsewhere by now.
        """
        if not self._is_away and self._seconds_since_known() <= self._trust_seconds:
            return True
        try:
            self._partner.require_same_run()
        except errors.ReplayTimeoutError as error:
            self.note_outage(error)
            return False
        if self._is_away:
            logging.info("%s: the replay server answers.", self._job)
        self._is_away, self._known_at = False, time.monotonic()
        return True

    def note_outage(self, error: errors.ReplayError) -> None:
        """Takes notice that this run's server does not answer, and says so once per outage.

        Raises:
          errors.ReplayMovedError: If it is elsewhere by now.
        """
        if not self._is_away:
            logging.warning("%s waits: %s", self._job, error)
        self._is_away = True
        self._partner.require_same_address()

    def _seconds_since_known(self) -> float:
        since = time.monotonic() - self._known_at
        return since if self._heard_seconds is None else min(since, self._heard_seconds())

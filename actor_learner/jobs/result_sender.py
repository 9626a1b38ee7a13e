"""An evaluator's result on its way to the learner, with the policy if it is the best so far."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import mailbox, worker
from actor_learner.jobs import replay_connection as replay_connection_lib
from actor_learner.runs import best_policy
from actor_learner.support import errors, reverb_calls, unsaved

_SECONDS = 10.0
_LAST_SECONDS = 5.0
"""How long a job that was asked to end still tries: a policy is kept, so its score must be told."""


class Delivery:
    """Holds one result until the server has it; a server that is away is tried again and again.

    Args:
      job: The evaluator's.
      partner: The replay server.
      best_dir: Where `BestPolicyTrigger` writes the best policy.
      policy: That policy; its variables must not change while it is `pending`.
      timeout_seconds: The longest that one try waits for the server.
    """

    def __init__(
        self,
        job: job_lib.Job,
        partner: replay_connection_lib.Partner,
        best_dir: str | os.PathLike,
        policy: Any,
        *,
        timeout_seconds: float = _SECONDS,
    ) -> None:
        self._job = job
        self._partner = partner
        self._best_dir = best_dir
        self._policy = policy
        self._timeout_seconds = timeout_seconds
        self._results = mailbox.Sender(partner.client, mailbox.EVALUATIONS)
        self._result: Mapping[str, Any] | None = None
        self._candidate_waits = self._is_posted = self._was_away = False
        self._stopping_since: float | None = None

    @property
    def pending(self) -> bool:
        """Whether there is a result that the server does not have yet."""
        return self._result is not None

    def take(self, result: Mapping[str, Any], *, is_best: bool) -> None:
        """Takes charge of a result; the one before must have been delivered."""
        self._result = {**result, "sent": is_best}
        self._candidate_waits = is_best
        self._is_posted = False

    def deliver(self) -> bool:
        """Tries to deliver; returns whether the server has everything now.

        Raises:
          errors.ReplayMovedError: If the server is elsewhere by now.
          errors.OtherRunError: If another run's server answers in its place.
          worker.Stopping: If the job was asked to end, and the server has not taken it since.
        """
        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                if not self._send():
                    return False
        except errors.ReplayTimeoutError as error:
            self._was_away = True
            if self._job.stopping.is_set():
                raise worker.Stopping(f"{self._job} ends with an evaluation undelivered") from error
            logging.warning("%s waits with an evaluation: %s", self._job, error)
            self._partner.require_same_address()
            return False
        self._result = None
        return True

    def _has_no_time(self) -> bool:
        if not self._job.stopping.is_set():
            return False
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since > _LAST_SECONDS

    def _send(self) -> bool:
        """Sends what is left; returns False if there is no room on the disk to pack it."""
        if self._was_away:
            self._partner.require_same_run()
            self._was_away = False
        seconds = self._timeout_seconds
        if self._candidate_waits:
            # Before its message, so that the learner has it when it hears of it.
            unsaved.ledger().attempt(
                "the best policy, on its way to the learner",
                lambda: self._send_candidate(seconds),
                where=self._best_dir,
                retry=False,
                if_due=True,
            )
            if self._candidate_waits:
                return False
        if not self._is_posted:
            self._results.send(self._result)
            self._is_posted = True
        self._results.flush(seconds)
        return True

    def _send_candidate(self, seconds: float) -> None:
        best_policy.send(self._partner.client, self._best_dir, self._policy, seconds)
        self._candidate_waits = False

"""Whether an evaluation of the final version is still to come."""

from __future__ import annotations

import time

from absl import logging

from actor_learner.jobs import controller, states
from actor_learner.jobs import job as job_lib
from actor_learner.naming import name_errors

MOST_SECONDS = 300.0


class LastEvaluation:
    """Looks for evaluators that are alive, which never leave the final version out.

    Args:
      job: The learner's; made when training is complete.
      timeout_seconds: How long they may take.
    """

    def __init__(self, job: job_lib.Job, timeout_seconds: float = MOST_SECONDS) -> None:
        self._job = job
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds

    def is_expected(self) -> bool:
        """Whether an evaluator is at work, and has time left; asks the registry."""
        if time.monotonic() > self._deadline:
            logging.warning(
                "No evaluation of the final version has come within %g s: the metrics lack it.",
                self._timeout_seconds,
            )
            return False
        everyone = controller.Controller(self._job.names, self._job.run)
        try:
            return any(status.state in states.LIVE for status in everyone.workers("evaluator"))
        except name_errors.RegistryUnavailableError:
            return False

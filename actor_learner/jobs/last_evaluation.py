"""Whether an evaluation of the final version is still to come."""

from __future__ import annotations

import time
from collections.abc import Collection

from absl import logging

from actor_learner.jobs import controller, names, states
from actor_learner.jobs import job as job_lib
from actor_learner.naming import name_errors

KIND = "evaluator"


class LastEvaluation:
    """Looks for evaluators that are alive, which never leave the final version out.

    Args:
      job: The learner's; made when training is complete.
      timeout_seconds: How long they may take.
    """

    def __init__(self, job: job_lib.Job, timeout_seconds: float) -> None:
        self._job = job
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds

    def is_expected(self, raters: Collection[int]) -> bool:
        """Whether an evaluator is still at work, and has time left; asks the registry.

        Args:
          raters: Those whose evaluation has come, by index.
        """
        if time.monotonic() > self._deadline:
            logging.warning(
                "Not every evaluator has rated the final version within %g s; these have: %s.",
                self._timeout_seconds,
                ", ".join(names.job(KIND, index) for index in sorted(raters)) or "none",
            )
            return False
        everyone = controller.Controller(self._job.names, self._job.run)
        try:
            return any(
                status.state in states.LIVE and status.index not in raters
                for status in everyone.workers(KIND)
            )
        except name_errors.RegistryUnavailableError:
            return False

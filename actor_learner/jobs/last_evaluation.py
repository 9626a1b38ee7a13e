"""Whether an evaluation of the final version is still to come."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Callable

from absl import logging

from actor_learner.jobs import controller, names, states
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import status as status_lib
from actor_learner.naming import name_errors

KIND = "evaluator"

RATED = "rated_version"
"""The detail of an evaluator's status that names the version whose result it has sent last."""

RESTART_SECONDS = 60.0
"""How long an evaluator that has failed, or is lost, may take to come back."""

ARRIVAL_SECONDS = 15.0
"""How long the result of an evaluator that has ended may be under way."""


class LastEvaluation:
    """Looks for evaluators, which never leave the final version out.

    Args:
      job: The learner's; made when training is complete.
      version: The final one.
      timeout_seconds: How long they may take.
      num_evaluators: How many the run is known to have: the first so many are waited for even if
        they have not been seen yet, or are away for longer than a restart takes.
      clock: Seconds of any clock.
    """

    def __init__(
        self,
        job: job_lib.Job,
        version: int,
        timeout_seconds: float,
        *,
        num_evaluators: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._version = version
        self._timeout_seconds = timeout_seconds
        self._num_evaluators = num_evaluators
        self._clock = clock
        self._everyone = controller.Controller(job.names, job.run, keys=job.keys, who=str(job))
        self._began = clock()
        self._ended_at: dict[int, float] = {}
        self._awaited: set[int] = set()

    def is_expected(self, take_results: Callable[[], Collection[int]]) -> bool:
        """Whether a result is still to come, and there is time left for it; asks the registry.

        Args:
          take_results: Takes in the results that have come, and returns whose have, by index. It
            is called after the registry was asked: who had ended by then has sent its result.
        """
        awaited = self._who_is_awaited()
        raters = take_results()
        if self._clock() - self._began > self._timeout_seconds:
            logging.warning(
                "Not every evaluator has rated the final version within %g s; these have: %s.",
                self._timeout_seconds,
                ", ".join(names.job(KIND, index) for index in sorted(raters)) or "none",
            )
            return False
        return not awaited.issubset(raters)

    def _who_is_awaited(self) -> set[int]:
        try:
            found = self._everyone.workers(KIND)
        except name_errors.RegistryUnavailableError:
            logging.log_every_n_seconds(
                logging.WARNING, "The registry does not tell which evaluators are at work.", 30
            )
            return self._awaited
        awaited = {status.index for status in found if self._is_awaited(status)}
        unseen = set(range(self._num_evaluators)).difference(status.index for status in found)
        self._awaited = awaited | unseen
        return self._awaited

    def _is_awaited(self, status: status_lib.Status) -> bool:
        if status.state in states.LIVE:
            self._ended_at.pop(status.index, None)
            return True
        ended_for = self._clock() - self._ended_at.setdefault(status.index, self._clock())
        if status.state == states.COMPLETED:
            return status.details.get(RATED) == self._version and ended_for < ARRIVAL_SECONDS
        return status.index < self._num_evaluators or ended_for < RESTART_SECONDS

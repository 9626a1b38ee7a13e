"""Decides how long a learner stays after its last train step."""

from __future__ import annotations

import time
from typing import Callable

from actor_learner.jobs.exchange import inbox as inbox_lib
from actor_learner.runs.evaluation import evaluations as evaluations_lib
from actor_learner.runs.evaluation import final_evaluation

_LAST_REPORTS_SECONDS = 40.0
_REJOIN_SECONDS = 10.0


class Ending:
    """Waits for the last reports of actors and for the evaluation of the final version.

    Args:
      version: The final version.
      environment_step: Environment steps that the last checkpoint has counted.
      evaluation_seconds: How long the evaluators may take.
      num_evaluators: How many evaluators the run is known to have.
      may_rejoin: Whether actors of a predecessor may have yet to find this learner.
      clock: Returns seconds.
    """

    def __init__(
        self,
        version: int,
        environment_step: int,
        *,
        evaluation_seconds: float,
        num_evaluators: int,
        may_rejoin: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self.environment_step = environment_step
        self._evaluation = final_evaluation.FinalEvaluation(
            version, evaluation_seconds, num_evaluators=num_evaluators, clock=clock
        )
        self._actors_awaited_seconds = _REJOIN_SECONDS if may_rejoin else 0.0
        self._clock = clock
        self._began = clock()

    def is_over(self, inbox: inbox_lib.Inbox, evaluations: evaluations_lib.Evaluations) -> bool:
        """Returns whether nothing more is to come, or has not come in time.

        Actors report the turns that they were in the middle of; for one that was killed, its
        successor does.
        """
        waited = self._clock() - self._began
        all_reported = waited > self._actors_awaited_seconds and not (inbox.actors or inbox.lost)
        if not all_reported and waited <= _LAST_REPORTS_SECONDS:
            return False
        return not self._evaluation.is_expected(
            inbox.present("evaluator"), evaluations.raters(self.version), inbox.left
        )

"""Decides how long a learner stays after its last train step."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Callable

from absl import logging

from actor_learner import jobs_settings
from actor_learner.jobs.exchange import inbox as inbox_lib
from actor_learner.runs.evaluation import evaluations as evaluations_lib
from actor_learner.runs.evaluation import final_evaluation

LAST_REPORTS_SECONDS = 40.0
"""How long actors may take to report for the last time, those that are restarted included."""

_REJOIN_SECONDS = 10.0


class LastReports:
    """Waits for the last reports of actors, once training is complete.

    Actors report the turns that they were in the middle of; for one that was killed, its successor
    does.

    Args:
      may_rejoin: Whether actors of a predecessor may have yet to find this learner.
      clock: Returns seconds.
    """

    def __init__(
        self, *, may_rejoin: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rejoin_seconds = _REJOIN_SECONDS if may_rejoin else 0.0
        self._clock = clock
        self._began = clock()

    def are_in(self, inbox: inbox_lib.Inbox) -> bool:
        """Returns whether no more are to come, or have not come in time."""
        waited = self._clock() - self._began
        if waited > LAST_REPORTS_SECONDS:
            return True
        return waited > self._rejoin_seconds and not (inbox.actors or inbox.lost)


class Ending:
    """Waits for the actors' last reports, evaluations of the final version, and other learners.

    Those of further policies stay as long as evaluators may need their policies, and this one until
    they have saved: then it lets them go.

    Args:
      version: The final version.
      environment_step: Environment steps that the last checkpoint has counted.
      evaluation_seconds: How long the evaluators may take.
      num_evaluators: How many evaluators the run is known to have.
      policies: Names of the further policies, which have learners of their own.
      may_rejoin: As in `LastReports`.
      clock: Returns seconds.
    """

    def __init__(
        self,
        version: int,
        environment_step: int,
        *,
        evaluation_seconds: float,
        num_evaluators: int,
        policies: Collection[str] = (),
        may_rejoin: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self.environment_step = environment_step
        self._evaluation = final_evaluation.FinalEvaluation(
            version, evaluation_seconds, num_evaluators=num_evaluators, clock=clock
        )
        self._reports = LastReports(may_rejoin=may_rejoin, clock=clock)
        self._policies = frozenset(policies)
        self._policies_seconds = evaluation_seconds
        self._clock = clock
        self._let_go_at: float | None = None

    def is_over(self, inbox: inbox_lib.Inbox, evaluations: evaluations_lib.Evaluations) -> bool:
        """Returns whether nothing more is to come, or has not come in time."""
        if not self._reports.are_in(inbox):
            return False
        if self._evaluation.is_expected(
            inbox.present("evaluator"), evaluations.raters(self.version), inbox.left
        ):
            return False
        return self._lets_all_go(inbox)

    def _lets_all_go(self, inbox: inbox_lib.Inbox) -> bool:
        """Whether all learners of further policies have saved and may end, or are not there.

        One that is not there may have been killed, and come back to save what is left.
        """
        if not self._policies:
            return True
        now = self._clock()
        if self._let_go_at is None:
            self._let_go_at = now
            inbox.lets_go = True
        waited = now - self._let_go_at
        awaited = self._policies.difference(inbox.let_go)
        if waited > LAST_REPORTS_SECONDS:
            awaited = {p for p in awaited if inbox.present(jobs_settings.learner_of(p))}
        if awaited and waited > self._policies_seconds:
            logging.warning(
                "The learners of these policies have not saved within %g s: %s.",
                self._policies_seconds,
                ", ".join(sorted(awaited)),
            )
            return True
        return not awaited

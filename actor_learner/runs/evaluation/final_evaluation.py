"""Decides how long to wait for evaluations of the final version."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Callable

from absl import logging

RESTART_SECONDS = 60.0
"""How long an evaluator that has disappeared may take to come back."""


class FinalEvaluation:
    """Tells whether to wait for evaluators, all of which rate the final version.

    Make it when training is complete: the time they may take begins then.

    Args:
      version: The final version.
      timeout_seconds: How long the evaluators may take.
      num_evaluators: How many the run is known to have. Evaluators with a lower index are awaited
        even if they have not been seen yet, or are away for longer than a restart takes.
      clock: Returns seconds.
    """

    def __init__(
        self,
        version: int,
        timeout_seconds: float,
        *,
        num_evaluators: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self._timeout_seconds = timeout_seconds
        self._num_evaluators = num_evaluators
        self._clock = clock
        self._began = clock()
        self._seen_at: dict[int, float] = {}

    def is_expected(
        self, present: Collection[int], raters: Collection[int], left: Collection[int] = ()
    ) -> bool:
        """Returns whether a result is still missing, and there is time left for it.

        Args:
          present: Indices of the evaluators that follow the learner now.
          raters: Indices of those that have rated the final version.
          left: Indices of those that have confirmed that they end; they send no more results.
        """
        now = self._clock()
        self._seen_at.update(dict.fromkeys(present, now))
        if now - self._began > self._timeout_seconds:
            logging.warning(
                "Not every evaluator has rated the final version within %g s; these have: %s.",
                self._timeout_seconds,
                ", ".join(f"evaluator-{index}" for index in sorted(raters)) or "none",
            )
            return False
        awaited = set(range(self._num_evaluators))
        awaited |= {i for i, seen in self._seen_at.items() if now - seen < RESTART_SECONDS}
        return not awaited.difference(left).issubset(raters)

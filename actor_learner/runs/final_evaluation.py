"""Whether an evaluation of the final version is still to come."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Callable

from absl import logging

RESTART_SECONDS = 60.0
"""How long an evaluator that has gone may take to come back."""


class FinalEvaluation:
    """Waits for evaluators, which never leave the final version out.

    Args:
      version: The final one; made when training is complete.
      timeout_seconds: How long they may take.
      num_evaluators: How many the run is known to have: the first so many are waited for even if
        they have not been seen yet, or are away for longer than a restart takes.
      clock: Seconds of any clock.
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
        """Whether a result is still to come, and there is time left for it.

        Args:
          present: The evaluators that follow the learner now, by index.
          raters: Those whose result of the final version has come.
          left: Those that were told to end, and have said so: nothing comes of them.
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

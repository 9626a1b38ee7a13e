"""Says when an actor takes over new weights."""

from __future__ import annotations

import time
from typing import Callable

from actor_learner.support import errors

RUN, RESET = "run", "reset"

_READ_IN_EVERY_CALL = ("graph", "unroll", "remote")


class Refreshing:
    """Decides at the start of each run of an actor whether new weights take effect.

    Args:
      when: "run": in every run. "reset": if an episode has begun since they did last. A number: if
        so many seconds have passed.
      kind: How the policy is run, as `Actor.inference` says it.
      clock: Returns seconds.

    Attributes:
      is_now: Whether they take effect in the current run.

    Raises:
      errors.ConfigError: If `when` is none of these, or the weights cannot be kept back.
    """

    def __init__(
        self, when: str | float, kind: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        is_number = isinstance(when, (int, float)) and not isinstance(when, bool)
        if not (when in (RUN, RESET) or (is_number and when > 0)):
            raise errors.ConfigError(
                f"Actor.refresh must be '{RUN}', '{RESET}' or a number of seconds above 0, got "
                f"{when!r}"
            )
        if when != RUN and kind in _READ_IN_EVERY_CALL:
            raise errors.ConfigError(
                f"Actor.refresh is {when!r}, but inference is '{kind}', which uses new weights as "
                f"soon as they are there: use '{RUN}', or Actor.inference = 'lite'"
            )
        self._when = when
        self._clock = clock
        self._at = float("-inf")
        self._has_begun = True  # The first run is due in any case.
        self.is_now = True

    def is_due(self) -> bool:
        """Whether new weights take effect in the run that begins; asked once for each."""
        if self._when == RUN:
            return True
        now = self._clock()
        if self._when == RESET:
            self.is_now = self._has_begun
        else:
            self.is_now = now - self._at >= float(self._when)
        if self.is_now:
            self._at, self._has_begun = now, False
        return self.is_now

    def note(self, num_episodes: int) -> None:
        """Notes how many episodes have ended, and others begun, in a run."""
        if num_episodes:
            self._has_begun = True

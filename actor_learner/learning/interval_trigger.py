"""A trigger that fires every so many steps, every so many seconds, or whichever comes first."""

from __future__ import annotations

import time
from typing import Callable

from absl import logging

from actor_learner.support import configurable


@configurable.register
class IntervalTrigger:
    """Calls `fn()` when enough steps or enough seconds have passed since it last did.

    Due by steps: `value >= last + interval`, where `last` is the value of the last firing (or the
    start). Values need not hit a multiple: with interval 10 and the values 7, 14, 21, 28 it fires
    at 14 and 28. Due by seconds: at least `seconds` since the last firing (or the start). Either
    one fires, and both then count from that moment. Time is looked at only when the trigger is
    called: nothing fires between two calls.
    """

    def __init__(
        self,
        interval: int | None,
        fn: Callable[[], object],
        start: int = 0,
        *,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Constructs the trigger.

        Args:
          interval: Steps between firings; None, 0 or less turns firing by steps off.
          fn: Called with no arguments when due.
          start: The value from which the first interval counts.
          seconds: Seconds between firings; None turns firing by time off.
          clock: Returns seconds from a monotonic clock.

        Raises:
          ValueError: If `seconds` is not positive.
        """
        if seconds is not None and not seconds > 0:
            raise ValueError(
                f"seconds={seconds!r} of {type(self).__name__} must be positive; "
                "None turns firing by time off"
            )
        self._interval = interval if interval is not None and interval > 0 else None
        self._seconds = seconds
        self._clock = clock
        self._fn = fn
        self._original_start_value = start
        self._last_trigger_value = start
        self._last_trigger_time = clock()
        if self._interval is None and seconds is None:
            logging.info(
                "%s never fires: interval=%r and no seconds are set.",
                type(self).__name__,
                interval,
            )

    def __call__(self, value: int, force_trigger: bool = False) -> None:
        """Calls `fn` if it is due.

        Args:
          value: The current step.
          force_trigger: Fire even if not due, unless the last firing was at this very value. A
            trigger that is off altogether is not forced.
        """
        if self._interval is None and self._seconds is None:
            return
        due = self.is_due(value)
        if not due and force_trigger:
            due = value != self._last_trigger_value
        if due:
            self._count_from(value)
            self._fn()

    def is_due(self, value: int) -> bool:
        """Whether a call with `value` fires, by steps or by now."""
        if self._interval is not None and value >= self._last_trigger_value + self._interval:
            return True
        return self._seconds is not None and (
            self._clock() - self._last_trigger_time >= self._seconds
        )

    def fire(self) -> None:
        """Calls `fn` once more, out of turn: what it has to write did not fit on the disk."""
        self._fn()

    def steps_left(self, value: int) -> int | None:
        """Steps from `value` to the next firing by steps, 0 if it is due; None if that is off."""
        if self._interval is None:
            return None
        return max(0, self._last_trigger_value + self._interval - value)

    def reset(self) -> None:
        """Counts again from the value given at construction, and from now."""
        self._count_from(self._original_start_value)

    def set_start(self, start: int) -> None:
        """Counts from `start`, and from now; the learner calls it with the restored step."""
        self._count_from(start)

    def _count_from(self, value: int) -> None:
        self._last_trigger_value = value
        self._last_trigger_time = self._clock()


def is_idle(trigger: Callable[..., None], value: int) -> bool:
    """Whether a call of any trigger with `value` is known to do nothing."""
    return (
        isinstance(trigger, IntervalTrigger)
        and type(trigger).__call__ is IntervalTrigger.__call__
        and not trigger.is_due(value)
    )

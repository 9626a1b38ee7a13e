"""Where the time of an actor goes: stepping, inferring, writing, waiting.

Only one turn in sixteen is looked at step by step, so that it costs nothing worth naming.
"""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

STEPPING, INFERRING, WRITING, WAITING = "stepping", "inferring", "writing", "waiting"
PARTS = (STEPPING, INFERRING, WRITING)
ALL = (*PARTS, WAITING)
_EVERY = 16
_LEAST_SECONDS = 1.0  # Shares of less time are noise.


class _Seconds(NamedTuple):
    """Sums so far: of all turns, and of the parts of those that were looked at."""

    at: float
    busy: float
    parts: tuple[float, ...]


class TurnTimes:
    """Measures turns; one thread takes them, another may ask for the shares.

    ```python
    times.begin_turn()
    if times.is_timed:  # In few turns.
        act = times.around(INFERRING, act)
    ...
    times.end_turn()
    times.shares()  # {"stepping": 0.6, "inferring": 0.2, "writing": 0.1, "waiting": 0.1}
    ```

    Args:
      every: One in so many turns is looked at; the first one is not, in which graphs are built.
      clock: Seconds.

    Attributes:
      is_timed: Whether the parts of the turn that has begun are looked at.
    """

    def __init__(
        self, every: int = _EVERY, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._every = every
        self._clock = clock
        self._left = 2
        self.is_timed = False
        self._busy = 0.0
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._began = clock()
        self._before = self._now()
        self._shares: dict[str, float] = {}

    def begin_turn(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._every
            self.is_timed = True
        self._began = self._clock()

    def end_turn(self) -> None:
        self._busy += self._clock() - self._began
        self.is_timed = False

    def around(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that does the same as `call`, and adds its time to `kind`."""
        clock, parts = self._clock, self._parts

        def timed(*arguments: Any) -> Any:
            began = clock()
            try:
                return call(*arguments)
            finally:
                parts[kind] += clock() - began

        return timed

    def totals(self) -> dict[str, float]:
        """Seconds of each part so far, in the turns that were looked at."""
        return dict(self._parts)

    def shares(self) -> dict[str, float]:
        """Returns the share of each kind in the last second or more; they add up to 1.

        Nothing before a turn was looked at. Time that belongs to none of the calls, the actor's own
        bookkeeping, counts with each of the others in proportion.
        """
        before, now = self._before, self._now()
        wall, busy = now.at - before.at, now.busy - before.busy
        if wall < _LEAST_SECONDS or not sum(now.parts):
            return self._shares
        parts = [then - first for then, first in zip(now.parts, before.parts)]
        if not sum(parts):
            parts = list(now.parts)  # No turn was looked at meanwhile: as on average so far.
        self._before = now
        busy_share = min(1.0, busy / wall)
        total = sum(parts)
        shares = {kind: busy_share * part / total for kind, part in zip(PARTS, parts)}
        self._shares = {**shares, WAITING: 1.0 - busy_share}
        return self._shares

    def _now(self) -> _Seconds:
        return _Seconds(self._clock(), self._busy, tuple(self._parts.values()))

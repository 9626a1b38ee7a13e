"""Says when actors with more lanes would serve a run better than more actors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Callable

from actor_learner.acting import turn_times
from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib

_AFTER_SECONDS = 30.0
_MANY_LANES = 64
_MOST_WAITING = 0.5


def advice(statuses: Sequence[status_lib.Status]) -> str | None:
    """Returns what to do about where the actors' time goes; None if it goes where it should.

    Inference and writing cost nearly the same for 1 lane and for 64. Where actors spend more on
    these than on their environments, and do not wait for the learner most of the time, lanes are
    what is missing.

    Args:
      statuses: Of all jobs of the run.
    """
    acting = [
        status.details
        for status in statuses
        if status.kind == "actor" and status.state == states.RUNNING and "time" in status.details
    ]
    if not acting:
        return None

    def mean(kind: str) -> float:
        return sum(float(details["time"].get(kind, 0.0)) for details in acting) / len(acting)

    lanes = max(int(details.get("lanes", 1)) for details in acting)
    stepping, overhead = mean(turn_times.STEPPING), mean(turn_times.INFERRING)
    overhead += mean(turn_times.WRITING)
    if lanes >= _MANY_LANES or mean(turn_times.WAITING) > _MOST_WAITING or overhead <= stepping:
        return None
    return (
        f"actors spend {overhead:.0%} of their time on inference and writing and {stepping:.0%} on "
        f"stepping {lanes} lane{'' if lanes == 1 else 's'} each: more lanes (num_envs) cost little "
        "more of the former and will serve better than more actors. `actor-learner tune-actor` "
        "measures how many"
    )


class LaneAdvisor:
    """Tells the user once, when a run has got going.

    Args:
      say: Takes a line for the user.
      clock: Seconds.
    """

    def __init__(
        self, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since: float | None = None
        self._told = False

    def look(self, statuses: Sequence[status_lib.Status]) -> None:
        """Looks at the jobs; says something if the same was true for half a minute."""
        if self._told:
            return
        words = advice(statuses)
        if words is None:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        elif self._clock() - self._since >= _AFTER_SECONDS:
            self._told = True
            self._say(words)

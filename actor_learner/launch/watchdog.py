"""Notices jobs that hang: they do not answer on the wire, or one poll does not end."""

from __future__ import annotations

import dataclasses
from typing import Callable

from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.launch import supervised_job
from actor_learner.support import formatting

SAY_SECONDS = 10.0
"""How long a job is silent before the user is told."""

_MAX_LOOK_SECONDS = 1.0  # A launcher that was itself stopped must not blame the jobs.


@dataclasses.dataclass
class _Silence:
    incarnation: str
    looked_at: float
    seconds: float = 0.0
    said: bool = False


class Watchdog:
    """Reports silent jobs, and restarts those that stay silent.

    Args:
      say: Takes a line for the user.
      silent_seconds: A job that has not answered for this long is killed and restarted.
      stuck_seconds: So is a job whose poll has lasted this long.
    """

    def __init__(
        self, say: Callable[[str], None], *, silent_seconds: float, stuck_seconds: float
    ) -> None:
        self._say = say
        self._silent_seconds = silent_seconds
        self._stuck_seconds = stuck_seconds
        self._silences: dict[str, _Silence] = {}

    def look(
        self, job: supervised_job.SupervisedJob, status: status_lib.Status | None, now: float
    ) -> None:
        """Looks at one job; to be called every tenth of a second or so.

        Args:
          job: The job.
          status: What its present process has said last; None if it has said nothing yet.
          now: Seconds of the clock that `job` has.
        """
        name = job.spec.name
        watched = status is not None and job.state == supervised_job.UP and not job.stopping
        if not watched or not (status.silent_seconds or status.state == states.LOST):
            self._silences.pop(name, None)
            if watched and status.poll_seconds >= self._stuck_seconds:
                lasted = formatting.duration(status.poll_seconds)
                job.restart(f"has been in one poll for {lasted}, longer than Jobs.stuck_seconds")
            return
        silence = self._silences.get(name)
        if silence is None or silence.incarnation != status.incarnation:
            silence = self._silences[name] = _Silence(status.incarnation, now)
        silence.seconds += min(_MAX_LOOK_SECONDS, now - silence.looked_at)
        silence.looked_at = now
        if silence.seconds >= SAY_SECONDS and not silence.said:
            silence.said = True
            self._say(
                f"{name} has not answered for {SAY_SECONDS:g} s: its process is stopped, or hangs. "
                f"It is restarted if it does not answer within {self._silent_seconds:g} s"
            )
        if silence.seconds >= self._silent_seconds:
            job.restart(f"has not answered for {self._silent_seconds:g} s (Jobs.silent_seconds)")

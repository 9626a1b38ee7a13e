"""One job under supervision: started, watched, restarted, stopped."""

from __future__ import annotations

import pathlib
import signal
import time
from typing import Callable

from actor_learner.jobs import states
from actor_learner.launch import job_spec, restarts
from actor_learner.support import errors, formatting

WAITING, UP = "waiting", "up"
COMPLETED, FAILED, STOPPED = "completed", "failed", "stopped"

BAD_CONFIGURATION = 2  # The exit code of jobs that would fail in the same way again.
_CANNOT_START = 127
_BEYOND_GRACE_SECONDS = 15.0  # For its guardian, maybe on another node, to kill it.
_EXPECTED_WHEN_STOPPED = (0, states.TOLD_TO_EXIT, 128 + signal.SIGTERM, -signal.SIGTERM)
_TAIL_BYTES = 16_384


class SupervisedJob:
    """Keeps one job running as its restart policy says.

    Args:
      spec: The job.
      launcher: Starts it.
      log: Where its output goes.
      say: Takes a line for the user.
      clock: Returns seconds; `tick` is given times of the same clock.

    Attributes:
      spec: The job.
      state: WAITING to be (re)started, UP, or ended: COMPLETED, FAILED for good, STOPPED, by us or
        by a controller.
      process: The one that runs or ran last; None before the first.
      stopping: Whether it was asked to end.
      last_words: How it ended last; empty before.
      bad_configuration: Whether it ended because its configuration is wrong.
      not_saved: Whether it could not save before it ended, because a disk is full.
    """

    def __init__(
        self,
        spec: job_spec.JobSpec,
        launcher: job_spec.Launcher,
        log: pathlib.Path,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.log = log
        self.state = WAITING
        self.process: job_spec.Process | None = None
        self.stopping = False
        self.last_words = ""
        self.bad_configuration = False
        self.not_saved = False
        self._launcher = launcher
        self._say = say
        self._clock = clock
        self._history = restarts.RestartHistory(spec.restart)
        self._given_up: job_spec.Process | None = None
        self._start_at = 0.0
        self._started_at = 0.0
        self._asked_at = 0.0

    @property
    def ended(self) -> bool:
        return self.state in (COMPLETED, FAILED, STOPPED)

    @property
    def restarts(self) -> int:
        """How often it has been restarted."""
        return self._history.total

    def seconds_to_start(self, now: float) -> float:
        """How long it still waits to be restarted."""
        return max(0.0, self._start_at - now) if self.state == WAITING else 0.0

    def tick(self, now: float) -> None:
        """Starts the job if it is time to, and notices when it has ended. Does not wait."""
        if self.state == WAITING and now >= self._start_at:
            self._start(now)
        if self.state == UP:
            code = self.process.poll()
            if code is not None:
                self._has_ended(code, now)

    def stop(self) -> None:
        """Asks the job to end for good; `tick` notices when it has."""
        if self.stopping or self.ended:
            return
        self.stopping = True
        self._asked_at = self._clock()
        if self.state == WAITING:
            self.state = STOPPED
        else:
            self.process.terminate()

    def end_late(self) -> bool:
        """Kills a job that was asked to end and has not, a little after its grace period.

        Its launcher kills a job whose grace is over; this is for a launcher that fails to.

        Returns:
          Whether that was in vain: the job still runs a little later.
        """
        if not self.stopping or self.ended:
            return False
        due = self._asked_at + self.spec.grace_seconds + _BEYOND_GRACE_SECONDS
        now = self._clock()
        if now > due:
            self.kill()
        return now > due + _BEYOND_GRACE_SECONDS

    def restart(self, why: str) -> None:
        """Kills the job, so that its restart policy starts it again; tells the user why.

        Args:
          why: A clause that follows the job's name.
        """
        if self.state == UP and not self.stopping and self.process is not self._given_up:
            self._given_up = self.process  # Once: it may take a while to die.
            self._say(f"{self.spec.name} {why}: it is killed ({self.log})")
            self.process.kill()

    def forgo_grace(self) -> None:
        """From now on, the job is killed at once if this launcher vanishes."""
        if self.state == UP:
            self.process.forgo_grace()

    def kill(self) -> None:
        """Ends the job at once, for good; `tick` notices when it has."""
        if not self.ended:
            self.stopping = True
            if self.state == WAITING:
                self.state = STOPPED
            else:
                self.process.kill()

    def tail(self, lines: int = 20) -> list[str]:
        """The last lines of its log."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
                return file.read().decode("utf-8", "replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []

    def _start(self, now: float) -> None:
        self._started_at = now
        try:
            self.process = self._launcher.launch(self.spec, self.restarts, self.log)
        except errors.JobError as error:
            self._say(str(error))
            self._has_ended(_CANNOT_START, now)
        else:
            self.state = UP

    def _has_ended(self, code: int, now: float) -> None:
        ran = now - self._started_at
        self.last_words = f"{_how(code)} after {formatting.duration(ran)}"
        self.not_saved = code in (states.DONE_NOT_SAVED, states.ENDED_NOT_SAVED)
        if self.not_saved:
            # It is not restarted: a new process would begin from the last checkpoint.
            done = code == states.DONE_NOT_SAVED and not self.stopping
            self.state = COMPLETED if done else STOPPED
            self._say(f"{self.spec.name} has ended and could NOT SAVE, a disk is full: {self.log}")
        elif self.stopping:
            self.state = STOPPED
            if code not in _EXPECTED_WHEN_STOPPED:
                self._say(f"{self.spec.name}, asked to stop, ended with {_how(code)}: {self.log}")
        elif code == 0:
            self.state = COMPLETED
        elif code == states.TOLD_TO_EXIT:
            self.state = STOPPED
            self._say(f"{self.spec.name} was told to end by a controller: it is not started again")
        elif code == BAD_CONFIGURATION:
            self.state = FAILED
            self.bad_configuration = True
            self.last_words = f"{_how(code)}: its configuration is wrong or does not suit the run"
        elif code == states.FAILED_FOR_GOOD:
            self.state = FAILED
            self.last_words += ", which a restart does not cure"
        else:
            self._restart(now, ran)
        if self.state == FAILED and self.spec.tolerated:
            self._say(f"{self.spec.name} failed for good, with {self.last_words} ({self.log})")

    def _restart(self, now: float, ran: float) -> None:
        policy = self.spec.restart
        delay = self._history.next_delay(now, ran)
        if delay is None:
            self.state = FAILED
            self.last_words += (
                f"; it was restarted {self._history.in_a_row} times within "
                f"{formatting.duration(policy.window_seconds)}, which is the most allowed"
                if policy.max_restarts
                else "; it is not to be restarted"
            )
            return
        self.state = WAITING
        self._start_at = now + delay
        self._say(
            f"{self.spec.name} ended with {self.last_words}: restart {self._history.in_a_row} of "
            f"{policy.max_restarts} in {delay:g} s ({self.log})"
        )


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # A real-time signal has no name.
        return f"signal {-code}"

"""What the learner tells the other jobs: its policy now and then, and how far everybody may go."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Callable

from actor_learner.jobs import replay_connection as replay_connection_lib
from actor_learner.parameters import publication, publisher
from actor_learner.replay.reading import version_limit
from actor_learner.runs import model as model_lib

ANNOUNCE_SECONDS = 0.05
"""Least time between two announcements; a learner that waits makes so many."""

_REPEAT_SECONDS = 1.0
_REPUBLISH_SECONDS = 5.0


class Broadcast:
    """Publishes and announces, no more often than there is need; sending happens in a thread.

    Made when the learner's checkpoint is restored: actors must never see what it replaces.

    Args:
      partner: The replay server.
      model: The learner's.
      counters: Returns environment steps and train steps.
      counted: Returns, by actor, its steps that are part of the learner's count.
      limit: Of the age of experience; None for none.
    """

    def __init__(
        self,
        partner: replay_connection_lib.Partner,
        model: model_lib.Model,
        counters: Callable[[], tuple[int, int]],
        counted: Callable[[], Mapping[int, int]],
        limit: version_limit.VersionLimit | None,
    ) -> None:
        self._partner = partner
        self._model = model
        self._counters = counters
        self._counted = counted
        self._limit = limit
        self._publisher = publisher.Publisher(
            partner.address,
            model.published_variables(),
            partner.run_id,
            after_outage=partner.require_same_run,
        )
        self._announced: publication.Announcement | None = None
        self._announced_at = 0.0
        self._published, self._published_at = self._train_step, time.monotonic()
        self._publisher.publish(self._published)

    @property
    def version(self) -> int:
        """The last version that the server has confirmed; -1 before the first."""
        return self._publisher.version

    def check(self) -> None:
        """Raises what went wrong with sending.

        Raises:
          errors.ReplayMovedError: If the server is elsewhere by now.
          errors.ReplayError: If it is another run's, or has been away for too long.
        """
        self._publisher.raise_if_failed()
        if self._publisher.is_failing:
            self._partner.require_same_address()

    def fresh_updates(self) -> int:
        """Train steps for which experience of the version that actors can have is new enough.

        With more of them at once the learner might drop all that comes, and wait for ever: while it
        waits for experience, it publishes nothing.
        """
        if self._limit is None:
            return sys.maxsize
        return self.version + self._limit.max_lag + 1 - self._train_step

    def publish(self, now: bool = False) -> None:
        """Sends the policy if it is new and the last was sent long enough ago, or `now`.

        It goes with the next announcement, which must follow: they take one message together.
        """
        seconds, interval = time.monotonic(), self._model.plan.publish_seconds
        if not now and self._limit is None and seconds - self._published_at < interval:
            return
        version = self._train_step
        if version == self._published:
            # A server that was restarted has forgotten what it had.
            interval = max(interval, _REPUBLISH_SECONDS)
        elif self.fresh_updates() <= 0:
            interval = 0.0
        if now or seconds - self._published_at >= interval:
            self._published, self._published_at = version, seconds
            self._publisher.publish(version, with_next=True)
            self._announced_at = 0.0

    def announce(self, steps_allowed: int, done: bool = False) -> None:
        """Says how far the learner is, and how far actors may go, unless it has just done so.

        What has not changed is said once per second: a server that was restarted has forgotten it.

        Args:
          steps_allowed: Environment steps by which they are to wait.
          done: Training is complete, and the version published last the final one.
        """
        now = time.monotonic()
        if not done and now - self._announced_at < ANNOUNCE_SECONDS:
            return
        environment_step, train_step = self._counters()
        announcement = publication.Announcement(
            run_id=self._partner.run_id,
            train_step=train_step,
            version=-1,
            environment_step=environment_step,
            steps_allowed=steps_allowed,
            done=done,
            time=0.0,
            counted=self._counted(),
        )
        if announcement == self._announced and now - self._announced_at < _REPEAT_SECONDS:
            return
        self._announced, self._announced_at = announcement, now
        self._publisher.announce(announcement._replace(time=time.time()))

    def flush(self) -> None:
        """Waits until all of it is sent.

        Raises:
          errors.ReplayTimeoutError: If that takes too long.
        """
        self._publisher.flush()

    def close(self) -> None:
        """Ends the thread; what is not sent is lost. Safe to call twice."""
        self._publisher.close()

    @property
    def _train_step(self) -> int:
        return self._counters()[1]

"""The learner's voice: its news for all who follow, its policy for whoever asks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from actor_learner.jobs.exchange import news as news_lib
from actor_learner.messaging import protocol
from actor_learner.parameters import packing
from actor_learner.replay.reading import version_limit
from actor_learner.support import errors


class Publisher:
    """Speaks over the learner's wire, no more often than there is need.

    Made when the learner's checkpoint is restored: nobody must see what it replaces.

    Args:
      wire: The learner's.
      variables: What actors and evaluators need of the policy, in an order that all jobs share.
      epoch: Of this learner.
      version: The train step of the policy as it is now, which is published at once.
      interval_seconds: Least time between two versions.
      limit: Of the age of experience; None for none.

    Raises:
      errors.NotFiniteError: If a variable is not finite.
    """

    def __init__(
        self,
        wire: protocol.Server,
        variables: Sequence[tf.Variable],
        *,
        epoch: int,
        version: int,
        interval_seconds: float,
        limit: version_limit.VersionLimit | None = None,
    ) -> None:
        self._wire = wire
        self._packing = packing.Packing(variables)
        self._epoch = epoch
        self._interval_seconds = interval_seconds
        self._limit = limit
        self._lock = threading.Lock()
        self._packed: np.ndarray | None = None
        self.version = -1
        self._published_at = self._told_at = 0.0
        self._told: news_lib.News | None = None
        self._publish(version)
        wire.add_topic(news_lib.TOPIC)
        wire.handle(news_lib.POLICY, self._answer)

    def fresh_updates(self, train_step: int) -> int:
        """Train steps for which experience of the version that actors can have is new enough.

        With more of them at once the learner might drop all that comes, and wait for ever: while it
        waits for experience, it publishes nothing.
        """
        if self._limit is None:
            return sys.maxsize
        return self.version + self._limit.max_lag + 1 - train_step

    def publish(self, version: int, *, now: bool = False) -> None:
        """Takes the policy as it is, if it is new and the last was taken long enough ago, or `now`.

        Whoever follows hears of it with the next news.

        Raises:
          errors.NotFiniteError: If a variable is not finite; the version before stays.
        """
        if version == self.version:
            return
        due = time.monotonic() - self._published_at >= self._interval_seconds
        if now or due or self.fresh_updates(version) <= 0:
            self._publish(version)

    def tell(self, news: news_lib.News) -> None:
        """Tells all followers, unless there is nothing new, or it has just done so."""
        now = time.monotonic()
        pause = news_lib.news_seconds(len(self._wire.followers(news_lib.TOPIC)))
        if news == self._told or (not news.done and now - self._told_at < pause):
            return
        self._told, self._told_at = news, now
        self._wire.publish(news_lib.TOPIC, news.body())

    def _publish(self, version: int) -> None:
        packed = self._packing.pack()
        problem = self._packing.not_finite(packed)
        if problem is not None:
            raise errors.NotFiniteError(
                f"version {version} of the policy is not published: {problem} is not finite; "
                "training has diverged"
            )
        packed.flags.writeable = False  # It may be on its way to somebody when the next one comes.
        with self._lock:
            self._packed, self.version = packed, version
        self._published_at = time.monotonic()

    def _answer(self, request: protocol.Request) -> None:
        with self._lock:
            packed, version = self._packed, self.version
        request.answer({"epoch": self._epoch, "version": version}, {"policy": packed})

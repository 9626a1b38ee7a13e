"""Receives the learner's news and policy in an actor or evaluator."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.jobs.exchange import news as news_lib
from actor_learner.jobs.exchange import peer as peer_lib
from actor_learner.messaging import messages, protocol
from actor_learner.parameters import packing

_PULL_SECONDS = 10.0


class Follower:
    """Receives news as they arrive; asks for the policy only when it is about to be applied.

    Args:
      learner: The learner's wire.
      variables: Assigned by `apply`, in the publisher's order.
    """

    def __init__(self, learner: peer_lib.Peer, variables: Sequence[tf.Variable]) -> None:
        self._learner = learner
        self._packing = packing.Packing(variables)
        self._specs = {"policy": messages.ArraySpec(np.uint8, [self._packing.size])}
        self._changed = threading.Condition()
        self._news: news_lib.News | None = None
        self._answer: futures.Future[messages.Message] | None = None
        self._applied = (-1, -1)  # Epoch and version.
        self._refused = (-1, -1)
        self._behind_since: float | None = None
        self.packed: np.ndarray | None = None  # What was applied last, as bytes.
        learner.follow(news_lib.TOPIC, self._hear)

    @property
    def news(self) -> news_lib.News | None:
        """The latest; None before the first."""
        return self._news

    @property
    def version(self) -> int:
        """The version that was applied last; -1 before the first."""
        return self._applied[1]

    @property
    def epoch(self) -> int:
        """The incarnation of the learner whose version that is; -1 before the first."""
        return self._applied[0]

    @property
    def is_current(self) -> bool:
        """Whether the applied policy is the latest one in the news."""
        news = self._news
        return news is not None and self._applied == (news.epoch, news.version)

    @property
    def lag(self) -> int | None:
        """Train steps that the learner is ahead of the applied version; None if unknown."""
        news = self._news
        if news is None or self.version < 0:
            return None
        return max(0, news.train_step - self.version)

    @property
    def lag_seconds(self) -> float:
        """For how long the learner has been ahead of the applied version; 0 when it is not."""
        since = self._behind_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def silent_seconds(self) -> float:
        """Seconds since the learner was last heard."""
        return self._learner.silent_seconds

    def pull(self) -> None:
        """Asks for the policy if there is a newer one; does not wait. `apply` applies it."""
        news = self._news
        if self._answer is not None or news is None or self.is_current:
            return
        if (news.epoch, news.version) == self._refused:
            return
        self._answer = self._learner.submit(news_lib.POLICY, timeout_seconds=_PULL_SECONDS)

    def apply(self, wait_seconds: float = 0.0) -> bool:
        """Assigns the pulled policy, if it has arrived; call it only between steps.

        Args:
          wait_seconds: How long to wait for it.

        Returns:
          Whether the policy has changed.
        """
        answer = self._answer
        if answer is None:
            return False
        if not answer.done():
            futures.wait([answer], wait_seconds)
            if not answer.done():
                return False
        self._answer = None
        try:
            message = answer.result()
            messages.require_arrays(message, self._specs)
            pulled = news_lib.checked(message.body, {"epoch": int, "version": int})
        except protocol.NoAnswerError:
            return False  # The next `pull` asks the learner of that time.
        except (messages.BadMessageError, protocol.RefusedError) as error:
            logging.error("The learner's policy is refused: %s", error)
            return False
        version = (pulled["epoch"], pulled["version"])
        packed = message.arrays["policy"]
        if version[0] < self._applied[0] or not self._is_sound(packed, version):
            return False
        self._packing.assign(packed)
        self.packed = packed
        with self._changed:
            self._applied = version
            self._behind_since = None
            self._note_lag()
        return True

    def note(self, epoch: int, version: int) -> None:
        """Notes which version acts, for an actor whose policy is applied elsewhere."""
        with self._changed:
            if (epoch, version) != self._applied:
                self._applied = (epoch, version)
                self._behind_since = None
                self._note_lag()

    def wait_for(
        self, condition: Callable[[], bool], timeout_seconds: float, stopping: threading.Event
    ) -> bool:
        """Waits until a condition on the news holds; returns False on timeout or `stopping`."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or stopping.is_set():
                return False
            with self._changed:
                self._changed.wait(min(left, 0.2))
        return True

    def _hear(self, message: messages.Message) -> None:
        """Takes news, in the wire's thread."""
        news = news_lib.News.of(message.body)
        with self._changed:
            known = self._news
            if known is not None and news.epoch < known.epoch:
                logging.log_first_n(
                    logging.WARNING, "News from a learner of an older epoch are ignored.", 1
                )
                return
            self._news = news
            self._note_lag()
            self._changed.notify_all()

    def _is_sound(self, packed: np.ndarray, version: tuple[int, int]) -> bool:
        problem = self._packing.not_finite(packed)
        if problem is not None:
            self._refused = version
            logging.error(
                "Version %d of the policy is refused, and version %d kept until the next one: "
                "%s is not finite.",
                version[1],
                self.version,
                problem,
            )
        return problem is None

    def _note_lag(self) -> None:
        news = self._news
        if news is None or news.train_step <= self.version:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.monotonic()

"""Trains a fraction of a second at a time, and keeps talking while train steps take longer."""

from __future__ import annotations

import time
from typing import Any, Callable

import tensorflow as tf

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.exchange import replay_connection
from actor_learner.runs import learning_side, train_thread
from actor_learner.support import errors

SLICE_SECONDS = 0.25
"""How long the learner trains before it looks at its messages and tells the others."""

_MAX_ITERATIONS = 1_000
_LONG_TRAINING_SECONDS = 0.1
_STUCK_SECONDS = 1.0
_LAST_STEP_SECONDS = 5.0


class TrainingSlices:
    """Takes train steps in a thread of their own, as many at a time as fit into a slice.

    Args:
      job: The learner's.
      learning: Trains.
      replay: Where the experience comes from.
      table: Returns the state of its table; raises if the server is another run's.
      timeout_seconds: How long train steps may wait for experience.
      meanwhile: Called every now and then during a long slice, with whether no train step was
        taken for a while.
      train: Takes train steps in the place of `learning`.
    """

    def __init__(
        self,
        job: job_lib.Job,
        learning: learning_side.LearningSide,
        replay: replay_connection.ReplayConnection,
        *,
        table: Callable[[], Any],
        timeout_seconds: float,
        meanwhile: Callable[[bool], None],
        train: Callable[[int], None] | None = None,
    ) -> None:
        self._job = job
        self._learning = learning
        self._replay = replay
        self._table = table
        self._timeout_seconds = timeout_seconds
        self._meanwhile = meanwhile
        self._thread = train_thread.TrainThread(train or learning.trainer.run)
        self._iterations = 1
        self._moved_to, self._moved_at = -1, 0.0

    def run(self, due: int) -> None:
        """Trains for about a slice; one train step may take from microseconds to seconds.

        Args:
          due: The most train steps to take.

        Raises:
          job_lib.Stopping: If the job is asked to end while its train steps wait for experience.
          errors.ReplayTimeoutError: If the server is gone, and has been for `timeout_seconds`.
        """
        # Not past the next checkpoint: a killed learner loses no more than its interval.
        until_checkpoint = self._learning.trainer.learner.steps_until_checkpoint or due
        iterations = min(due, self._iterations, until_checkpoint)
        began = self._moved_at = time.monotonic()
        try:
            self._thread.run(iterations, self._while_training)
        except tf.errors.NotFoundError:
            self._table()  # Raises, in our words, if it is another run's server by now.
            raise
        spent = max(1e-4, time.monotonic() - began)
        if iterations == self._iterations:
            wanted = int(iterations * SLICE_SECONDS / spent)
            self._iterations = max(1, min(wanted, 2 * iterations, _MAX_ITERATIONS))

    def close(self) -> None:
        """Ends the thread."""
        self._thread.close()

    def _while_training(self, seconds: float) -> None:
        """Keeps actors going, and gives up on train steps that wait for a server which is gone."""
        if seconds >= _LONG_TRAINING_SECONDS and not self._replay.is_away:
            # They may wait for experience in the place of what was dropped, or of what a server
            # that died took with it.
            self._meanwhile(self._is_stuck(_STUCK_SECONDS))
        stopping = self._job.stopping.is_set()
        # Not sooner: a train step may be long, and what it changes must not be saved half-way.
        if stopping and self._is_stuck(_LAST_STEP_SECONDS):
            raise job_lib.Stopping(f"{self._job} ends; its train steps wait for experience")
        if not stopping and seconds < self._timeout_seconds:
            return
        try:
            self._replay.require_answer()
        except errors.ReplayTimeoutError as error:
            if stopping:
                raise job_lib.Stopping(f"{self._job} ends without its server") from error
            raise

    def _is_stuck(self, after_seconds: float) -> bool:
        """Whether no train step was taken for a while, though some are under way."""
        now, step = time.monotonic(), self._learning.train_step_now
        if step != self._moved_to:
            self._moved_to, self._moved_at = step, now
        return now - self._moved_at > after_seconds

"""The iterations of one `Learner.run` as calls of its graphs, and what follows one that fails."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.learning import not_finite, replica_step, train_loop
from actor_learner.reporting import summaries
from actor_learner.support import counters


class TrainCalls:
    """Trains for a number of iterations, with summaries where they are due.

    Args:
      agent: Is trained, by `replicas`.
      train_step: Is raised by the agent.
      replicas: Takes the train steps.
      recording_loop: Calls them in a graph that records summaries.
      quiet_loop: Calls them in one that does not.
      summary_interval: Train steps between summaries; 0 for none.
      writer: Writes them; on a full disk train steps go on without.
      policy: Says what to do about steps that are not finite.
      made: Is raised by `replicas` after each train step; None if they are never skipped.
      save: Called before training ends with an error; returns a clause that says what was saved.
    """

    def __init__(
        self,
        *,
        agent: tf.Module,
        train_step: tf.Variable,
        replicas: replica_step.ReplicaStep,
        recording_loop: train_loop.TrainLoop,
        quiet_loop: train_loop.TrainLoop,
        summary_interval: int,
        writer: summaries.Summaries,
        policy: not_finite.NotFinitePolicy,
        made: tf.Variable | None,
        save: Callable[[], str],
    ) -> None:
        self._agent = agent
        self._train_step = train_step
        self._replicas = replicas
        self._recording_loop = recording_loop
        self._quiet_loop = quiet_loop
        self._stretches = train_loop.StretchPlanner(summary_interval) if summary_interval else None
        self._writer = writer
        self._policy = policy
        self._made = made
        self._save = save
        self._losses: Any = None  # The last ones; None before the first.

    def run(
        self,
        step: np.ndarray,
        iterations: int,
        iterator: Any,
        parallel_iterations: int,
        bind: bool,
        watching: Callable[[np.ndarray], contextlib.AbstractContextManager[None]],
    ) -> tuple[Any, np.ndarray]:
        """Trains from `step` on; returns the last losses and the step after.

        Args:
          step: The train step now.
          iterations: How often to train, steps that are skipped included.
          iterator: Gives the batches.
          parallel_iterations: Passed to the loops, like `bind`.
          bind: Passed to the loops.
          watching: Given the train step, a context for a call; another one after each failure.

        Raises:
          errors.NotFiniteError: If a step was not finite and is not to be skipped.
        """
        first, left, skipped = step, iterations, self._policy.skipped
        while left:
            made_before = self._made_so_far()
            try:
                with watching(step):
                    step = self._attempt(step, left, iterator, parallel_iterations, bind)
                left = 0
            except tf.errors.InvalidArgumentError as error:
                made = self._made_so_far() - made_before
                self._skip_or_raise(error, made)
                step = counters.read(self._train_step)
                left -= made + 1
        if step == first and self._policy.skipped - skipped < iterations:
            logging.log_first_n(
                logging.WARNING,
                "%s has trained on %d batches, and the train step is still %d. Said once.",
                1,
                type(self._agent).__name__,
                iterations,
                int(step),
            )
        if self._losses is None:
            loop = self._quiet_loop if self._stretches is None else self._recording_loop
            return loop.not_a_number(iterator), step
        return self._losses, step

    def _attempt(
        self, step: np.ndarray, iterations: int, iterator: Any, parallel: int, bind: bool
    ) -> np.ndarray:
        """Trains; returns the step after."""
        while iterations:
            for stretch in self._plan(int(step), iterations):
                before = step
                self._losses = self._call(stretch, iterator, parallel, bind)
                self._policy.note_made(stretch.iterations)
                step = counters.read(self._train_step)
                iterations -= stretch.iterations
                if not self._as_planned(stretch, int(step - before)):
                    break
        return step

    def _plan(self, step: int, iterations: int) -> list[train_loop.Stretch]:
        if self._stretches is None:
            return [train_loop.Stretch(False, iterations)]
        return self._stretches.plan(step, iterations)

    def _as_planned(self, stretch: train_loop.Stretch, steps: int) -> bool:
        return self._stretches is None or self._stretches.as_planned(stretch, steps)

    def _call(
        self, stretch: train_loop.Stretch, iterator: Any, parallel_iterations: int, bind: bool
    ) -> Any:
        def call(records: bool, iterations: int) -> Any:
            loop = self._recording_loop if records else self._quiet_loop
            with contextlib.nullcontext() if records else tf.summary.record_if(False):
                return loop.run(iterations, iterator, parallel_iterations, bind=bind)

        if not (stretch.records and self._writer.have_room()):
            return call(False, stretch.iterations)
        before = counters.read(self._train_step)
        try:
            return call(True, stretch.iterations)
        except tf.errors.OpError as error:
            if not self._writer.are_cause_of(error):
                raise
            done = int(counters.read(self._train_step) - before)
            return call(False, max(1, stretch.iterations - done))

    def _made_so_far(self) -> int:
        return 0 if self._made is None else int(self._made.numpy())

    def _skip_or_raise(self, error: tf.errors.InvalidArgumentError, made: int) -> None:
        """Leaves out a step that failed with `error` after `made` others, or raises."""
        why = not_finite.reason(error)
        if why is None:
            raise error
        self._policy.note_made(made)
        told = self._policy.leave_out(
            why,
            int(counters.read(self._train_step)),
            self._replicas.latest_batch(),
            self._agent.variables,
        )
        if told is not None:
            raise not_finite.error(told, self._save()) from error

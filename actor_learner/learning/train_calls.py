"""The iterations of one `Learner.run` as calls of its graphs, and what follows one that fails."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

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
      step: Trains on the next batch of an iterator; traced into both loops.
      as_numbers: Whether the loops return losses as NumPy scalars instead of tensors.
      summary_interval: Train steps between summaries; 0 for none.
      writer: Writes them; on a full disk train steps go on without.
      policy: Says what to do about steps that are not finite.
      save: Called before training ends with an error; returns a clause that says what was saved.
      context: Makes what agents and summaries expect around them. Entered to build graphs and to
        record; calls of the quiet graphs need none.

    Attributes:
      recording_loop: Takes train steps in a graph that records summaries.
      quiet_loop: Takes them in one that does not.
    """

    def __init__(
        self,
        *,
        agent: tf.Module,
        train_step: tf.Variable,
        replicas: replica_step.ReplicaStep,
        step: Callable[[Any], Any],
        as_numbers: bool,
        summary_interval: int,
        writer: summaries.Summaries,
        policy: not_finite.NotFinitePolicy,
        save: Callable[[], str],
        context: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._agent = agent
        self.counter = train_step
        self._replicas = replicas
        self.recording_loop, self.quiet_loop = (
            train_loop.TrainLoop(
                step, replicas.sum, train_step, one_by_one=policy.skips, as_numbers=as_numbers
            )
            for _ in range(2)
        )
        self._stretches = train_loop.StretchPlanner(summary_interval) if summary_interval else None
        self._writer = writer
        self._policy = policy
        self._save = save
        self._context = context
        self._losses: Any = None  # The last ones; None before the first.
        self._last_step = 0
        self._step: int | None = None  # Where the last call left it; None if that is not known.
        self._counts_alone = True  # Nobody else was seen to change the train step.
        counters.note_writer(self)

    def trace(self, iterator: Any) -> None:
        """Traces a train step, which creates its variables; takes nothing from `iterator`."""
        # Recording first: functions inside the agent are traced once for both graphs, and their
        # summaries, which look at the step themselves, must not be left out of them.
        if self._stretches is not None:
            self.recording_loop.trace(iterator)
            return
        with tf.summary.record_if(False):
            self.quiet_loop.trace(iterator)

    @property
    def last_step(self) -> int:
        """The train step after the last `run`, or when it was noted."""
        return self._last_step

    def note_step(self) -> None:
        """Notes the train step, which a checkpoint may have set."""
        self._last_step = self._read_step()

    def step_now(self) -> int:
        """The train step, as far as this learner can know it without reading the variable.

        The graphs say where they leave it, so that it need not be read between two calls. One that
        finds it elsewhere shows that somebody else changes it too: it is read from then on.
        """
        step = self._step  # Once: another thread may ask while `run` forgets it.
        return self._read_step() if step is None else step

    def _read_step(self) -> int:
        return int(counters.read(self.counter))

    def run(
        self,
        iterations: int,
        iterator: Any,
        parallel_iterations: int,
        bind: bool,
        watching: Callable[[int], contextlib.AbstractContextManager[None]],
    ) -> tuple[Any, int]:
        """Trains; returns the last losses and the step after.

        Args:
          iterations: How often to train, steps that are skipped included.
          iterator: Gives the batches.
          parallel_iterations: Passed to the loops, like `bind`.
          bind: Passed to the loops.
          watching: Given the train step, a context for a call; another one after each failure.

        Raises:
          errors.NotFiniteError: If a step was not finite and is not to be skipped.
        """
        # Reading takes no time beside many iterations. Before a single one it would, and a step
        # that somebody has changed since is found out by it: only its summary may be missed.
        known = iterations == 1 or self._stretches is None
        first = step = self.step_now() if known else self._read_step()
        self._step = None  # Whatever may be raised now.
        left, skipped = iterations, self._policy.skipped
        while left:
            # Of a single step it is known how many were made if it fails.
            made_before = self._made_so_far() if left > 1 else None
            try:
                with watching(step):
                    step = self._attempt(step, left, iterator, parallel_iterations, bind)
                left = 0
            except tf.errors.InvalidArgumentError as error:
                self._replicas.abandon()
                made = 0 if made_before is None else self._made_so_far() - made_before
                self._skip_or_raise(error, made)
                step = self._read_step()
                left -= made + 1
        if step == first and self._policy.skipped - skipped < iterations:
            logging.log_first_n(
                logging.WARNING,
                "%s has trained on %d batches, and the train step is still %d. Said once.",
                1,
                type(self._agent).__name__,
                iterations,
                step,
            )
        self._last_step = step
        self._step = step if self._counts_alone else None
        if self._losses is None:
            loop = self.quiet_loop if self._stretches is None else self.recording_loop
            with self._context():
                return loop.not_a_number(iterator), step
        return self._losses, step

    def _attempt(self, step: int, iterations: int, iterator: Any, parallel: int, bind: bool) -> int:
        """Trains; returns the step after."""
        while iterations:
            for stretch in self._plan(step, iterations):
                trained = self._call(stretch, iterator, parallel, bind)
                self._losses = trained.losses
                self._policy.note_made(stretch.iterations)
                expected = trained.before == step
                self._counts_alone = self._counts_alone and expected
                step = trained.after
                iterations -= stretch.iterations
                if not (self._as_planned(stretch, step - trained.before) and expected):
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
    ) -> train_loop.Trained:
        records, iterations = stretch
        if not (records and self._writer.have_room()):
            return self._call_quietly(iterations, iterator, parallel_iterations, bind)
        before = self._read_step()
        try:
            with self._context():
                return self.recording_loop.run(iterations, iterator, parallel_iterations, bind=bind)
        except tf.errors.OpError as error:
            if not self._writer.are_cause_of(error):
                raise
            left = max(1, iterations - self._read_step() + before)
            rest = self._call_quietly(left, iterator, parallel_iterations, bind)
            return rest._replace(before=before)

    def _call_quietly(
        self, iterations: int, iterator: Any, parallel_iterations: int, bind: bool
    ) -> train_loop.Trained:
        loop = self.quiet_loop
        if bind and loop.is_bound(iterations, iterator, parallel_iterations):
            return loop.run(iterations, iterator, parallel_iterations, bind=True)
        with self._context(), tf.summary.record_if(False):
            return loop.run(iterations, iterator, parallel_iterations, bind=bind)

    def _made_so_far(self) -> int:
        made = self._replicas.made
        return 0 if made is None else int(made.numpy())

    def _skip_or_raise(self, error: tf.errors.InvalidArgumentError, made: int) -> None:
        """Leaves out a step that failed with `error` after `made` others, or raises."""
        why = not_finite.reason(error)
        if why is None:
            raise error
        self._policy.note_made(made)
        told = self._policy.leave_out(
            why,
            self._read_step(),
            self._replicas.latest_batch(),
            self._agent.variables,
        )
        if told is not None:
            raise not_finite.error(told, self._save()) from error

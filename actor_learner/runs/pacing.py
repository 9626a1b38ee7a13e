"""Computes how many train steps are due, and how far ahead of them actors may collect.

Replay and queues are paced differently. Train steps on a replay follow environment steps at a
configured ratio; a queue allows one train step per batch that has arrived. The arithmetic is the
same whether this process collects or other jobs do.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Protocol

from absl import logging

from actor_learner import plan as plan_lib
from actor_learner.replay.server import state
from actor_learner.runs import trainer
from actor_learner.support import errors

LOOK_SECONDS = 1.0
"""How often a learner checks that a server in another process still has its contents."""

Table = Callable[[], state.TableState]


class Pacing(Protocol):
    """Says when to train, and how far to collect.

    Attributes:
      max_updates: Maximum train steps before the policy that acts is updated.
    """

    max_updates: int

    def updates_due(self, environment_step: int, train_step: int) -> int:
        """Returns the train steps to take now; 0 or less means to collect first."""

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        """Returns the environment step, over all actors, at which actors wait for the learner."""

    def require_training(self, environment_step: int, train_step: int) -> None:
        """Checks, when all environment steps are taken, that the run has trained at all."""


class ReplayPacing:
    """For replay: train steps follow environment steps at the configured ratio.

    They begin when the experience can be sampled. Until then none is due, since the thread that
    would wait for a sample may be the one that collects. That can be later than `learn_from`:
    sequences are written when an episode ends, and a `min_size` limit counts items.

    Only the learner's thread may call `updates_due`; any thread may call `steps_allowed`.

    Args:
      plan: The plan of the experiment.
      table: Returns the state of the table with the experience.
      environment_step: Environment steps taken so far.
      train_step: Train steps taken so far.
      num_actors: Returns how many actors there are.
      look_seconds: How often to check that the table still has its contents, which a server in
        another process may lose; None never checks.
      max_updates: See `Pacing`.
      clock: Returns seconds.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        table: Table,
        *,
        environment_step: int,
        train_step: int,
        num_actors: Callable[[], int] = lambda: 1,
        look_seconds: float | None = None,
        max_updates: int = trainer.MAX_ITERATIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_updates = max_updates
        self._plan = plan
        self._table = table
        self._num_actors = num_actors
        self._look_seconds = look_seconds
        self._clock = clock
        now = table()
        self._pace = plan.pace(environment_step, train_step, replay_is_empty=now.size == 0)
        self._size, self._inserts, self._restarts = now.size, now.inserts, now.restarts
        self._looked_at = clock()
        self._can_sample = False
        self._first_train_step = train_step
        self._waits_for: str | None = None

    def updates_due(self, environment_step: int, train_step: int) -> int:
        """Returns the train steps to take now; 0 or less means to collect first.

        Raises:
          errors.ReplayTimeoutError: If the server had to be asked and does not answer.
        """
        due = self._pace.updates_due(environment_step) - train_step
        if due <= 0 or (self._can_sample and not self._is_time_to_look()):
            return due
        now = self._table()
        self._looked_at = self._clock()
        restarted = now.inserts < self._inserts or now.restarts > self._restarts
        lost = restarted and now.size < self._size / 2
        self._size, self._inserts, self._restarts = now.size, now.inserts, now.restarts
        self._can_sample = now.blocked != "sampling"
        self._waits_for = None if self._can_sample else now.describe()
        if lost:
            # A new server, without the old contents: few transitions would spoil the policy.
            self._pace = self._plan.pace(environment_step, train_step, replay_is_empty=True)
            return self._pace.updates_due(environment_step) - train_step
        if not self._can_sample:
            self._pace = dataclasses.replace(
                self._pace, learn_from=environment_step, train_step=train_step
            )
            return 0
        return due

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        """Returns the environment step, over all actors, at which actors wait for the learner."""
        del environment_step
        return self._pace.steps_until(train_step) + self._plan.steps_ahead(self._num_actors())

    def require_training(self, environment_step: int, train_step: int) -> None:
        """Checks, when all environment steps are taken, that the run has trained at all.

        If it has, but not since it was resumed, a warning is logged.

        Raises:
          errors.ReplayError: If the experience could never be sampled.
        """
        if self._waits_for is None or train_step > self._first_train_step:
            return
        if train_step == 0:
            raise errors.ReplayError(
                f"all {environment_step:,} environment steps are taken, and the learner has not "
                f"taken one train step: {self._waits_for}. Collect for longer "
                "(Experiment.environment_steps), or lower the table's min_size"
            )
        logging.warning("Nothing was learned since the run was resumed: %s.", self._waits_for)

    def _is_time_to_look(self) -> bool:
        if self._look_seconds is None:
            return False
        return self._clock() - self._looked_at >= self._look_seconds


class QueuePacing:
    """For queues: one train step per batch that has arrived; actors are whole turns ahead.

    Args:
      plan: The plan of the experiment.
      waiting: Returns how many batches have arrived and were not used, given the train step.
      num_actors: Returns how many actors there are.
      max_updates: See `Pacing`. With more than one, experience could be older than the turns ahead
        allow.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        waiting: Callable[[int], int],
        *,
        num_actors: Callable[[], int] = lambda: 1,
        max_updates: int = 1,
    ) -> None:
        self.max_updates = max_updates
        self._steps_per_turn = plan.steps_per_turn
        self._waiting = waiting
        self._num_actors = num_actors

    def updates_due(self, environment_step: int, train_step: int) -> int:
        """Returns the train steps to take now; 0 or less means to collect first."""
        del environment_step
        return self._waiting(train_step)

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        """Returns the environment step, over all actors, at which actors wait for the learner."""
        turns = plan_lib.TURNS_AHEAD * self._num_actors() - self._waiting(train_step)
        return environment_step + max(0, turns) * self._steps_per_turn

    def require_training(self, environment_step: int, train_step: int) -> None:
        """Does nothing: every batch was trained on, or the learner has raised."""


class WaitingBatches:
    """Counts the batches in a queue out of which nothing is taken before it is learned from.

    Args:
      table: Returns the state of the queue.
      items_per_batch: Returns how many items make a batch at present.
      in_training: Returns how many batches are being learned from, which may be out of the queue.
      seconds: For how long an answer of the server is used again, unless a train step was taken.
      clock: Returns seconds.
    """

    def __init__(
        self,
        table: Table,
        items_per_batch: Callable[[], int],
        in_training: Callable[[], int] = lambda: 0,
        *,
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._items_per_batch = items_per_batch
        self._in_training = in_training
        self._seconds = seconds
        self._clock = clock
        self._size = 0
        self._looked_at, self._train_step = -float("inf"), -1

    def waiting(self, train_step: int) -> int:
        """Returns the batches that have arrived and were not trained on by `train_step`.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer.
        """
        in_training = self._in_training()
        is_old = self._clock() - self._looked_at >= self._seconds
        if is_old or in_training or train_step != self._train_step:
            self._size = self._table().size
            self._looked_at, self._train_step = self._clock(), train_step
        return self._size // self._items_per_batch() + in_training


class ArrivedBatches:
    """Counts the batches in a queue in another process, across restarts of its server.

    Args:
      table: Returns the state of the queue.
      items_per_batch: Items that make a batch.
      dropped: Returns how many items were removed without training on them, so far.
      seconds: For how long an answer of the server is used again.
      clock: Returns seconds.
    """

    def __init__(
        self,
        table: Table,
        items_per_batch: int,
        dropped: Callable[[], int] = lambda: 0,
        *,
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._items_per_batch = items_per_batch
        self._dropped = dropped
        self._seconds = seconds
        self._clock = clock
        self._begun: tuple[int, int] | None = None
        self._arrived = self._restarts = 0
        self._looked_at = -float("inf")

    def waiting(self, train_step: int) -> int:
        """Returns the batches that have arrived and were not trained on by `train_step`.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer.
        """
        if self._begun is None or self._clock() - self._looked_at >= self._seconds:
            now = self._table()
            self._looked_at = self._clock()
            restarted = now.inserts < self._arrived or now.restarts > self._restarts
            if self._begun is None or restarted:
                # At the start, or after a restart of the server, only what it holds counts.
                self._begun = (now.inserts - now.size - self._dropped(), train_step)
            self._arrived, self._restarts = now.inserts, now.restarts
        items_before, steps_before = self._begun
        batches = (self._arrived - self._dropped() - items_before) // self._items_per_batch
        return batches - (train_step - steps_before)

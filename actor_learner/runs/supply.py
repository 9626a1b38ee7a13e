"""How many train steps the experience at hand is good for, as seen from the learner's side."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Protocol

import reverb

from actor_learner import plan as plan_lib
from actor_learner.support import reverb_calls

_LOOK_SECONDS = 1.0


class Supply(Protocol):
    """Says when the learner is to train, and how far actors may go."""

    def updates_due(self, environment_step: int, train_step: int) -> int:
        """Train steps to take now; 0 or less: wait."""

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        """Environment steps, over all actors, by which these are to wait for the learner."""


class PacedSupply:
    """For replay: train steps follow environment steps at the configured ratio.

    Args:
      plan: What the experiment comes to.
      pace: From where to count.
      num_actors: How many actors there are.
      client: Of the replay server.
      table: Name of the table with the experience.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        pace: plan_lib.Pace,
        num_actors: int,
        client: reverb.Client,
        table: str,
    ) -> None:
        self._plan = plan
        self._pace = pace
        self._ahead = plan.steps_ahead(num_actors)
        self._client = client
        self._table = table
        self._size = 0
        self._can_sample = False
        self._inserts = 0
        self._looked_at = 0.0

    def updates_due(self, environment_step: int, train_step: int) -> int:
        due = self._pace.updates_due(environment_step) - train_step
        if due <= 0 or (self._can_sample and time.monotonic() - self._looked_at < _LOOK_SECONDS):
            return due
        table = reverb_calls.fetch_table(self._client, self._table, 5.0)
        inserts = table.rate_limiter_info.insert_stats.completed
        lost = inserts < self._inserts and table.current_size < self._size / 2
        self._looked_at = time.monotonic()
        self._size, self._inserts = table.current_size, inserts
        wanted = max(1, table.rate_limiter_info.min_size_to_sample)
        self._can_sample = table.current_size >= wanted
        if lost:
            # A new server, without what the old one had: a few transitions would spoil the policy.
            self._pace = self._plan.pace(environment_step, train_step, replay_is_empty=True)
            return self._pace.updates_due(environment_step) - train_step
        if not self._can_sample:
            # Sequences are written when an episode ends, and tables may want more than one item:
            # actors must go on until then.
            self._pace = dataclasses.replace(
                self._pace, learn_from=environment_step, train_step=train_step
            )
            return 0
        return due

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        del environment_step
        return self._pace.steps_until(train_step) + self._ahead


class QueuedSupply:
    """For queues: a train step per batch that has arrived.

    Args:
      plan: What the experiment comes to.
      items_per_batch: Items that make a batch.
      num_actors: How many actors there are.
      client: Of the replay server.
      table: Name of the queue.
      dropped: Returns how many items were taken out and not trained on, so far.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        items_per_batch: int,
        num_actors: int,
        client: reverb.Client,
        table: str,
        dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._items_per_batch = items_per_batch
        self._client = client
        self._table = table
        self._dropped = dropped
        self._ahead = plan_lib.TURNS_AHEAD * plan.steps_per_turn * num_actors
        self._most_batches = plan_lib.TURNS_AHEAD * num_actors
        self._begun: tuple[int, int] | None = None
        self._arrived = 0
        self._waiting = 0

    def updates_due(self, environment_step: int, train_step: int) -> int:
        del environment_step
        info = reverb_calls.fetch_table(self._client, self._table, 5.0)
        arrived = info.rate_limiter_info.insert_stats.completed
        if self._begun is None or arrived < self._arrived:
            # At the start, or after a restart of the server, what it holds is what there is.
            self._begun = (arrived - info.current_size - self._dropped(), train_step)
        self._arrived = arrived
        items_before, steps_before = self._begun
        batches = (arrived - self._dropped() - items_before) // self._items_per_batch
        self._waiting = batches - (train_step - steps_before)
        return self._waiting

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        del train_step
        return environment_step + (self._ahead if self._waiting < self._most_batches else 0)

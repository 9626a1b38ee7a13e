"""Prioritized replay: transitions that surprised the learner are sampled more often."""

from __future__ import annotations

from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner import parts
from actor_learner.replay.layouts import window_layout
from actor_learner.replay.reading import datasets, importance
from actor_learner.replay.reading import n_step as n_step_lib
from actor_learner.replay.server import tables
from actor_learner.replay.streams import highest_priority, sample_stream
from actor_learner.replay.writing import window_observer
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience
Version = sample_stream.Version

TABLE = sample_stream.TABLE


@configurable.register
class PrioritizedReplay(sample_stream.SampleStream):
    """Each transition is an item of its own, drawn in proportion to `priority ** exponent`.

    New transitions get the highest priority that any has had so far; after each train step a
    `PriorityUpdater` gives those of the batch the priorities that the algorithm computes, usually
    the absolute TD error. Batches carry importance weights, `(1 / probability) ** exponent` scaled
    to at most 1, whose exponent follows the train step: the dataset reads that variable for each
    batch, so that nothing is traced again and a resumed run continues where it stopped.

    Costs: 40 to 150 microseconds per transition written (`LaneReplay`: under 1 to 6), the most with
    one lane and with hundreds; about 100,000 transitions per second read; and in the server 0.9 to
    1.7 kB per transition beyond large observations, the more the more lanes write. Use it where
    learning, not throughput, is the limit.

    Args:
      capacity: Transitions kept; the oldest leave first.
      priority_exponent: 0 samples uniformly, 1 in proportion to the priority.
      importance_start: Exponent of the importance weights at train step 0; 0 corrects nothing.
      importance_end: Exponent from `importance_anneal_steps` on; 1 corrects fully.
      importance_anneal_steps: Train steps in between.
      initial_priority: Priority of new transitions until a higher one is known.
      priority_offset: Added to the priorities that the learner sends, so that none becomes 0 and
        its transition is never drawn again.
      rate_limiter: Builds the table's rate limiter, which no other table can have: `@min_size`. By
        default sampling waits for the first item only. An experiment refuses limits of samples per
        insert (`@sample_to_insert_ratio`): `Experiment.updates_per_step` sets that ratio.
      max_in_flight_items: Items an actor may have unconfirmed before it waits; a step of all its
        lanes may come on top. With 1,000 writing is up to twice as fast, but Reverb fills the log
        with warnings, thousands per second, once 50 wait: with the default only beyond 18 lanes.
      prefetch: Batches kept ready for the learner; more are older when used.
      train_step: Counter that the exponent follows; None is the running experiment's.
      table_name: Name of the table; streams that share a server need different ones.
    """

    kind = experience_lib.TRANSITIONS
    weighted = True
    spreads = True

    def __init__(
        self,
        capacity: int = 100_000,
        *,
        priority_exponent: float = 0.6,
        importance_start: float = 0.4,
        importance_end: float = 1.0,
        importance_anneal_steps: int = 100_000,
        initial_priority: float = 1.0,
        priority_offset: float = 1e-3,
        rate_limiter: Callable[[], reverb.rate_limiters.RateLimiter] | None = None,
        max_in_flight_items: int = 32,
        prefetch: int = 1,
        train_step: tf.Variable | None = None,
        table_name: str = TABLE,
    ) -> None:
        super().__init__(table_name)
        self._check_counts(capacity=capacity)
        self._refuse_negative(priority_offset=priority_offset)
        if initial_priority <= 0:
            raise errors.ConfigError(
                f"PrioritizedReplay.initial_priority must be above 0, got {initial_priority}: "
                "new transitions would never be drawn"
            )
        if isinstance(rate_limiter, reverb.rate_limiters.RateLimiter):
            raise errors.ConfigError(
                "PrioritizedReplay.rate_limiter is a rate limiter, which can serve one table only, "
                "but every job of a run makes the tables: give a function that builds one, such as "
                "@min_size, without parentheses"
            )
        self._capacity = capacity
        self._priority_exponent = priority_exponent
        self._schedule = importance.ImportanceSchedule(
            importance_start, importance_end, importance_anneal_steps
        )
        self._initial_priority = initial_priority
        self.priority_offset = priority_offset
        self._rate_limiter = rate_limiter
        self._max_in_flight_items = max_in_flight_items
        self._prefetch = prefetch
        self._train_step = train_step

    def tables(self, experience: Experience) -> list[reverb.Table]:
        return [
            tables.prioritized_table(
                self.table_name,
                self._capacity,
                signature=self._layout(experience).signature(),
                rate_limiter=None if self._rate_limiter is None else self._rate_limiter(),
                priority_exponent=self._priority_exponent,
            ),
            highest_priority.make_table(self.table_name),
        ]

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> window_observer.WindowObserver:
        return window_observer.WindowObserver(
            client,
            self.table_name,
            self._layout(experience),
            priority=highest_priority.HighestPriority(
                client, self.table_name, self._initial_priority
            ),
            max_in_flight_items=self._max_in_flight_items,
            version=version,
        )

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        """Batches `({"experience": [batch, 2, ...], "weights": [batch]}, SampleInfo)`.

        At most two batches are under way besides those prefetched, so that priorities are used soon
        after they are set.
        """
        layout = self._layout(experience)
        train_step = self._annealing_step()
        items = datasets.items(
            server_address,
            self.table_name,
            layout.signature(),
            max_in_flight=2 * batch_size,
            timeout_seconds=timeout_seconds,
        )

        def unpack(sample: reverb.ReplaySample) -> Any:
            trajectory, version = layout.unpack(sample.data)
            trajectory = n_step_lib.fold(trajectory, experience.gamma)
            exponent = self._schedule.exponent(0 if train_step is None else train_step)
            return importance.weighted_batch(trajectory, sample.info, version, exponent)

        dataset = items.batch(batch_size, drop_remainder=True).map(unpack)
        return dataset.prefetch(self._prefetch)

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        del experience
        return num_items

    def _layout(self, experience: Experience) -> window_layout.WindowLayout:
        return window_layout.WindowLayout(
            experience.data_spec, experience.num_lanes, experience.n_step + 1
        )

    def _annealing_step(self) -> tf.Variable | None:
        """The variable that the exponent follows; None if the exponent stays as it is."""
        if self._schedule.constant:
            return None
        if self._train_step is not None:
            return self._train_step
        try:
            return parts.train_step()
        except errors.ConfigError as error:
            raise errors.ConfigError(
                "PrioritizedReplay anneals the exponent of its importance weights by train steps, "
                "but no experiment is being built whose counter it could read: pass "
                "PrioritizedReplay(train_step=...), or make importance_start and importance_end "
                "the same"
            ) from error

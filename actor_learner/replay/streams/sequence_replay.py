"""Prioritized replay of sequences, for agents with memory."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner.replay.layouts import sequence_layout
from actor_learner.replay.reading import datasets, importance
from actor_learner.replay.server import tables
from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import sequence_observer
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience
Version = sample_stream.Version

TABLE = sample_stream.TABLE


@configurable.register
class SequenceReplay(sample_stream.SampleStream):
    """Items are sequences of consecutive steps of one episode, sampled by priority.

    Sequences begin every `period` steps of an episode and share their data. An agent that
    bootstraps within a sequence cannot learn the last step in it, and learns nothing from the
    `burn_in` first ones unless they begin an episode. So that every step is learned,
    `burn_in < sequence_length - period`, and all else is refused; only where no episode is longer
    than a sequence may they follow on one another without overlap, and without burn-in.

    Args:
      capacity: Sequences kept; the oldest leave first. Memory is about `period` steps for each.
      sequence_length: Steps of a sequence; shorter episodes are filled up. Sequences are stored
        most cheaply if it is a multiple of `period`, for they are made of blocks of the greatest
        common divisor of the two, each with a policy state.
      period: Steps between the beginnings of two sequences of an episode: they overlap by
        `sequence_length - period`.
      frame_stack: Frames that an observation is made of, if the environment stacks the latest ones
        (`FrameStackObservation`) along the first or the last dimension. Each is then stored once,
        instead of that many times; other observations are refused.
      table: Builds the table: `@prioritized_table`, `@uniform_table`, or another of their kind.
      priority_exponent: Sequences are sampled in proportion to `priority ** priority_exponent`;
        given to `table` if it takes one.
      importance_exponent: The loss of a sequence that is sampled with probability p out of N is
        weighted by `(1 / (N p)) ** importance_exponent`, over the largest such weight of the
        batch; 0 weighs all alike.
      priority_offset: Added to all priorities, the actors' and the learner's, so that no sequence
        has the priority 0 and is never drawn.
      table_name: Name of the table; streams that share a server need different ones.
      max_in_flight_items: Items of one lane that may be unconfirmed before the actor waits.
      max_in_flight_samples: Sequences fetched ahead of the learner, which were drawn with older
        priorities. None is two batches.
      prefetch: Batches kept ready for the learner, in addition.
    """

    kind = experience_lib.SEQUENCES
    weighted = True
    spreads = True

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        sequence_length: int = 80,
        period: int = 40,
        frame_stack: int | None = None,
        table: Callable[..., reverb.Table] = tables.prioritized_table,
        priority_exponent: float = 0.9,
        importance_exponent: float = 0.6,
        priority_offset: float = 1e-3,
        table_name: str = TABLE,
        max_in_flight_items: int = 10,
        max_in_flight_samples: int | None = None,
        prefetch: int = 1,
    ) -> None:
        super().__init__(table_name)
        self._check_counts(capacity=capacity)
        self._refuse_negative(priority_offset=priority_offset)
        self._refuse_name(table)
        if not 0.0 <= importance_exponent <= 1.0:
            raise errors.ConfigError(
                f"SequenceReplay.importance_exponent is {importance_exponent}; it must lie in "
                "[0, 1]: 0 corrects nothing, 1 all of the bias of sampling by priority"
            )
        sequence_layout.check_lengths(sequence_length, period)
        self._capacity = capacity
        self._sequence_length = sequence_length
        self._period = period
        self._frame_stack = frame_stack
        self._table = table
        self._priority_exponent = priority_exponent
        self._importance_exponent = importance_exponent
        self.priority_offset = priority_offset
        self._whole_episodes, self._padded = False, True
        self._max_in_flight_items = max_in_flight_items
        self._max_in_flight_samples = max_in_flight_samples
        self._prefetch = prefetch

    def check(self, experience: Experience) -> None:
        """Refuses burn-in that leaves steps of long episodes out of every sequence's learned part.

        Of an episode's first sequence rows 0 to L - 2 are learned from (L: sequence_length), of
        one that begins at row b rows b + burn_in to b + L - 2, so that nothing is left out between
        two sequences if and only if period + burn_in <= L - 1.
        """
        if self._whole_episodes:
            return  # What begins an episode is learned from, burn-in or not.
        length, period, burn_in = self._sequence_length, self._period, experience.burn_in
        if burn_in < length - period or (burn_in == 0 and period == length):
            return
        lost = f"{burn_in - (length - period) + 1} of every {period} steps"
        longest = length - period - 1
        remedy = (
            f"lower burn_in to {longest} at most, or period"
            if longest >= 0
            else (f"lower period, or, if no episode has more than {length} steps, set burn_in to 0")
        )
        raise errors.ConfigError(
            f"burn_in is {burn_in}, SequenceReplay.sequence_length {length} and period {period}: "
            f"burn_in must be below sequence_length - period ({length - period}), or {lost} would "
            f"never be learned from in episodes longer than a sequence: {remedy}"
        )

    def with_window(self, burn_in: int, sample: int, bootstrap: int) -> SequenceReplay:
        own = copy.copy(self)
        own._sequence_length, own._period = burn_in + sample + bootstrap, sample
        return own

    def with_whole_episodes(self, padded: bool) -> SequenceReplay:
        own = copy.copy(self)
        own._whole_episodes, own._padded = True, padded
        return own

    def tables(self, experience: Experience) -> list[reverb.Table]:
        exponent = {}
        if "priority_exponent" in inspect.signature(self._table).parameters:
            exponent["priority_exponent"] = self._priority_exponent
        signature = self._layout(experience).signature()
        return [
            self._table(
                name=self.table_name, max_size=self._capacity, signature=signature, **exponent
            )
        ]

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> sequence_observer.SequenceObserver:
        return sequence_observer.SequenceObserver(
            client,
            self.table_name,
            self._layout(experience),
            initial_priorities=experience.initial_priorities,
            priority_offset=self.priority_offset,
            max_in_flight_items=self._max_in_flight_items,
            version=version,
        )

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        """Batches `({"experience": Sequence, "weights": [batch]}, SampleInfo)`."""
        layout = self._layout(experience)
        samples = datasets.items(
            server_address,
            self.table_name,
            layout.signature(),
            max_in_flight=self._max_in_flight_samples or 2 * batch_size,
            timeout_seconds=timeout_seconds,
        )

        # AutoGraph has nothing to convert here, and takes most of a second to find out.
        @tf.autograph.experimental.do_not_convert
        def unpack(sample: reverb.ReplaySample) -> Any:
            sequence, version = layout.unpack(sample.data)
            return importance.weighted_batch(
                sequence, sample.info, version, self._importance_exponent
            )

        if not layout.padded:
            samples = samples.map(
                tf.autograph.experimental.do_not_convert(
                    lambda sample: sample._replace(data=layout.fill_up(sample.data))
                )
            )
        batches = samples.batch(batch_size, drop_remainder=True).map(unpack)
        return batches.prefetch(self._prefetch)

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        """At most so many: an episode's end leaves its last block unfilled."""
        return num_items * (self._sequence_length if self._whole_episodes else self._period)

    def _layout(self, experience: Experience) -> sequence_layout.SequenceLayout:
        return sequence_layout.SequenceLayout(
            experience.data_spec,
            experience.num_lanes,
            self._sequence_length,
            self._period,
            self._frame_stack,
            whole_episodes=self._whole_episodes,
            padded=self._padded,
        )

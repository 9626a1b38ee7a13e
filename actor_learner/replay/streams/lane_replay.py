"""Uniform replay with lane-batched items: the fastest stream for off-policy agents."""

from __future__ import annotations

from typing import Callable

import reverb
import tensorflow as tf

from actor_learner.replay.layouts import blocks
from actor_learner.replay.reading import datasets
from actor_learner.replay.server import tables
from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import block_observer
from actor_learner.support import configurable

Experience = sample_stream.Experience
Version = sample_stream.Version

TABLE = sample_stream.TABLE

_FEWEST_ITEMS = 64
"""Items that a full table holds at least, if their size is chosen here."""


@configurable.register
class LaneReplay(sample_stream.SampleStream):
    """An item holds the transitions of all lanes, of one batched step or of a few.

    Args:
      capacity: Transitions kept; the oldest leave first. Memory is at most 1.3 times as many times
        the size of one step.
      table: Builds the table: `@uniform_table`, or another whose items all weigh the same.
      table_name: Name of the table; streams that share a server need different ones.
      rows_per_item: Batched steps whose transitions form one item, and which reach the table
        together. None chooses as many as make 4 kB, or 8 kB from 64 lanes on: several for few lanes
        and small observations, one for images. More need less memory and are read faster; 1 stores
        each step at once. With one lane they make successive batches alike: of CartPole's steps an
        item holds 103, so that 64 transitions come from 27 stretches of the past, and those of 51
        train steps from 31, where 1 gives 54 and all. That costs nothing on CartPole: over 20,000
        steps DQN's mean greedy return is 393 with it and 391 with 1 (5 seeds each). HalfCheetah's
        items hold 24 steps, and larger batches come from more of them: over 25,000 steps SAC's
        mean greedy return is 109 and -56 with it, -2 and 102 with 1 (2 seeds each), which shows no
        cost, but would not show a small one.
      frame_stack: Frames that an observation is made of, if the environment stacks the latest ones
        (`FrameStackObservation`) along the first or the last dimension. Each frame is then stored
        once, instead of that many times; other observations are refused.
      max_in_flight_items: Items an actor may have unconfirmed before it waits.
      flush_seconds: How long a step waits until its item is full; then the item is written as it
        is. Once a quarter of the table is filled, 60 times as long: short items take up capacity.
        Where even then `rows_per_item` steps take longer, fewer transitions than `capacity` are
        kept; smaller items help.
      shuffle_items: Items mixed before batches are cut; None chooses by batch size and lanes.
      prefetch: Pools of `shuffle_items` items kept ready for the learner; more are older when used.
    """

    spreads = True

    def __init__(
        self,
        capacity: int = 100_000,
        *,
        table: Callable[..., reverb.Table] = tables.uniform_table,
        table_name: str = TABLE,
        rows_per_item: int | None = None,
        frame_stack: int | None = None,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        shuffle_items: int | None = None,
        prefetch: int = 1,
    ) -> None:
        super().__init__(table_name)
        self._check_counts(capacity=capacity, rows_per_item=rows_per_item)
        self._refuse_negative(flush_seconds=flush_seconds)
        self._refuse_name(table)
        self._capacity = capacity
        self._rows_per_item = rows_per_item
        self._frame_stack = frame_stack
        self._table = table
        self._max_in_flight_items = max_in_flight_items
        self._flush_seconds = flush_seconds
        self._shuffle_items = shuffle_items
        self._prefetch = prefetch

    def layout(self, experience: Experience) -> blocks.BlockLayout:
        """How the items look that actors write and the learner reads."""
        size = self._rows_per_item
        if size is None:
            size = blocks.rows_per_item(experience.data_spec, experience.num_lanes)
            # Small replays get small items: what is kept is counted in whole items.
            size = min(size, max(1, self._capacity // (_FEWEST_ITEMS * experience.num_lanes)))
        return blocks.BlockLayout(
            experience.data_spec,
            experience.num_lanes,
            n_step=experience.n_step,
            rows_per_item=size,
            frame_stack=self._frame_stack,
        )

    def tables(self, experience: Experience) -> list[reverb.Table]:
        layout = self.layout(experience)
        return [
            self._table(
                name=self.table_name,
                max_size=max(1, self._capacity // (layout.rows_per_item * layout.num_lanes)),
                signature=layout.signature(),
            )
        ]

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> block_observer.BlockObserver:
        return block_observer.BlockObserver(
            client,
            self.table_name,
            self.layout(experience),
            max_in_flight_items=self._max_in_flight_items,
            flush_seconds=self._flush_seconds,
            version=version,
        )

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        return datasets.lane_transitions(
            server_address,
            self.table_name,
            self.layout(experience),
            batch_size,
            gamma=experience.gamma,
            shuffle_items=self._shuffle_items,
            prefetch=self._prefetch,
            timeout_seconds=timeout_seconds,
        )

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        """At most so many: items that were written before they were full hold fewer."""
        return num_items * self.layout(experience).rows_per_item * experience.num_lanes

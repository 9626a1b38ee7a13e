"""Uniform replay with lane-batched items: the fastest stream for off-policy agents."""

from __future__ import annotations

from typing import Callable

import reverb
import tensorflow as tf

from actor_learner import configurable, errors
from actor_learner.replay import datasets, lane_observer, rows, sample_stream, tables

TABLE = "experience"


@configurable.register
class LaneReplay(sample_stream.SampleStream):
    """One item per batched step holds the transitions of all lanes.

    Args:
      capacity: Transitions kept; the oldest leave first. Memory is about this many times the size
        of one step.
      table: Builds the table: `@uniform_table`, or another whose items all weigh the same.
      max_in_flight_items: Items an actor may have unconfirmed before it waits.
      shuffle_items: Items mixed before batches are cut; None chooses by batch size and lanes.
      prefetch: Batches kept ready for the learner; more are older when used.
    """

    def __init__(
        self,
        capacity: int = 100_000,
        *,
        table: Callable[..., reverb.Table] = tables.uniform_table,
        max_in_flight_items: int = 50,
        shuffle_items: int | None = None,
        prefetch: int = 4,
    ) -> None:
        if capacity < 1:
            raise errors.ConfigError(f"LaneReplay.capacity must be at least 1, got {capacity}")
        self._capacity = capacity
        self._table = table
        self._max_in_flight_items = max_in_flight_items
        self._shuffle_items = shuffle_items
        self._prefetch = prefetch

    def tables(self, experience: sample_stream.Experience) -> list[reverb.Table]:
        layout = rows.RowLayout(experience.data_spec, experience.num_lanes)
        return [
            self._table(
                name=TABLE,
                max_size=max(1, self._capacity // experience.num_lanes),
                signature=layout.signature(experience.n_step + 1),
            )
        ]

    def observer(
        self,
        experience: sample_stream.Experience,
        client: reverb.Client,
        version: Callable[[], int] | None = None,
    ) -> lane_observer.LaneObserver:
        return lane_observer.LaneObserver(
            client,
            TABLE,
            experience.data_spec,
            experience.num_lanes,
            window=experience.n_step + 1,
            max_in_flight_items=self._max_in_flight_items,
            version=version,
        )

    def dataset(
        self,
        experience: sample_stream.Experience,
        server_address: str,
        batch_size: int,
        timeout_seconds: float,
    ) -> tf.data.Dataset:
        return datasets.lane_transitions(
            server_address,
            TABLE,
            experience.data_spec,
            experience.num_lanes,
            batch_size,
            n_step=experience.n_step,
            gamma=experience.gamma,
            shuffle_items=self._shuffle_items,
            prefetch=self._prefetch,
            timeout_seconds=timeout_seconds,
        )

    def num_transitions(self, experience: sample_stream.Experience, num_items: int) -> int:
        return num_items * experience.num_lanes

"""Replay with one item per lane window, as TF-Agents stores it: for tables other than uniform."""

from __future__ import annotations

from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner.replay import observers, reverb_replay_buffer
from actor_learner.replay.reading import n_step as n_step_lib
from actor_learner.replay.server import signatures, tables
from actor_learner.replay.streams import sample_stream
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience
Version = sample_stream.Version

TABLE = sample_stream.TABLE


@configurable.register
class WindowReplay(sample_stream.SampleStream):
    """Each window of `n_step + 1` steps of one lane is one item, with a key and a priority.

    Slower than `LaneReplay` by the number of lanes; use it where single transitions must be
    addressed, or be sampled newest first (`@lifo_table`). It refuses `@prioritized_table`, whose
    priorities nothing would update: there is `PrioritizedReplay`. At `@queue_table` one thread that
    collects and learns by turns would wait for itself.

    Args:
      capacity: Items, and so transitions, kept.
      table: Builds the table, from name, max_size and signature.
      table_name: Name of the table; streams that share a server need different ones.
      max_in_flight_items: Items an actor may have unconfirmed, per lane, before it waits.
      prefetch: Batches kept ready for the learner.
    """

    def __init__(
        self,
        capacity: int = 100_000,
        *,
        table: Callable[..., reverb.Table] = tables.uniform_table,
        table_name: str = TABLE,
        max_in_flight_items: int = 50,
        prefetch: int = 4,
    ) -> None:
        super().__init__(table_name)
        self._check_counts(capacity=capacity)
        self._refuse_name(table)
        self._capacity = capacity
        self._table = table
        self._max_in_flight_items = max_in_flight_items
        self._prefetch = prefetch

    def tables(self, experience: Experience) -> list[reverb.Table]:
        signature = signatures.window_signature(experience.data_spec, experience.n_step + 1)
        table = self._table(name=self.table_name, max_size=self._capacity, signature=signature)
        if table.info.sampler_options.HasField("prioritized"):
            raise errors.ConfigError(
                "WindowReplay.table samples by priority, but nothing updates priorities there: use "
                "Experiment.replay = @PrioritizedReplay()"
            )
        return [table]

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> observers.ReverbAddTrajectoryObserver:
        del version  # TF-Agents' item format has no place for it.
        several = experience.n_step > 1
        return observers.ReverbAddTrajectoryObserver(
            client,
            self.table_name,
            sequence_length=experience.n_step + 1,
            # The last n - 1 steps of an episode are in windows that the episode's end cuts short.
            pad_end_of_episodes=several,
            tile_end_of_episodes=several,
            max_in_flight_items=self._max_in_flight_items,
        )

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        buffer = reverb_replay_buffer.ReverbReplayBuffer(
            experience.data_spec,
            self.table_name,
            sequence_length=experience.n_step + 1,
            server_address=server_address,
            rate_limiter_timeout_ms=int(timeout_seconds * 1000),
        )
        dataset = buffer.as_dataset(sample_batch_size=batch_size, num_steps=experience.n_step + 1)
        if experience.n_step > 1:
            dataset = dataset.map(_keep_valid).rebatch(batch_size, drop_remainder=True)

            def fold(trajectory: Any, info: Any) -> Any:
                folded = n_step_lib.fold(trajectory, experience.gamma)
                return folded, tf.nest.map_structure(lambda leaf: leaf[:, :2], info)

            dataset = dataset.map(fold)
        return dataset.prefetch(self._prefetch)

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        return num_items


def _keep_valid(trajectory: Any, info: Any) -> Any:
    """Drops windows that begin with a boundary or padding step."""
    valid = n_step_lib.valid_windows(trajectory.step_type, trajectory.next_step_type)
    return tf.nest.map_structure(lambda leaf: tf.boolean_mask(leaf, valid), (trajectory, info))

"""Uniform replay whose samples repeat: drawn by the learner, with a seed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import reverb
import tensorflow as tf
from absl import logging

from actor_learner.replay.layouts import codec, window_layout
from actor_learner.replay.reading import datasets, n_step, row_ring
from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import window_observer
from actor_learner.support import configurable, errors, reverb_calls

Experience = sample_stream.Experience
Version = sample_stream.Version

TABLE = sample_stream.TABLE
_POLL_SECONDS = 0.01
_MAX_ITEMS = 1_000_000_000
_ROWS_AT_ONCE = 256


@configurable.register
class SeededReplay(sample_stream.SampleStream):
    """Reverb hands every row on once, in order; the learner keeps them and draws from them.

    Reverb's own sampler cannot be seeded. This stream makes the same draws from the same rows, for
    runs that must repeat exactly (`Experiment.deterministic`). It is several times slower to read
    than `LaneReplay`, keeps its contents in the learner's process and loses them with it.

    Args:
      capacity: Transitions kept; the oldest leave first.
      seed: Of the draws; None draws one from NumPy's global generator, which a run seeds.
      max_in_flight_items: Items an actor may have unconfirmed before it waits.
      table_name: Name of the table; streams that share a server need different ones.
    """

    repeatable = True
    keeps_items = True

    def __init__(
        self,
        capacity: int = 100_000,
        *,
        seed: int | None = None,
        max_in_flight_items: int = 50,
        table_name: str = TABLE,
    ) -> None:
        super().__init__(table_name)
        self._check_counts(capacity=capacity)
        self._capacity = capacity
        self._seed = seed
        self._max_in_flight_items = max_in_flight_items
        self._ring: row_ring.RowRing | None = None

    def check(self, experience: Experience) -> None:
        if experience.num_groups > 1:
            raise errors.ConfigError(
                f"Experiment.ring_size is {experience.num_groups}, but {type(self).__name__} takes "
                "rows that follow one another for those of the same lanes: leave the binding out, "
                "or use @LaneReplay(), which Experiment.deterministic excludes"
            )

    def tables(self, experience: Experience) -> list[reverb.Table]:
        layout = window_layout.RowLayout(experience.data_spec, experience.num_lanes)
        return [
            reverb.Table(
                name=self.table_name,
                sampler=reverb.selectors.Fifo(),
                remover=reverb.selectors.Fifo(),
                # Rows leave when they are read; nothing is ever pushed out unread.
                max_size=_MAX_ITEMS,
                max_times_sampled=1,
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature=layout.signature(),
            )
        ]

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> window_observer.LaneObserver:
        return window_observer.LaneObserver(
            client,
            self.table_name,
            experience.data_spec,
            experience.num_lanes,
            window=1,
            max_in_flight_items=self._max_in_flight_items,
            version=version,
        )

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        layout = window_layout.RowLayout(experience.data_spec, experience.num_lanes)
        window = experience.n_step + 1
        seed = np.random.randint(2**31) if self._seed is None else self._seed
        self._ring = row_ring.RowRing(self._num_rows(experience), window, seed)
        ring, table_name = self._ring, self.table_name

        def batches() -> Iterator[dict[str, np.ndarray]]:
            client = reverb.Client(server_address)
            deadline = time.monotonic() + timeout_seconds
            while True:
                try:
                    _move_rows(client, table_name, layout, ring, timeout_seconds)
                except errors.ReplayTimeoutError as error:
                    logging.error("%s", error)
                    return
                if ring.num_windows():
                    yield ring.sample(batch_size)
                    deadline = time.monotonic() + timeout_seconds
                elif time.monotonic() > deadline:
                    return  # The learner says what it was waiting for.
                else:
                    time.sleep(_POLL_SECONDS)

        signature = {
            name: tf.TensorSpec([batch_size, window, *spec.shape[2:]], spec.dtype)
            for name, spec in layout.signature().items()
        }

        # AutoGraph has nothing to convert here, and takes most of a second to find out.
        @tf.autograph.experimental.do_not_convert
        def unpack(columns: dict[str, tf.Tensor]) -> tuple:
            trajectory = n_step.fold(layout.unpack(columns), experience.gamma)
            return trajectory, datasets.TransitionInfo(columns[codec.VERSION][:, 0])

        # No prefetching: a batch drawn ahead would not know the rows that are still to come.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.inject_prefetch = False
        options.deterministic = True
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        return dataset.map(unpack).with_options(options)

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        kept = len(self._ring) if self._ring is not None else 0
        return min(kept + num_items, self._num_rows(experience)) * experience.num_lanes

    def first_steps(self, experience: Experience) -> int:
        # Rows are handed on one by one: only the learner knows when they make a window.
        return (experience.n_step + 1) * experience.num_lanes

    def _num_rows(self, experience: Experience) -> int:
        return max(experience.n_step + 1, self._capacity // experience.num_lanes)


def _move_rows(
    client: reverb.Client,
    table_name: str,
    layout: window_layout.RowLayout,
    ring: row_ring.RowRing,
    timeout_seconds: float,
) -> None:
    """Takes every row out of the table, in their order; whoever comes next finds the others.

    As many are asked for as there are: a sampler that waited for more would take the next row the
    moment it is written, and the table's counts would depend on when they are looked at.

    Raises:
      errors.ReplayTimeoutError: If the server does not hand them over in time.
    """
    left = reverb_calls.fetch_table(client, table_name, timeout_seconds).current_size
    while left:
        for sample in _take(client, table_name, min(left, _ROWS_AT_ONCE), timeout_seconds):
            columns = {name: np.asarray(column[0]) for name, column in sample.data.items()}
            ring.add(
                columns, layout.view(columns, "step_type"), layout.view(columns, "next_step_type")
            )
            left -= 1


def _take(
    client: reverb.Client, table_name: str, count: int, timeout_seconds: float
) -> list[reverb.ReplaySample]:
    """Takes so many rows, which must be there."""
    return reverb_calls.call_with_deadline(
        lambda: list(
            client.sample(table_name, count, emit_timesteps=False, unpack_as_table_signature=True)
        ),
        timeout_seconds,
        lambda: errors.ReplayTimeoutError(
            f"the learner has waited {timeout_seconds:g} s for {count} rows that table "
            f"'{table_name}' at {client.server_address} held: the server is gone, or somebody else "
            "takes rows out of it"
        ),
    )

"""Datasets that turn stored items into training batches of exact size."""

from __future__ import annotations

from typing import Any, NamedTuple

import reverb
import tensorflow as tf

from actor_learner.replay import n_step as n_step_lib
from actor_learner.replay import rows


class TransitionInfo(NamedTuple):
    """What accompanies each transition of a batch.

    Attributes:
      version: `[batch]` int64, the train step of the policy that acted.
    """

    version: tf.Tensor


def lane_transitions(
    server_address: str,
    table_name: str,
    data_spec: Any,
    num_lanes: int,
    batch_size: int,
    *,
    n_step: int = 1,
    gamma: float = 1.0,
    shuffle_items: int | None = None,
    prefetch: int = 4,
    timeout_seconds: float | None = None,
) -> tf.data.Dataset:
    """Samples lane-batched items and re-batches their transitions.

    Each item holds a window of rows of all lanes. Windows that begin with an episode's boundary
    step are dropped, the rest of `shuffle_items` sampled items are mixed at random, and batches
    of exactly `batch_size` are cut from them. Every stored transition is equally likely.

    Args:
      server_address: `host:port` of the replay server.
      table_name: Table that a `LaneObserver` fills.
      data_spec: Spec of one step of one lane, as given to the observer.
      num_lanes: Lanes per item.
      batch_size: Transitions per batch.
      n_step: Steps per transition; items must have been written with `window = n_step + 1`.
      gamma: Discount factor of the agent, used to sum rewards when `n_step > 1`.
      shuffle_items: Items mixed before batches are cut: more items, less correlated batches, and
        older samples. By default enough for 16 batches, and at least 16.
      prefetch: Batches kept ready.
      timeout_seconds: The dataset ends if the table gives nothing for so long; None waits forever.

    Returns:
      Dataset of `(trajectory, TransitionInfo)`, trajectory leaves `[batch_size, 2, ...]`.
    """
    layout = rows.RowLayout(data_spec, num_lanes)
    signature = layout.signature(n_step + 1)
    if shuffle_items is None:
        shuffle_items = max(16, -(-16 * batch_size // num_lanes))
    timeout_ms = -1 if timeout_seconds is None else int(timeout_seconds * 1000)
    dataset = reverb.TrajectoryDataset(
        server_address,
        table_name,
        dtypes={name: spec.dtype for name, spec in signature.items()},
        shapes={name: spec.shape for name, spec in signature.items()},
        max_in_flight_samples_per_worker=shuffle_items,  # The next pool; more would be stale.
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=timeout_ms,
    )

    def pool(sample: reverb.ReplaySample) -> Any:
        """`[items, T, lanes, ...]` to shuffled valid transitions `[n, 2, ...]`."""
        columns = {}
        for name, column in sample.data.items():
            if name == rows.VERSION:
                columns[name] = tf.repeat(column[:, 0], num_lanes)
                continue
            inner = column.shape[3:].as_list()
            order = [0, 2, 1, *range(3, column.shape.rank)]
            columns[name] = tf.reshape(
                tf.transpose(column, order), [shuffle_items * num_lanes, n_step + 1, *inner]
            )
        valid = n_step_lib.valid_windows(
            layout.read(columns, "step_type"), layout.read(columns, "next_step_type")
        )
        index = tf.random.shuffle(tf.where(valid)[:, 0])
        columns = {name: tf.gather(column, index) for name, column in columns.items()}
        trajectory = n_step_lib.fold(layout.unpack(columns), gamma)
        return trajectory, TransitionInfo(columns[rows.VERSION])

    # Unpacked by the pool, not by the batch: the cost of these many small ops is per call.
    dataset = dataset.batch(shuffle_items, drop_remainder=True).map(pool)
    return dataset.rebatch(batch_size, drop_remainder=True).prefetch(prefetch)

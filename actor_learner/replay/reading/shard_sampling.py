"""Samples a table that several replay servers hold together."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf

from actor_learner.replay.server import shards

_DRAWN_AT_ONCE = 16  # Draws of servers between two looks at their shares.

OneServer = Callable[[Any], tf.data.Dataset]
"""Makes the dataset of one server's items, given its address, a text or a tensor."""


class ShardedInfo(NamedTuple):
    """What is known of an item that was drawn from one of several servers.

    Attributes:
      key: Of the item in its server's table.
      probability: With which it was drawn, among the items of all servers.
      table_size: Items of all servers.
      priority: Of the item.
      times_sampled: How often it was drawn.
      shard: int64, number of its server.
    """

    key: Any
    probability: Any
    table_size: Any
    priority: Any
    times_sampled: Any
    shard: Any


def in_proportion(one: OneServer, servers: shards.Shards, table: str) -> tf.data.Dataset:
    """Draws items as from one table that holds those of all servers.

    A server is drawn in proportion to its mass (`shards.Shares`), then an item from its table.
    Masses follow what the servers hold, half a second behind. Waits while the server that was drawn
    is away, or empty: going on without it would leave out its part of the experience.

    Args:
      one: Makes the dataset of one server's items; it must not end.
      servers: The servers.
      table: Name of the table.

    Returns:
      Dataset of `reverb.ReplaySample`; its info is `ShardedInfo` where the table has priorities.
    """
    shares = servers.shares(table)
    parts = [one(address) for address in servers.addresses]

    @tf.autograph.experimental.do_not_convert
    def draw(_: tf.Tensor) -> tf.Tensor:
        logits = tf.math.log(shares.weights.read_value())[tf.newaxis]
        return tf.random.categorical(logits, _DRAWN_AT_ONCE, dtype=tf.int64)[0]

    choices = tf.data.Dataset.counter().map(draw).unbatch()
    if not shares.by_priority:
        return tf.data.Dataset.choose_from_datasets(parts, choices)
    numbers = [tf.data.Dataset.from_tensors(np.int64(k)).repeat() for k in range(len(parts))]
    numbered = [tf.data.Dataset.zip(pair) for pair in zip(parts, numbers)]
    drawn = tf.data.Dataset.choose_from_datasets(numbered, choices)
    # Several at once: the cost of these small operations is per call.
    return drawn.batch(_DRAWN_AT_ONCE, drop_remainder=True).map(_informing(shares)).unbatch()


def as_they_come(one: OneServer, servers: shards.Shards) -> tf.data.Dataset:
    """Takes items from whichever server has one, each once; one that is away delays no other.

    A few items of each server are taken out before they are asked for: two, besides those that
    `one` fetches ahead.

    Args:
      one: Makes the dataset of one server's items; its elements are passed on.
      servers: The servers.
    """
    count = len(servers.addresses)
    merged = tf.data.Dataset.from_tensor_slices(list(servers.addresses)).interleave(
        one, cycle_length=count, num_parallel_calls=count, deterministic=False
    )
    # For `sample_sources`: within the function the addresses are not known.
    merged._shards = [one(address) for address in servers.addresses]
    return merged


def _informing(shares: shards.Shares) -> Callable[[Any, Any], Any]:
    """Notes what items tell of their servers, and what their being drawn means among all servers.

    Args:
      shares: Of the servers.
    """

    @tf.autograph.experimental.do_not_convert
    def inform(samples: Any, numbers: tf.Tensor) -> Any:
        info = samples.info
        size = tf.cast(info.table_size, tf.float64)
        rows = tf.stack([tf.cast(info.priority, tf.float64), info.probability, size], axis=1)
        noted = shares.latest.scatter_nd_update(numbers[:, tf.newaxis], rows)
        with tf.control_dependencies([noted]):
            weights = tf.gather(shares.weights.read_value(), numbers)
        return samples._replace(
            info=ShardedInfo(
                key=info.key,
                probability=info.probability * weights,
                table_size=tf.fill(tf.shape(numbers), shares.num_items.read_value()),
                priority=info.priority,
                times_sampled=info.times_sampled,
                shard=numbers,
            )
        )

    return inform

"""A ring in memory through which a graph hands keys and priorities to a thread, never waiting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from actor_learner.support import counters


class Written(NamedTuple):
    """What was written to a ring since it was last read, oldest first.

    Attributes:
      keys: `[n]` uint64.
      priorities: `[n]` float64.
      last: Number of the newest batch, counted from 1.
      dropped: Batches that were overwritten before they were read.
    """

    keys: np.ndarray
    priorities: np.ndarray
    last: int
    dropped: int


class PriorityRing:
    """The latest batches of keys and priorities, one row each; the oldest is overwritten.

    A row is one assignment to one variable, which TensorFlow makes whole: a reader sees a batch
    entirely or not at all.

    Args:
      capacity: Batches kept.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = tf.Variable(0, trainable=False, dtype=tf.int64, name="priority_batches")
        self._rows: tf.Variable | None = None  # [capacity, 1 + 2 * batch]

    def write(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        """Adds a batch; meant to be traced into a graph.

        Args:
          keys: `[batch]` uint64; the number of keys must be known and the same in every call.
          priorities: `[batch]` float64.
        """
        (batch,) = keys.shape
        priorities = tf.ensure_shape(priorities, [batch])
        if self._rows is None:
            with tf.init_scope():
                shape = [self._capacity, 1 + 2 * batch]
                self._rows = tf.Variable(tf.zeros(shape, tf.int64), trainable=False)
        number = self._count.assign_add(1)
        row = tf.concat(
            [number[tf.newaxis], tf.bitcast(keys, tf.int64), tf.bitcast(priorities, tf.int64)],
            axis=0,
        )
        place = (number - 1) % self._capacity
        self._rows.scatter_update(tf.IndexedSlices(row[tf.newaxis], place[tf.newaxis]))

    def written(self) -> int:
        """Number of batches written so far."""
        return int(counters.read(self._count))

    def read_after(self, number: int) -> Written | None:
        """Everything after batch `number`; None if there is nothing. Called by one thread."""
        if self.written() <= number:
            return None
        rows = counters.read(self._rows)
        rows = rows[rows[:, 0] > number]
        if not len(rows):
            return None  # The count is raised before the row is written.
        rows = rows[np.argsort(rows[:, 0])]
        last = int(rows[-1, 0])
        keys, priorities = np.split(rows[:, 1:], 2, axis=1)
        return Written(
            keys=np.ascontiguousarray(keys).view(np.uint64).ravel(),
            priorities=np.ascontiguousarray(priorities).view(np.float64).ravel(),
            last=last,
            dropped=last - number - len(rows),
        )

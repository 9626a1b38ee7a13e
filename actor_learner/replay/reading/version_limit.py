"""A limit to the age of the policy whose experience is learned from."""

from __future__ import annotations

import tensorflow as tf

from actor_learner.support import counters


class VersionLimit:
    """Tells experience that is too old to learn from, inside a dataset, and counts it.

    Args:
      train_step: The learner's count of train steps, read whenever an item is looked at.
      max_lag: Train steps that the policy which acted may be behind it.
    """

    def __init__(self, train_step: tf.Variable, max_lag: int) -> None:
        self._train_step = train_step
        self._max_lag = max_lag
        self._dropped = tf.Variable(0, trainable=False, dtype=tf.int64, name="dropped_items")

    @property
    def max_lag(self) -> int:
        return self._max_lag

    @property
    def dropped(self) -> int:
        """Items that were too old, since this object was made."""
        return int(counters.read(self._dropped))

    def note_dropped(self, items: int) -> None:
        """Counts items that were too old for another learner, which shares the queue."""
        self._dropped.assign_add(items)

    def accepts(self, version: tf.Tensor) -> tf.Tensor:
        """Whether an item of the policy `version`, a scalar, may be learned from now."""
        fresh = self._train_step.read_value() - version <= self._max_lag
        with tf.control_dependencies([self._dropped.assign_add(tf.cast(~fresh, tf.int64))]):
            return tf.identity(fresh)

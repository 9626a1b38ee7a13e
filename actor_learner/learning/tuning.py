"""Turns off tf.data's tuning thread for datasets that a learner reads."""

from __future__ import annotations

import tensorflow as tf


def without_tuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same dataset without autotuning, unless its options ask for it.

    TensorFlow 2.15 tunes the parallelism of every dataset in a thread of its own, which now and
    then misses the signal to end: dropping the iterator then blocks until the thread's next turn,
    up to a minute later, and with it the end of a training run. What would be tuned uses as many
    threads as there are cores instead.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return dataset
    if dataset.options().autotune.enabled is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)

"""Shuffled minibatches that use every item exactly once per epoch, inside a graph.

```python
order = minibatches.shuffled_epochs(items, epochs)
for number in range(epochs * count):  # A tf.while_loop.
    minibatch = minibatches.select(order, number, tf.size(items), count)
```
"""

from __future__ import annotations

import tensorflow as tf


def count(num_items: tf.Tensor, size: int) -> tf.Tensor:
    """How many minibatches of at most `size` items an epoch over `num_items` takes."""
    return (num_items + size - 1) // size


def shuffled_epochs(items: tf.Tensor, epochs: int) -> tf.Tensor:
    """The items in another random order for each epoch, one epoch after the other.

    Args:
      items: `[items]`, any numbers that stand for them.
      epochs: At least 1; one shuffle is built into the graph for each.

    Returns:
      `[epochs * items]`.
    """
    return tf.concat([tf.random.shuffle(items) for _ in range(epochs)], axis=0)


def select(
    order: tf.Tensor, number: tf.Tensor, num_items: tf.Tensor, minibatches: tf.Tensor
) -> tf.Tensor:
    """The items of minibatch `number`, counted over all epochs.

    An epoch is cut into parts whose sizes differ by one at most. A rest of a few frames, whose
    gradient would be mostly noise, never makes a minibatch of its own.

    Args:
      order: What `shuffled_epochs` returned.
      number: From 0 to `epochs * minibatches - 1`.
      num_items: Items per epoch.
      minibatches: Minibatches per epoch.
    """
    epoch, part = number // minibatches, number % minibatches
    size, longer = (
        num_items // minibatches,
        num_items % minibatches,
    )  # The first ones have one more.
    start = epoch * num_items + part * size + tf.minimum(part, longer)
    return order[start : start + size + tf.cast(part < longer, size.dtype)]

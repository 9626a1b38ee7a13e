"""What agents and triggers expect around them: a summary writer, a strategy, soft placement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def agent_context(
    writer: Any, train_step: tf.Variable, summary_interval: int, strategy: tf.distribute.Strategy
) -> Iterator[None]:
    """Sets all of it up for a while.

    Args:
      writer: Gets the summaries.
      train_step: Decides when they are due.
      summary_interval: Train steps between them; 0 for none.
      strategy: Is entered.
    """

    def is_due() -> tf.Tensor:
        if not summary_interval:
            return tf.constant(False)
        return tf.equal(train_step % summary_interval, 0)

    with contextlib.ExitStack() as stack:
        stack.enter_context(writer.as_default())
        stack.enter_context(tf.summary.record_if(is_due))
        if not tf.config.get_soft_device_placement():
            tf.config.set_soft_device_placement(True)
            stack.callback(tf.config.set_soft_device_placement, False)
        stack.enter_context(strategy.scope())
        yield

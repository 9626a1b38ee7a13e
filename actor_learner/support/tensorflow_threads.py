"""How many threads TensorFlow uses in this process."""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from actor_learner.support import configurable, errors


@configurable.register
def tensorflow_threads(per_operation: int | None = None, operations: int | None = None) -> None:
    """Limits TensorFlow's threads; called by every program of ours before its first operation.

    By default TensorFlow splits an operation over all cores. A dense layer with a hundred units is
    done before a second thread has woken up, and Adam's update, whose cost TensorFlow 2.15
    overestimates, is split even for a bias: with one thread per operation such networks train a
    tenth to a third faster. Convolutions and wide layers have work enough for several threads.

    Args:
      per_operation: Threads that one operation is split over; None leaves it to TensorFlow.
      operations: Operations that run at the same time; None leaves it to TensorFlow.
    """
    threading = tf.config.threading
    _limit(
        "per_operation",
        per_operation,
        threading.get_intra_op_parallelism_threads,
        threading.set_intra_op_parallelism_threads,
    )
    _limit(
        "operations",
        operations,
        threading.get_inter_op_parallelism_threads,
        threading.set_inter_op_parallelism_threads,
    )


def _limit(name: str, count: int | None, get, set_) -> None:
    if count is None:
        return
    if count < 1:
        raise errors.ConfigError(f"tensorflow_threads.{name} must be at least 1, got {count}")
    if get() == count:
        return
    try:
        set_(count)
    except RuntimeError:
        # A notebook, or a test, that has used TensorFlow before: slower, but not wrong.
        logging.warning(
            "tensorflow_threads.%s = %d comes too late: TensorFlow has started in this process.",
            name,
            count,
        )

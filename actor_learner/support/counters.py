"""Reads and raises step counters, which are `tf.Variable`s, with as few eager tensors as possible.

TensorFlow 2.15 on Python 3.11 loses the attribute dictionary of every eager tensor (48 bytes in
our processes, tensorflow#62551), for ever. Counters are looked at in every turn of a run, so that
`variable.numpy()`, which makes two tensors, adds up to gigabytes in a few days. It also takes
several times as long.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Protocol

import numpy as np
import tensorflow as tf


class Writer(Protocol):
    """Raises a counter, and knows as a plain number where it stands.

    Attributes:
      counter: The counter.
    """

    counter: tf.Variable

    def step_now(self) -> int:
        """Where the counter stands."""


_writers: weakref.WeakValueDictionary[int, Writer] = weakref.WeakValueDictionary()


def note_writer(writer: Writer) -> None:
    """Has `latest` ask `writer` about its counter, as long as it lives."""
    _writers[id(writer.counter)] = writer


def latest(counter: tf.Variable) -> int:
    """The value after its writer has last raised it; costs nothing if the writer is known.

    Unlike `read` it may miss, for a while, what somebody else has assigned.
    """
    writer = _writers.get(id(counter))
    if writer is None or writer.counter is not counter:
        return int(read(counter))
    return writer.step_now()


def read(counter: tf.Variable) -> Any:
    """A variable's value now, a NumPy scalar or array as `numpy()` gives it; makes one tensor.

    Of a larger variable the array is read-only and may share its memory: look at it, copy what is
    to stay.
    """
    try:
        handle = counter.handle
    except ValueError:  # A variable of several replicas, which has one handle for each.
        return counter.numpy()
    return np.asarray(tf.raw_ops.ReadVariableOp(resource=handle, dtype=counter.dtype))[()]


def assign(counter: tf.Variable, value: float) -> None:
    """Gives a scalar variable a value; makes one tensor.

    `variable.assign` of a Python number loses 640 bytes each time, whatever the version of Python:
    TensorFlow keeps a tensor of every such number that it has seen, for ever.
    """
    counter.assign(np.asarray(value, counter.dtype.as_numpy_dtype), read_value=False)


def add(counter: tf.Variable, steps: int) -> None:
    """Raises a counter; makes no tensor if it was raised by so many steps before."""
    counter.assign_add(constant(int(steps), counter.dtype), read_value=False)


# One entry per distinct number of steps; the least recently used makes room.
@functools.lru_cache(maxsize=4096)
def constant(value: int, dtype: tf.DType) -> tf.Tensor:
    """A scalar eager tensor that is made once and used again in later calls."""
    with tf.init_scope():
        return tf.constant(np.asarray(value, dtype.as_numpy_dtype))  # See `assign`.

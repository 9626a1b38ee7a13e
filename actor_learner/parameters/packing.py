"""Variables as one array of bytes, which is sent, checked and stored as a whole."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from actor_learner.support import finite, graph_call

_ALIGNMENT = 64  # What TensorFlow wants of memory that it takes over without a copy.


class _Slot(NamedTuple):
    """Where one variable has its place."""

    name: str
    variable: tf.Variable
    dtype: tf.DType
    shape: tuple[int, ...]
    begin: int
    end: int


class Packing:
    """The order in which variables stand in an array of bytes; the same in every process.

    It reads and assigns by one graph call each, traced when first needed, which makes one eager
    tensor: on Python 3.11 each of them loses some bytes for ever (see `counters`).

    Args:
      variables: The variables, of numbers.
      header_bytes: Room before them, for the user.

    Attributes:
      size: Bytes of the array.
    """

    def __init__(self, variables: Sequence[tf.Variable], header_bytes: int = 0) -> None:
        self._slots = []
        end = header_bytes
        for variable in variables:
            shape = tuple(variable.shape)
            begin = _aligned(end)
            end = begin + int(np.prod(shape, dtype=np.int64)) * variable.dtype.size
            self._slots.append(_Slot(variable.name, variable, variable.dtype, shape, begin, end))
        self.size = _aligned(end)

    def pack(self) -> np.ndarray:
        """A copy of the variables as they are now, the header and all gaps zero."""
        return np.array(self._reading())

    def not_finite(self, packed: np.ndarray) -> str | None:
        """Describes the first variable of an array that is not finite; None if all are."""
        return finite.first_not_finite((slot.name, _values(slot, packed)) for slot in self._slots)

    def assign(self, packed: np.ndarray) -> None:
        """Gives the variables the values of an array, which must not be changed afterwards."""
        self._writing(tf.convert_to_tensor(packed))

    @functools.cached_property
    def _reading(self) -> graph_call.GraphCall:
        return _traced(self._read)

    @functools.cached_property
    def _writing(self) -> graph_call.GraphCall:
        return _traced(self._write, tf.TensorSpec([self.size], tf.uint8))

    def _read(self) -> tf.Tensor:
        parts, end = [], 0
        for slot in self._slots:
            parts.append(tf.zeros([slot.begin - end], tf.uint8))
            parts.append(_bytes_of(slot.variable.read_value()))
            end = slot.end
        return tf.concat([*parts, tf.zeros([self.size - end], tf.uint8)], axis=0)

    def _write(self, packed: tf.Tensor) -> None:
        for slot in self._slots:
            slot.variable.assign(_values_in_graph(slot, packed[slot.begin : slot.end]))


def _traced(function, *specs: tf.TensorSpec) -> graph_call.GraphCall:
    with tf.init_scope():
        traced = tf.function(function, autograph=False)
        return graph_call.GraphCall(traced.get_concrete_function(*specs))


def _bytes_of(value: tf.Tensor) -> tf.Tensor:
    """The bytes of a tensor, [bytes]."""
    if value.dtype == tf.bool:
        value = tf.cast(value, tf.uint8)
    return tf.reshape(tf.bitcast(value, tf.uint8), [-1])


def _values_in_graph(slot: _Slot, packed: tf.Tensor) -> tf.Tensor:
    """The value of a variable, of its bytes."""
    if slot.dtype == tf.bool:
        return tf.reshape(packed != 0, slot.shape)
    size = slot.dtype.size
    wide = tf.reshape(packed, [*slot.shape, size] if size > 1 else slot.shape)
    return tf.bitcast(wide, slot.dtype)


def _values(slot: _Slot, packed: np.ndarray) -> np.ndarray:
    return packed[slot.begin : slot.end].view(slot.dtype.as_numpy_dtype)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT

"""Variables as one array of bytes: what Reverb costs goes by the column, and a policy has many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from actor_learner.support import finite

_ALIGNMENT = 64  # What TensorFlow wants of memory that it takes over without a copy.


class _Slot(NamedTuple):
    """Where one variable has its place."""

    name: str
    handle: tf.Tensor
    dtype: tf.DType
    shape: tuple[int, ...]
    begin: int
    end: int


class Packing:
    """The order in which variables stand in an array of bytes; the same in every process.

    It reads and assigns by single operations on the variables' handles: a graph call, or
    `tf.Variable`'s own methods, cost several times as much for the few variables of a policy.

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
            self._slots.append(
                _Slot(variable.name, variable.handle, variable.dtype, shape, begin, end)
            )
        self.size = _aligned(end)

    def pack(self) -> np.ndarray:
        """A copy of the variables as they are now, the header and all gaps zero."""
        packed = np.zeros(self.size, np.uint8)
        for slot in self._slots:
            value = tf.raw_ops.ReadVariableOp(resource=slot.handle, dtype=slot.dtype)
            packed[slot.begin : slot.end] = np.asarray(value).reshape(-1).view(np.uint8)
        return packed

    def not_finite(self, packed: np.ndarray) -> str | None:
        """Describes the first variable of an array that is not finite; None if all are."""
        return finite.first_not_finite((slot.name, _values(slot, packed)) for slot in self._slots)

    def assign(self, packed: np.ndarray) -> None:
        """Gives the variables the values of an array, which must not be changed afterwards."""
        for slot in self._slots:
            value = _values(slot, packed).reshape(slot.shape)
            tf.raw_ops.AssignVariableOp(resource=slot.handle, value=value)


def _values(slot: _Slot, packed: np.ndarray) -> np.ndarray:
    return packed[slot.begin : slot.end].view(slot.dtype.as_numpy_dtype)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT

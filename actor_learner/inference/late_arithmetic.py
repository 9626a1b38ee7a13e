"""Arithmetic on float64 actions, in NumPy behind TFLite, which computes with float32 only.

Bounds of float64 actions are exact only in float64: rounded, one could lie outside of its range.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

from actor_learner.inference import lite_operations

# What only moves numbers about.
MOVING = frozenset({"Reshape", "ExpandDims", "Squeeze", "Transpose", "StridedSlice"})


class Late:
    """An operation to be done in NumPy on what TFLite gives.

    Args:
      name: Of the operation, for errors.
      arguments: Tensors, arrays, or other late operations.
      function: Of the arguments' values; None if only `narrow` is known.
      narrow: A tensor with the same values, rounded to float32, if there is one.
    """

    def __init__(
        self,
        name: str,
        arguments: list[Any],
        function: Callable[..., Any] | None,
        narrow: tf.Tensor | None = None,
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.narrow = narrow
        self._function = function

    @property
    def is_narrow_only(self) -> bool:
        """Whether nothing can be computed from it but from its `narrow` tensor."""
        return self._function is None

    def tensors(self) -> list[tf.Tensor]:
        """The tensors that it needs the values of."""
        needed: list[tf.Tensor] = []
        for argument in self.arguments:
            if isinstance(argument, tf.Tensor):
                needed.append(argument)
            elif isinstance(argument, Late):
                needed.extend(argument.tensors())
        return needed

    def compute(self, fetched: dict[Any, np.ndarray]) -> np.ndarray:
        """The result, given the values of `tensors`, by `tensor.ref()`."""
        values = []
        for argument in self.arguments:
            if isinstance(argument, tf.Tensor):
                argument = fetched[argument.ref()]
            elif isinstance(argument, Late):
                argument = argument.compute(fetched)
            values.append(argument)
        return self._function(*values)


def narrow_only(narrow: tf.Tensor) -> Late:
    """Float64 numbers of which only those rounded to float32 are at hand."""
    return Late("input", [], None, narrow)


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Mul": np.multiply,
    "AddV2": np.add,
    "Add": np.add,
    "Sub": np.subtract,
    "RealDiv": np.true_divide,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "ClipByValue": np.clip,
}


def of(op: tf.Operation, arguments: list[Any], narrow: tf.Tensor | None = None) -> Late:
    """An operation of a graph as a late one.

    Raises:
      lite_operations.UnconvertibleError: If it is not one of a few.
    """
    (output,) = op.outputs
    if op.type in _ARITHMETIC:
        return Late(op.type, arguments, _ARITHMETIC[op.type], narrow)
    if op.type == "Cast":
        dtype = output.dtype.as_numpy_dtype
        return Late(op.type, arguments, lambda value: value.astype(dtype), narrow)
    if output.shape.is_fully_defined():
        shape = tuple(output.shape)
        if op.type in ("Reshape", "ExpandDims", "Squeeze"):
            return Late(op.type, arguments[:1], lambda value: np.reshape(value, shape), narrow)
        if op.type == "BroadcastTo":
            return Late(op.type, arguments[:1], lambda value: np.broadcast_to(value, shape), narrow)
    raise lite_operations.UnconvertibleError(
        f"it computes with float64 numbers ({op.type} {op.name!r})"
    )

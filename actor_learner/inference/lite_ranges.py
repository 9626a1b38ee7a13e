"""What range the integers of a graph lie in, where it is known beforehand.

Policies clip actions to the bounds of their spec several times over. A choice out of two lies
within them anyway, and TFLite takes as long to clip the integers of a thousand lanes as to compute
a layer of the network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

Range = tuple[int, int]  # The smallest and the largest value that is possible.

_CLIPPING = {"Minimum": min, "Maximum": max}
_MOVING = frozenset(
    {"Reshape", "Squeeze", "ExpandDims", "Transpose", "BroadcastTo", "StridedSlice"}
)
_SELECTING = frozenset({"Select", "SelectV2"})


class IntegerRanges:
    """The ranges of the tensors of one graph."""

    def __init__(self) -> None:
        self._known: dict[Any, Range] = {}

    def note(self, tensor: tf.Tensor, smallest: int, largest: int) -> None:
        """Takes in the range of a tensor of the new graph."""
        self._known[tensor.ref()] = (smallest, largest)

    def unclipped(self, op: tf.Operation, inputs: list[Any]) -> Any:
        """The input that an operation leaves as it is, or None.

        Args:
          op: Of the source graph.
          inputs: Its inputs in the new graph: tensors, arrays, or others.
        """
        if op.type not in _CLIPPING:
            return None
        for value, other in (inputs, inputs[::-1]):
            mine, others = self._of(value), self._of(other)
            if not isinstance(value, tf.Tensor) or mine is None or others is None:
                continue
            below = mine[1] <= others[0]
            above = mine[0] >= others[1]
            if (below if op.type == "Minimum" else above) and value.shape == op.outputs[0].shape:
                return value  # Which the other does not make larger, either.
        return None

    def follow(self, op: tf.Operation, inputs: list[Any], results: list[Any]) -> None:
        """Takes in what an operation makes of the ranges of its inputs."""
        if not op.outputs or not isinstance(results[0], tf.Tensor):
            return
        found = self._range_of(op, inputs)
        if found is not None:
            self.note(results[0], *found)

    def _range_of(self, op: tf.Operation, inputs: list[Any]) -> Range | None:
        """The range of the only output of an operation, if it is one of integers."""
        if not op.outputs[0].dtype.is_integer:
            return None
        if op.type == "ArgMax":
            axis, shape = tf.get_static_value(op.inputs[1]), op.inputs[0].shape
            size = None if axis is None or shape.rank is None else shape[int(axis)]
            return None if size is None else (0, size - 1)
        if op.type == "Cast":
            found = self._of(inputs[0])
            limits = np.iinfo(op.outputs[0].dtype.as_numpy_dtype)
            fits = found is not None and limits.min <= found[0] and found[1] <= limits.max
            return found if fits else None
        if op.type in _MOVING:
            return self._of(inputs[0])
        if op.type in _SELECTING:
            pair = [self._of(value) for value in inputs[1:]]
            if None in pair:
                return None
            return min(low for low, _ in pair), max(high for _, high in pair)
        if op.type in _CLIPPING:
            pair = [self._of(value) for value in inputs]
            choose = _CLIPPING[op.type]
            if None in pair:
                return None
            return choose(low for low, _ in pair), choose(high for _, high in pair)
        return None

    def _of(self, value: Any) -> Range | None:
        if isinstance(value, tf.Tensor):
            return self._known.get(value.ref())
        if isinstance(value, np.ndarray) and value.size and np.issubdtype(value.dtype, np.integer):
            return int(value.min()), int(value.max())
        return None

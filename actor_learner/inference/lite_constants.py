"""Makes constants of some inputs of a TFLite model, for a model that runs twice as fast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

_ALIGNMENT = 64
_UNKNOWN = 2**32  # Any offset but 0, which would be left out.


class ConstantsModel:
    """A model that is a function of fewer inputs than another, the rest of them being constants.

    TFLite's quick kernels (XNNPACK) take matrices and filters only as constants, whose packing they
    do once. The operations are those of the other model, and tensors keep their indices.

    Args:
      model: The other model.
      indices: Of the inputs that become constants; all hold float32.
    """

    def __init__(self, model: bytes, indices: Sequence[int]) -> None:
        self._indices = list(indices)
        changed = flatbuffer_utils.convert_bytearray_to_object(bytearray(model))
        (graph,) = changed.subgraphs
        graph.inputs = [index for index in graph.inputs if index not in self._indices]
        changed.signatureDefs = []  # Which name the inputs once more, for nobody.
        buffers = []
        for index in self._indices:
            tensor, buffer = graph.tensors[index], schema.BufferT()
            tensor.buffer = len(changed.buffers)
            changed.buffers.append(buffer)
            buffer.size = 4 * int(np.prod(tensor.shape))
            buffer.offset = _UNKNOWN
            buffers.append(buffer)
        # Values follow behind the description, whose length does not depend on what it says of
        # them. So a model with other values takes no more than writing them there.
        end = _aligned(len(flatbuffer_utils.convert_object_to_bytearray(changed)))
        for buffer in buffers:
            buffer.offset = end
            end = _aligned(end + buffer.size)
        self._content = np.zeros(end, np.uint8)
        head = flatbuffer_utils.convert_object_to_bytearray(changed)
        self._content[: len(head)] = np.frombuffer(head, np.uint8)
        self._values = [
            self._content[each.offset : each.offset + each.size]
            .view(np.float32)
            .reshape(graph.tensors[index].shape)
            for index, each in zip(self._indices, buffers)
        ]

    def interpreter(self, values: tf.lite.Interpreter) -> tf.lite.Interpreter:
        """An interpreter with the values that the other model's has now for the constants."""
        for index, value in zip(self._indices, self._values):
            value[...] = values.get_tensor(index)
        interpreter = tf.lite.Interpreter(model_content=self._content.tobytes(), num_threads=1)
        interpreter.allocate_tensors()
        return interpreter


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT

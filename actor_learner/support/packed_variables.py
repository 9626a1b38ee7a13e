"""Reads many variables by one TensorFlow call, which makes one tensor for all of them.

On Python 3.11 every eager tensor loses some bytes for ever (see `counters`), and policies are read
in every turn of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner.support import counters, graph_call


class PackedVariables:
    """Some variables, and how to read them together.

    Args:
      variables: Of any shapes and types. Those that may change their shape, that live in several
        replicas, or whose values are not numbers are read one by one.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._variables = list(variables)
        numbers = [n for n, variable in enumerate(self._variables) if _can_be_packed(variable)]
        # The larger the numbers of a variable, the nearer to the front: all are aligned.
        numbers.sort(key=lambda n: -self._variables[n].dtype.size)
        self._call: graph_call.GraphCall | None = None
        self._parts: list[tuple[int, slice, Any, tuple[int, ...]]] = []
        if len(numbers) < 2:  # One is read faster by itself.
            return
        packed = [self._variables[n] for n in numbers]
        end = 0
        for number, variable in zip(numbers, packed):
            shape = tuple(variable.shape)
            begin, end = end, end + int(np.prod(shape)) * variable.dtype.size
            part = slice(begin, end)
            self._parts.append((number, part, variable.dtype.as_numpy_dtype, shape))
        with tf.init_scope():
            fn = tf.function(lambda: _bytes_of(packed), autograph=False)
            self._call = graph_call.GraphCall(fn.get_concrete_function())

    def read(self) -> list[np.ndarray]:
        """The values now, in the order of the variables; read-only, and not to be kept for long.

        They may share the memory of one another, and of variables.
        """
        values: list[Any] = [None] * len(self._variables)
        if self._call is not None:
            everything = np.asarray(self._call())
            for number, part, dtype, shape in self._parts:
                values[number] = everything[part].view(dtype).reshape(shape)
        return [
            np.asarray(counters.read(variable)) if value is None else value
            for variable, value in zip(self._variables, values)
        ]


def _can_be_packed(variable: tf.Variable) -> bool:
    try:
        handle = variable.handle
    except (AttributeError, ValueError):  # It has several, or none.
        return False
    dtype = variable.dtype
    return (
        handle is not None
        and variable.shape.is_fully_defined()
        and (dtype.is_floating or dtype.is_integer)
    )


def _bytes_of(variables: Sequence[tf.Variable]) -> tf.Tensor:
    flat = [tf.reshape(variable.read_value(), [-1]) for variable in variables]
    return tf.concat([tf.reshape(tf.bitcast(each, tf.uint8), [-1]) for each in flat], axis=0)

"""Calls a TensorFlow graph, again and again, with as little as possible around it."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

# Not public. What `ConcreteFunction.__call__` does besides calling this (binding arguments,
# comparing types, looking for gradient tapes) takes 60 to 80 microseconds, as long as some of our
# graphs themselves, and cannot find anything new in inputs that always have the same types.
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function

from actor_learner.support import nest_access


class GraphCall:
    """A concrete function, called from Python with tensors that are known to fit.

    ```python
    call = GraphCall(tf.function(fn).get_concrete_function(tf.TensorSpec([], tf.int64)))
    losses = call(count)  # As fn returns them.
    ```

    Gradients are not recorded. Errors are those that the function itself would raise.

    Args:
      function: Takes tensors as positional arguments, in the order of its signature.
    """

    def __init__(self, function: Any) -> None:
        self._function = function  # The graph lives as long as this does.
        self._graph = function.inference_fn
        self._name = self._graph.name
        self._captured = list(function.captured_inputs)
        self._num_outputs = len(self._graph.function_type.flat_outputs)
        self._pack = _packer(function, self._num_outputs)
        self._context = context.context()

    def __call__(self, *inputs: tf.Tensor) -> Any:
        try:
            outputs = self._context.call_function(
                self._name, [*inputs, *self._captured], self._num_outputs
            )
        except tf.errors.OpError:
            with atomic_function.InterpolateRuntimeError(self._graph):
                raise  # With the lines of code that the failed operations come from.
        return self._pack(outputs or [])


def _packer(function: Any, num_outputs: int) -> Callable[[list[tf.Tensor]], Any]:
    """What packs outputs as the function returns them.

    TensorFlow's own looks at every output's type again, which takes 20 microseconds of a loss with
    a few parts; it is needed where something else than tensors is returned.
    """
    leaves = tf.nest.flatten(function.structured_outputs)
    if len(leaves) == num_outputs and all(isinstance(leaf, tf.Tensor) for leaf in leaves):
        return nest_access.packer(function.structured_outputs)
    return function.inference_fn.function_type.pack_output

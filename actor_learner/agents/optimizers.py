"""The Adam that our agents learn with: the same numbers by fewer operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


class Adam(tf.keras.optimizers.legacy.Adam):
    """Keras' older Adam; each gradient is first scaled down to `clip_norm` if its norm is larger.

    It updates a variable by one operation, where Keras' newer one needs two dozen, and it clips as
    an agent's `gradient_clipping` would, by two operations per variable instead of ten. The train
    step of a small network is little else but operations that have to be started. See
    `tensorflow_threads`: the update wants one thread per operation.

    Args:
      learning_rate: A number, or a schedule of Keras.
      clip_norm: Largest norm of the gradient of one variable; None clips nothing.
      **kwargs: Of Keras' `legacy.Adam`.
    """

    def __init__(self, learning_rate: Any, clip_norm: float | None = None, **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self._clip_norm = clip_norm

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, tf.Variable]], *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)
        if self._clip_norm is not None:
            clipped = clip_by_norms([gradient for gradient, _ in pairs], self._clip_norm)
            pairs = [(gradient, variable) for gradient, (_, variable) in zip(clipped, pairs)]
        return super().apply_gradients(pairs, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "clip_norm": self._clip_norm}


def clip_by_norms(gradients: list[Any], clip_norm: float) -> list[Any]:
    """Scales each gradient whose norm is above `clip_norm` down to it; None stays None.

    Gradients by rows, as of an embedding, are clipped by the norm of their rows.
    """
    values = [_values(gradient) for gradient in gradients if gradient is not None]
    if not values:
        return list(gradients)
    # What is done to the norms is done to all of them at once.
    squares = 2.0 * tf.stack([tf.nn.l2_loss(value) for value in values])
    scales = iter(tf.unstack(clip_norm / tf.maximum(tf.sqrt(squares), clip_norm)))
    return [None if gradient is None else _scaled(gradient, next(scales)) for gradient in gradients]


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _scaled(gradient: Any, scale: tf.Tensor) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
    return gradient * scale

"""The optimizers that our agents learn with: finite gradients only, by few operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from actor_learner.support import write_order


class _FiniteGradients:
    """Mixin for Keras' older optimizers: applies all gradients of a call, or none and raises.

    A gradient whose square is not finite counts as not finite: Adam and RMSprop keep squares.
    """

    _clip_norm: float | None = None

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, tf.Variable]], *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)
        with write_order.checks_come_first(gradients=True):
            gradients = checked([gradient for gradient, _ in pairs], _name(pairs), self._clip_norm)
            pairs = [(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)]
            return super().apply_gradients(pairs, *args, **kwargs)


class Adam(_FiniteGradients, tf.keras.optimizers.legacy.Adam):
    """Keras' older Adam; each gradient is first scaled down to `clip_norm` if its norm is larger.

    It updates a variable by one operation, where Keras' newer one needs two dozen, and it clips as
    an agent's `gradient_clipping` would, by two operations per variable instead of ten. The train
    step of a small network is little else but operations that have to be started. See
    `tensorflow_threads`: the update wants one thread per operation.

    Gradients that are not finite raise `tf.errors.InvalidArgumentError`, and none is applied.

    Args:
      learning_rate: A number, or a schedule of Keras.
      clip_norm: Largest norm of the gradient of one variable; None clips nothing.
      **kwargs: Of Keras' `legacy.Adam`.
    """

    def __init__(self, learning_rate: Any, clip_norm: float | None = None, **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self._clip_norm = clip_norm

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "clip_norm": self._clip_norm}


class RMSprop(_FiniteGradients, tf.keras.optimizers.legacy.RMSprop):
    """Keras' older RMSprop, which refuses gradients that are not finite as `Adam` does."""


def checked(gradients: list[Any], name: str, clip_norm: float | None = None) -> list[Any]:
    """The gradients, checked to be finite and clipped; None stays None.

    Where they are traced, whoever applies them must wait for the check (`write_order`), unless they
    are clipped.

    Args:
      gradients: Of one loss.
      name: What is said not to be finite.
      clip_norm: Scales each gradient whose norm is above this down to it; None clips nothing.
        Gradients by rows, as of an embedding, are clipped by the norm of their rows.
    """
    values = [_values(gradient) for gradient in gradients if gradient is not None]
    if not values:
        return list(gradients)
    # What is done to the norms is done to all of them at once.
    squares = 2.0 * tf.stack([tf.cast(tf.nn.l2_loss(value), tf.float32) for value in values])
    squares = tf.debugging.check_numerics(squares, name)
    if clip_norm is None:
        return list(gradients)
    scales = iter(tf.unstack(clip_norm / tf.maximum(tf.sqrt(squares), clip_norm)))
    return [None if gradient is None else _scaled(gradient, next(scales)) for gradient in gradients]


def _name(pairs: list[tuple[Any, tf.Variable]]) -> str:
    network = pairs[0][1].name.split("/")[0].split(":")[0] if pairs else "nothing"
    return f"the gradient of {network}"


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _scaled(gradient: Any, scale: tf.Tensor) -> Any:
    scale = tf.cast(scale, _values(gradient).dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
    return gradient * scale

"""The optimizers that our agents learn with: finite gradients only, by few operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from actor_learner import batch_notes
from actor_learner.support import replicas, write_order


class _FiniteGradients:
    """Mixin for Keras' older optimizers: applies all gradients of a call, or none and raises.

    A gradient whose square is not finite counts as not finite: Adam and RMSprop keep squares.
    """

    _clip_norm: float | None = None
    _gauge: str | None = None

    _only_if: tf.Tensor | None = None

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, tf.Variable]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
        only_if: tf.Tensor | None = None,
    ) -> Any:
        """Applies gradients, of several replicas the sum of them.

        Args:
          grads_and_vars: Pairs.
          name: Of the operation.
          experimental_aggregate_gradients: Whether they have yet to be added up over replicas, as
            Keras calls it.
          only_if: A boolean scalar, the same on all replicas: else nothing is applied.
        """
        pairs = list(grads_and_vars)
        if replicas.in_group():
            pairs.sort(key=lambda pair: replicas.order_of_creation(pair[1]))
        gradients = [gradient for gradient, _ in pairs]
        with write_order.checks_come_first(gradients=True):
            if experimental_aggregate_gradients:
                gradients = replicas.reduced(gradients)
            gradients = checked(gradients, _name(pairs), self._clip_norm, self._gauge)
            pairs = [(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)]
            self._only_if = only_if
            try:
                return super().apply_gradients(pairs, name, experimental_aggregate_gradients=False)
            finally:
                self._only_if = None

    def _distributed_apply(self, *args: Any, **kwargs: Any) -> Any:
        # Called outside of replicas, where alone one may write within a branch.
        if self._only_if is None:
            return super()._distributed_apply(*args, **kwargs)

        def apply() -> tf.Operation:
            return tf.group(super(_FiniteGradients, self)._distributed_apply(*args, **kwargs))

        return tf.cond(self._only_if, apply, tf.no_op)


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
      gauge: What lines of metrics call the norm of all gradients together, before any is clipped;
        None leaves it out.
      **kwargs: Of Keras' `legacy.Adam`.
    """

    def __init__(
        self,
        learning_rate: Any,
        clip_norm: float | None = None,
        gauge: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        self._clip_norm = clip_norm
        self._gauge = gauge

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "clip_norm": self._clip_norm, "gauge": self._gauge}


class RMSprop(_FiniteGradients, tf.keras.optimizers.legacy.RMSprop):
    """Keras' older RMSprop, which refuses gradients that are not finite as `Adam` does."""


def add_up(optimizer: Any) -> bool:
    """Whether it adds gradients up over several learners (`replicas.Group`)."""
    return isinstance(optimizer, _FiniteGradients)


def apply_when(
    due: tf.Tensor,
    optimizer: Any,
    gradients: Callable[[], list[Any]],
    variables: list[tf.Variable],
) -> None:
    """Applies gradients in some train steps only; in the others they are not computed.

    Several replicas have to compute them in any case: they cannot add them up within a branch.

    Args:
      due: A boolean scalar, the same on all replicas.
      optimizer: `Adam` or `RMSprop`.
      gradients: Computes the gradients.
      variables: What they are applied to.
    """

    def apply() -> tf.Operation:
        optimizer.apply_gradients(zip(gradients(), variables))
        return tf.no_op()

    if replicas.count() == 1:
        tf.cond(due, apply, tf.no_op)
    else:
        optimizer.apply_gradients(zip(gradients(), variables), only_if=due)


def checked(
    gradients: list[Any], name: str, clip_norm: float | None = None, gauge: str | None = None
) -> list[Any]:
    """The gradients, checked to be finite and clipped; None stays None.

    Where they are traced, whoever applies them must wait for the check (`write_order`), unless they
    are clipped.

    Args:
      gradients: Of one loss.
      name: What is said not to be finite.
      clip_norm: Scales each gradient whose norm is above this down to it; None clips nothing.
        Gradients by rows, as of an embedding, are clipped by the norm of their rows.
      gauge: As of `Adam`.
    """
    values = [_values(gradient) for gradient in gradients if gradient is not None]
    if not values:
        return list(gradients)
    # What is done to the norms is done to all of them at once.
    squares = 2.0 * tf.stack([tf.cast(tf.nn.l2_loss(value), tf.float32) for value in values])
    if gauge is not None:
        batch_notes.gauge(gauge, squares, reduce=lambda squares: np.sqrt(squares.sum()))
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

"""The range of a continuous action, and the way between it and [-1, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec

LARGEST_HALF_RANGE = 1e6
"""An element of an action with a wider range counts as one without bounds."""


class ActionRange:
    """Maps one continuous action between its bounds and [-1, 1], element by element.

    In [-1, 1] an action is a float32 vector, whatever its shape and dtype in the environment. All
    arithmetic is done in the environment's dtype: rounded to float32, a bound of float64 could lie
    outside the range. An element without bounds keeps its units.

    Args:
      spec: A float tensor spec, with or without bounds, which may differ between elements.

    Attributes:
      spec: As given.
      size: Number of elements.
      half_range: `[size]`, what one unit of [-1, 1] is in the environment's units.
    """

    def __init__(self, spec: tensor_spec.TensorSpec) -> None:
        self.spec = spec
        self.size: int = spec.shape.num_elements()
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        if isinstance(spec, tensor_spec.BoundedTensorSpec):
            low, high = (
                np.broadcast_to(bound, spec.shape).reshape(self.size).astype(np.float64)
                for bound in (spec.minimum, spec.maximum)
            )
        half_range = high / 2 - low / 2
        is_bounded = half_range < LARGEST_HALF_RANGE  # False for infinities.
        dtype = spec.dtype.as_numpy_dtype
        self._low, self._high = low.astype(dtype), high.astype(dtype)
        centre = low + np.where(is_bounded, half_range, 0.0)
        self._centre = np.where(is_bounded, centre, 0.0).astype(dtype)
        self.half_range = np.where(is_bounded, half_range, 1.0).astype(dtype)

    @property
    def normalized_spec(self) -> tensor_spec.BoundedTensorSpec:
        """Spec of the action in [-1, 1]: a float32 vector."""
        return tensor_spec.BoundedTensorSpec(
            [self.size], tf.float32, -1.0, 1.0, self.spec.name or "action"
        )

    def to_environment(self, normalized: tf.Tensor) -> tf.Tensor:
        """Turns `[batch, size]` into actions `[batch, *shape]`, clipped to their bounds."""
        action = tf.cast(normalized, self.spec.dtype)
        if (self.half_range != 1).any():
            action *= self.half_range
        if self._centre.any():
            action += self._centre
        action = tf.clip_by_value(action, self._low, self._high)
        return tf.reshape(action, [-1, *self.spec.shape])

    def to_normalized(self, action: tf.Tensor) -> tf.Tensor:
        """Turns `[..., *shape]` into `[..., size]`; actions outside the bounds stay outside.

        An element that has but one value becomes 0.
        """
        rank = self.spec.shape.rank
        if rank != 1:
            outer = tf.shape(action)[: action.shape.rank - rank]
            static = action.shape[: action.shape.rank - rank].concatenate([self.size])
            action = tf.reshape(action, tf.concat([outer, [self.size]], axis=0))
            action = tf.ensure_shape(action, static)
        if self._centre.any():
            action -= self._centre
        if (self.half_range != 1).any():
            action = tf.math.divide_no_nan(action, self.half_range)
        return tf.cast(action, tf.float32)


def of(action_spec: Any) -> ActionRange:
    """The range of the only leaf of an action spec."""
    (leaf,) = tf.nest.flatten(action_spec)
    return ActionRange(leaf)

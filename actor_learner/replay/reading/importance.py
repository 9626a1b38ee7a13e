"""Importance weights: what makes up for sampling some transitions more often than others."""

from __future__ import annotations

import dataclasses
from typing import Any

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner.support import errors


def importance_weights(probability: tf.Tensor, exponent: tf.Tensor | float) -> tf.Tensor:
    """`(1 / probability) ** exponent`, scaled so that the largest weight of the batch is 1.

    The number of items, by which the probabilities are often multiplied first, cancels out in the
    scaling. An exponent of 0 corrects nothing, 1 corrects fully.

    Args:
      probability: `[batch]`, the probabilities with which the items were drawn, all above 0.
      exponent: Scalar.

    Returns:
      float32 `[batch]`, in (0, 1].
    """
    logarithm = tf.math.log(tf.cast(probability, tf.float64))
    below_largest = tf.reduce_min(logarithm) - logarithm
    return tf.cast(tf.exp(tf.cast(exponent, tf.float64) * below_largest), tf.float32)


def unscaled_weights(
    probability: tf.Tensor, table_size: tf.Tensor, exponent: tf.Tensor | float
) -> tf.Tensor:
    """`(1 / (N p)) ** exponent`: 1 for items that are as likely as in a uniform draw.

    Args:
      probability: `[batch]`, p, all above 0.
      table_size: `[batch]`, N, the items of the table that each was drawn from.
      exponent: Scalar.

    Returns:
      float64 `[batch]`.
    """
    relative = tf.cast(probability, tf.float64) * tf.cast(table_size, tf.float64)
    return tf.pow(relative, -tf.cast(exponent, tf.float64))


def weighted_batch(
    experience: Any, info: reverb.SampleInfo, version: tf.Tensor, exponent: tf.Tensor | float
) -> tuple[dict[str, Any], experience_lib.SampleInfo]:
    """A batch of sampled items, leaves `[batch, ...]`, with importance weights of an exponent."""
    weights = importance_weights(info.probability, exponent)
    return {"experience": experience, "weights": weights}, experience_lib.SampleInfo(
        key=info.key,
        probability=info.probability,
        table_size=info.table_size,
        priority=info.priority,
        version=version,
        weight=unscaled_weights(info.probability, info.table_size, exponent),
        shard=getattr(info, "shard", ()),
    )


@dataclasses.dataclass(frozen=True)
class ImportanceSchedule:
    """An exponent that goes from `start` to `end` over `num_steps` train steps, and stays there.

    Raises:
      errors.ConfigError: If an exponent is negative or there is no step.
    """

    start: float
    end: float
    num_steps: int

    def __post_init__(self) -> None:
        if min(self.start, self.end) < 0:
            raise errors.ConfigError(
                f"importance exponents must be 0 or more, got {self.start} to {self.end}"
            )
        if self.num_steps < 1:
            raise errors.ConfigError(
                f"an importance exponent needs at least one step to change, got {self.num_steps}"
            )

    @property
    def constant(self) -> bool:
        return self.start == self.end

    def exponent(self, train_step: tf.Tensor | tf.Variable) -> tf.Tensor:
        """The exponent at a train step; inside a graph it is computed on each run."""
        progress = tf.minimum(tf.cast(train_step, tf.float64) / float(self.num_steps), 1.0)
        return self.start + (self.end - self.start) * progress

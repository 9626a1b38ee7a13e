"""PPO's loss of one minibatch: a clipped surrogate, values, entropy, and the distance moved."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from actor_learner.support import errors, replicas


class Frames(NamedTuple):
    """What is known of frames before the epochs begin; every leaf is float32, of one shape.

    Attributes:
      log_probability: Of the action, under the policy that acted.
      advantage: Of the action.
      value_target: What the value should be.
      value: What the value was.
      mask: 1 for frames that count, 0 for boundary rows.
    """

    log_probability: tf.Tensor
    advantage: tf.Tensor
    value_target: tf.Tensor
    value: tf.Tensor
    mask: tf.Tensor


class PPOLossInfo(NamedTuple):
    """Scalars that describe one minibatch, or their means over several.

    Attributes:
      policy_loss: The surrogate's, without entropy and penalty.
      value_loss: Mean squared error of the values.
      entropy: Mean entropy of the policy.
      kl: Mean KL divergence from the policy that acted to the current one, estimated from the
        actions taken.
      clip_fraction: Share of the frames whose ratio lies outside the clip range.
      explained_variance: Share of the variance of the value targets that the values explain; 1 at
        best, 0 if they are no better than a constant, or the targets are one.
      gradient_norm: Norm of the gradient before it is clipped; 0 where none was computed.
    """

    policy_loss: tf.Tensor
    value_loss: tf.Tensor
    entropy: tf.Tensor
    kl: tf.Tensor
    clip_fraction: tf.Tensor
    explained_variance: tf.Tensor
    gradient_norm: tf.Tensor


@dataclasses.dataclass(frozen=True)
class PPOLoss:
    """The weights of the loss, and the loss.

    Attributes:
      clip_ratio: Ratios of probabilities count up to 1 +- this; None clips nothing, for the
        KL penalty alone.
      value_clip: Values count as moved by at most this in one train step; None clips nothing.
      value_weight: Weight of the squared error of the values.
      entropy_weight: Weight of the entropy that is rewarded.
      normalize_advantages: Give the advantages of each minibatch mean 0 and variance 1.
    """

    clip_ratio: float | None = 0.2
    value_clip: float | None = None
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    normalize_advantages: bool = True

    def __post_init__(self) -> None:
        for name in ("clip_ratio", "value_clip"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise errors.ConfigError(f"ppo.{name} must be above 0 or None, got {value}")
        for name in ("value_weight", "entropy_weight"):
            if getattr(self, name) < 0:
                raise errors.ConfigError(
                    f"ppo.{name} must be at least 0, got {getattr(self, name)}"
                )

    def __call__(
        self,
        frames: Frames,
        log_probability: tf.Tensor,
        entropy: tf.Tensor,
        value: tf.Tensor,
        kl_weight: tf.Tensor | None = None,
        masked: bool = False,
    ) -> tuple[tf.Tensor, PPOLossInfo]:
        """The loss to minimise, a scalar, and what it is made of.

        Of a minibatch that several replicas have parts of, each gets its shares of them.

        Args:
          frames: Leaves of one shape.
          log_probability: Of the same actions under the current policy.
          entropy: Of the current policy.
          value: Under the current weights.
          kl_weight: Weight of the KL penalty; None for none.
          masked: Leave out the frames whose mask is 0. Else all must be 1, which is cheaper.
        """
        if masked or replicas.are_several():
            count = replicas.loss_divisor(tf.reduce_sum(frames.mask))

            def mean(x: tf.Tensor) -> tf.Tensor:
                return tf.reduce_sum(frames.mask * x) / count
        else:
            mean = tf.reduce_mean

        def whole_mean(*values: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return replicas.whole(tuple(map(mean, values)))

        advantage, target = frames.advantage, frames.value_target
        value_error = tf.math.squared_difference(value, target)
        mean_advantage, mean_target, mean_square = whole_mean(advantage, target, tf.square(target))
        centred = advantage - mean_advantage
        variance_of_advantage, variance, unexplained = whole_mean(
            tf.square(centred), tf.math.squared_difference(target, mean_target), value_error
        )
        if self.normalize_advantages:
            advantage = centred * tf.math.rsqrt(variance_of_advantage + 1e-8)
        log_ratio = log_probability - frames.log_probability
        ratio = tf.exp(log_ratio)
        surrogate = ratio * advantage
        clip_fraction = tf.zeros([])
        if self.clip_ratio is not None:
            clipped = tf.clip_by_value(ratio, 1.0 - self.clip_ratio, 1.0 + self.clip_ratio)
            surrogate = tf.minimum(surrogate, clipped * advantage)
            clip_fraction = mean(tf.cast(tf.not_equal(ratio, clipped), tf.float32))
        explained = 1.0 - tf.math.divide_no_nan(unexplained, variance)
        # Of constant targets, all but for rounding, there is nothing to explain.
        explained = tf.where(variance > 1e-12 * mean_square, explained, 0.0)
        if self.value_clip is not None:
            moved = tf.clip_by_value(value - frames.value, -self.value_clip, self.value_clip)
            clipped_error = tf.math.squared_difference(frames.value + moved, frames.value_target)
            value_error = tf.maximum(value_error, clipped_error)
        info = PPOLossInfo(
            policy_loss=-mean(surrogate),
            value_loss=mean(value_error),
            entropy=mean(entropy),
            # Of all estimators of the KL with this expectation the one that is never negative; the
            # expectation of its gradient is the gradient of the KL.
            kl=mean(ratio - 1.0 - log_ratio),
            clip_fraction=clip_fraction,
            explained_variance=replicas.share(tf.stop_gradient(explained)),
            gradient_norm=tf.zeros([]),
        )
        loss = info.policy_loss + self.value_weight * info.value_loss
        if self.entropy_weight:
            loss -= self.entropy_weight * info.entropy
        if kl_weight is not None:
            loss += kl_weight * info.kl
        return loss, info

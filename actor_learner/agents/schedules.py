"""Values that change as training goes on, read inside compiled graphs without retracing."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf
from tf_agents.policies import tf_policy

from actor_learner.support import errors


def linear(step: tf.Variable, start: float, end: float, num_steps: int) -> Callable[[], tf.Tensor]:
    """A value that goes from `start` to `end` in `num_steps` of `step`, and stays there.

    Returns:
      A callable giving the value as a float32 scalar; inside a graph it reads `step` on each run.
    """
    if num_steps < 1:
        raise errors.ConfigError(f"a schedule needs at least one step, got {num_steps}")

    def value() -> tf.Tensor:
        progress = tf.minimum(tf.cast(step, tf.float32) / float(num_steps), 1.0)
        return start + (end - start) * progress

    return value


def track(policy: tf_policy.TFPolicy, step: tf.Variable) -> None:
    """Lets `policy` be exported although a schedule inside it reads `step`.

    A SavedModel holds the variables that are attributes of its objects; one that only a closure
    refers to would be missing.
    """
    policy.schedule_step = step

"""Generalized advantage estimation over unrolls that episodes end in."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib


class Advantages(NamedTuple):
    """What the rows of an unroll are worth; every leaf is float32 `[batch, T]`.

    Attributes:
      advantage: How much better each action was than the policy's mean; 0 in boundary rows.
      value_target: `advantage + value`, the lambda-return that the value should be.
      mask: 1 for steps, 0 for boundary rows, which are no steps.
    """

    advantage: tf.Tensor
    value_target: tf.Tensor
    mask: tf.Tensor


def advantages(
    trajectory: trajectory_lib.Trajectory,
    reward: tf.Tensor,
    value: tf.Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> Advantages:
    """Advantages of the first T rows of an unroll.

    The row after a step always holds the observation that the step led to, the true final one at
    the end of an episode. So each step's error is

        delta_t = r_t + gamma * d_t * V_{t+1} - V_t

    with the discount d of the environment, which is 0 where the episode terminated: there nothing
    is bootstrapped; where it was truncated, the value of the final observation is. Errors are then
    summed backwards, `A_t = delta_t + gamma * lambda * d_t * A_{t+1}`, and no sum crosses the end
    of an episode.

    Args:
      trajectory: Leaves `[batch, T + 1, ...]`; only step types and discounts are read.
      reward: `[batch, T + 1]`, the rewards to learn from; the last row is ignored.
      value: `[batch, T + 1]`, the values of the rows' observations.
      gamma: Discount factor.
      gae_lambda: 0 trusts the values after one step, 1 only the rewards up to the unroll's end.
    """
    mask = tf.cast(tf.not_equal(trajectory.step_type[:, :-1], ts.StepType.LAST), tf.float32)
    goes_on = tf.cast(tf.not_equal(trajectory.next_step_type[:, :-1], ts.StepType.LAST), tf.float32)
    discount = gamma * trajectory.discount[:, :-1]
    delta = mask * (reward[:, :-1] + discount * value[:, 1:] - value[:, :-1])
    advantage = backward_sums(delta, gae_lambda * discount * mask * goes_on)
    return Advantages(advantage, advantage + value[:, :-1], mask)


def backward_sums(term: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """Solves `s_t = term_t + decay_t * s_{t+1}` along the last axis, with nothing after its end.

    Doubles the number of terms that each sum covers until it covers all, so that T steps take
    about `log2(T)` rounds of a few operations instead of T.

    Args:
      term: `[batch, T]`.
      decay: `[batch, T]`; the last column does not matter.
    """
    length = tf.shape(term)[1]

    def shifted(x: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
        return tf.pad(x[:, by:], [[0, 0], [0, by]])

    def double(covered: tf.Tensor, total: tf.Tensor, factor: tf.Tensor) -> tuple[tf.Tensor, ...]:
        total = tf.ensure_shape(total + factor * shifted(total, covered), term.shape)
        factor = tf.ensure_shape(factor * shifted(factor, covered), decay.shape)
        return 2 * covered, total, factor

    _, total, _ = tf.while_loop(
        lambda covered, *_: covered < length, double, (tf.constant(1), term, decay)
    )
    return total

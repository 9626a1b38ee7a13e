"""n-step returns as one-step transitions: the arithmetic of windows that may end early."""

from __future__ import annotations

import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib


def valid_windows(step_type: tf.Tensor, next_step_type: tf.Tensor) -> tf.Tensor:
    """Which windows begin with a transition inside one episode.

    A window is invalid if its first step is LAST (the step to the next episode's FIRST), or if the
    second row does not continue the first (the environment was reset from outside in between).

    Args:
      step_type: `[batch, T]`.
      next_step_type: `[batch, T]`.

    Returns:
      Booleans `[batch]`.
    """
    return (step_type[:, 0] != ts.StepType.LAST) & (next_step_type[:, 0] == step_type[:, 1])


def fold(trajectory: trajectory_lib.Trajectory, gamma: float) -> trajectory_lib.Trajectory:
    """Turns windows of n + 1 steps into two-step trajectories that hold the n-step return.

    With r_k and d_k the reward and discount of step k, and m <= n the number of steps until the
    window or the episode ends, whichever comes first:

        reward   = r_0 + g d_0 r_1 + ... + g^(m-1) d_0 ... d_(m-2) r_(m-1)
        discount = g^(m-1) d_0 ... d_(m-1)

    and the second step is step m, so an agent that computes `reward + gamma * discount * V(next)`
    bootstraps with g^m from the right observation: the true final one where the episode was cut
    by a time limit (d = 1), none where it terminated (d = 0).

    Args:
      trajectory: Leaves `[batch, n + 1, ...]`; the first transition of each window is valid.
      gamma: The agent's discount factor.

    Returns:
      A trajectory with leaves `[batch, 2, ...]`; for n = 1 the same values as the input.
    """
    length = trajectory.step_type.shape[1]
    if length == 2:
        return trajectory
    reward, discount, last = n_step_return(
        trajectory.reward,
        trajectory.discount,
        trajectory.step_type,
        trajectory.next_step_type,
        gamma,
    )
    batch = tf.shape(last)[0]
    index = tf.stack([tf.zeros_like(last), last], axis=1)  # [batch, 2]

    def ends(leaf: tf.Tensor) -> tf.Tensor:
        picked = tf.gather(leaf, index, batch_dims=1)
        return tf.ensure_shape(picked, [leaf.shape[0], 2, *leaf.shape[2:]])

    folded = tf.nest.map_structure(ends, trajectory)
    second_type = folded.step_type[:, 1]
    padding = tf.zeros([batch], trajectory.reward.dtype)
    return folded._replace(
        next_step_type=tf.stack([second_type, folded.next_step_type[:, 1]], axis=1),
        reward=tf.stack([reward, padding], axis=1),
        discount=tf.stack([discount, tf.ones_like(discount)], axis=1),
    )


def n_step_return(
    reward: tf.Tensor,
    discount: tf.Tensor,
    step_type: tf.Tensor,
    next_step_type: tf.Tensor,
    gamma: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The sums of `fold`.

    Args:
      reward: `[batch, T]`, reward of the step that leaves each row.
      discount: `[batch, T]`.
      step_type: `[batch, T]`.
      next_step_type: `[batch, T]`.
      gamma: Discount factor.

    Returns:
      `(reward [batch], discount [batch], last [batch] int32)`, where `last` is the row reached.
    """
    steps = reward.shape[1] - 1
    total = reward[:, 0]
    product = discount[:, 0]
    last = tf.ones_like(step_type[:, 0])
    running = tf.ones_like(step_type[:, 0], dtype=tf.bool)
    for k in range(1, steps):
        # Row k continues the episode unless it is its last step, or the environment was reset
        # from outside before the row that would follow.
        running &= (step_type[:, k] != ts.StepType.LAST) & (
            next_step_type[:, k] == step_type[:, k + 1]
        )
        total += tf.where(running, gamma**k * product * reward[:, k], 0.0)
        product = tf.where(running, product * discount[:, k], product)
        last = tf.where(running, k + 1, last)
    exponent = tf.cast(last - 1, discount.dtype)
    return total, tf.pow(tf.cast(gamma, discount.dtype), exponent) * product, last

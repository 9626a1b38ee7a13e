"""V-trace: values and advantages of unrolls that an older policy acted out."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.agents.losses import gae


class VTrace(NamedTuple):
    """What the rows of an unroll are worth; every leaf is float32 `[batch, T]`, without gradient.

    Attributes:
      value_target: What the value of each row's observation should be; in boundary rows, what it
        is.
      advantage: Factor of the log-probability's gradient; 0 in boundary rows.
      importance: Probability of each action under the policy that learns, over that under the one
        that acted.
      mask: 1 for steps, 0 for boundary rows, which are no steps.
    """

    value_target: tf.Tensor
    advantage: tf.Tensor
    importance: tf.Tensor
    mask: tf.Tensor


def vtrace(
    *,
    behaviour_log_probability: tf.Tensor,
    target_log_probability: tf.Tensor,
    step_type: tf.Tensor,
    reward: tf.Tensor,
    discount: tf.Tensor,
    value: tf.Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    trace_lambda: float = 1.0,
) -> VTrace:
    """Corrects the returns of an unroll for the difference between two policies.

    With `w_t` the importance ratio, `rho_t = min(rho_bar, w_t)` and `c_t = lambda min(c_bar, w_t)`,

        delta_t = rho_t (r_t + d_t V_{t+1} - V_t)
        v_t = V_t + delta_t + d_t c_t (v_{t+1} - V_{t+1})
        advantage_t = rho_t (r_t + d_t v_{t+1} - V_t)

    backwards from `v_T = V_T`. The row after a step always holds the observation that the step led
    to, at an episode's end the true final one. That row is a boundary row: its action counts for
    nothing and its `v` is its `V`. So a step that truncates an episode bootstraps from the value
    of the final observation, one that terminates it, with `d_t = 0`, from nothing, and no sum
    crosses the end of an episode. If both policies are the same, `v` is the lambda-return.

    Args:
      behaviour_log_probability: `[batch, T]`, of the actions, under the policy that acted.
      target_log_probability: `[batch, T]`, under the policy that learns.
      step_type: `[batch, T]`; LAST marks boundary rows.
      reward: `[batch, T]`, that followed the actions.
      discount: `[batch, T]`, the discount factor times the environment's discount.
      value: `[batch, T + 1]`, of all rows' observations, the last one included.
      rho_bar: Bound of the importance ratio; a smaller one learns the values of a policy between
        the two.
      c_bar: Bound of the ratios by which later errors reach back.
      trace_lambda: Factor of all c; less than 1 trusts the values earlier.
    """
    importance = tf.exp(target_log_probability - behaviour_log_probability)
    mask = tf.cast(tf.not_equal(step_type, ts.StepType.LAST), tf.float32)
    rho = mask * tf.minimum(importance, rho_bar)
    c = mask * tf.minimum(importance, c_bar)
    value_now, value_next = value[:, :-1], value[:, 1:]
    delta = rho * (reward + discount * value_next - value_now)
    correction = gae.backward_sums(delta, trace_lambda * discount * c)
    value_target = value_now + correction
    next_target = tf.concat([value_target[:, 1:], value[:, -1:]], axis=1)
    advantage = rho * (reward + discount * next_target - value_now)
    return VTrace(*[tf.stop_gradient(leaf) for leaf in (value_target, advantage, importance, mask)])

"""Exploration noise for deterministic policies, drawn for each lane on its own.

TF-Agents' Gaussian and Ornstein-Uhlenbeck policies draw one noise vector per call, with which all
lanes of a batch would explore alike.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common


class GaussianNoisePolicy(tf_policy.TFPolicy):
    """Adds independent Gaussian noise to every lane's action and clips it to its bounds.

    Args:
      policy: A deterministic policy without state.
      stddev: Standard deviation of the noise, in the units of the policy's actions.
    """

    def __init__(self, policy: tf_policy.TFPolicy, stddev: float) -> None:
        super().__init__(policy.time_step_spec, policy.action_spec, clip=False)
        self._wrapped_policy = policy
        self._stddev = stddev

    def _variables(self) -> Any:
        return self._wrapped_policy.variables()

    def _action(self, time_step: ts.TimeStep, policy_state: Any, seed: Any) -> Any:
        del policy_state, seed
        action = self._wrapped_policy.action(time_step).action

        def disturb(leaf: tf.Tensor, spec: Any) -> tf.Tensor:
            noise = tf.random.normal(tf.shape(leaf), stddev=self._stddev, dtype=leaf.dtype)
            return common.clip_to_spec(leaf + noise, spec)

        disturbed = tf.nest.map_structure(disturb, action, self.action_spec)
        return policy_step.PolicyStep(disturbed, (), ())

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> Any:
        raise NotImplementedError("noisy actions have no distribution of their own; use action()")


class OrnsteinUhlenbeckPolicy(tf_policy.TFPolicy):
    """Adds noise that drifts back to zero, `x' = (1 - damping) x + stddev n`, one x per lane.

    The x is the policy's state, so that each lane starts its episodes with none.

    Args:
      policy: A deterministic policy without state.
      stddev: Standard deviation of the steps n, in the units of the policy's actions.
      damping: How fast the noise falls back to zero.
    """

    def __init__(self, policy: tf_policy.TFPolicy, stddev: float, damping: float) -> None:
        state_spec = tf.nest.map_structure(
            lambda spec: tensor_spec.TensorSpec(spec.shape, spec.dtype, "noise"), policy.action_spec
        )
        super().__init__(
            policy.time_step_spec, policy.action_spec, policy_state_spec=state_spec, clip=False
        )
        self._wrapped_policy = policy
        self._stddev = stddev
        self._damping = damping

    def _variables(self) -> Any:
        return self._wrapped_policy.variables()

    def _action(self, time_step: ts.TimeStep, policy_state: Any, seed: Any) -> Any:
        del seed
        action = self._wrapped_policy.action(time_step).action

        def drift(noise: tf.Tensor) -> tf.Tensor:
            step = tf.random.normal(tf.shape(noise), stddev=self._stddev, dtype=noise.dtype)
            return (1.0 - self._damping) * noise + step

        noise = tf.nest.map_structure(drift, policy_state)
        disturbed = tf.nest.map_structure(
            lambda leaf, extra, spec: common.clip_to_spec(leaf + extra, spec),
            action,
            noise,
            self.action_spec,
        )
        return policy_step.PolicyStep(disturbed, noise, ())

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> Any:
        raise NotImplementedError("noisy actions have no distribution of their own; use action()")

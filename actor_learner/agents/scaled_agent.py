"""Lets an agent that works with actions in [-1, 1] act and learn in an environment's own units.

Entropies, exploration noise, the inputs of critics and squared errors then mean the same whatever
the bounds of the actions are, and no algorithm has to know them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.agents import tf_agent
from tf_agents.distributions import utils as distribution_utils
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.agents import action_range, algorithm
from actor_learner.support import errors


def normalized_world(world: algorithm.World) -> algorithm.World:
    """The same world with its one continuous action as a float32 vector in [-1, 1]."""
    return dataclasses.replace(
        world, action_spec=action_range.of(world.action_spec).normalized_spec
    )


class ScaledAgent(tf_agent.TFAgent):
    """Trains an agent of a `normalized_world` on experience of the world itself.

    Policies return actions in the environment's units and dtype, within their bounds; `train` takes
    such actions. The agent inside never sees them.

    Args:
      agent: Learns from transitions, with actions in [-1, 1].
      action_spec: Of the environment: one bounded continuous action, or a nest with one leaf.
    """

    def __init__(self, agent: tf_agent.TFAgent, action_spec: Any) -> None:
        tf.Module.__init__(self, name="ScaledAgent")
        self._inner = agent
        self._range = action_range.of(action_spec)
        super().__init__(
            agent.time_step_spec,
            action_spec,
            ScaledPolicy(agent.policy, action_spec),
            ScaledPolicy(agent.collect_policy, action_spec),
            train_sequence_length=agent.train_sequence_length,
            train_step_counter=agent.train_step_counter,
        )

    @property
    def inner(self) -> tf_agent.TFAgent:
        """The agent that works in [-1, 1]."""
        return self._inner

    def _initialize(self) -> None:
        self._inner.initialize()

    def _train(
        self, experience: trajectory_lib.Trajectory, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        return self._inner.train(self._normalized(experience), weights=weights)

    def _loss(
        self,
        experience: trajectory_lib.Trajectory,
        weights: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        return self._inner.loss(self._normalized(experience), weights=weights, training=training)

    def _normalized(self, experience: trajectory_lib.Trajectory) -> trajectory_lib.Trajectory:
        (action,) = tf.nest.flatten(experience.action)
        return experience._replace(action=self._range.to_normalized(action))


class ScaledPolicy(tf_policy.TFPolicy):
    """Acts like a policy whose actions lie in [-1, 1], in the environment's units.

    Args:
      policy: Its actions are float32 vectors in [-1, 1].
      action_spec: Of the environment: one bounded continuous action, or a nest with one leaf.
    """

    def __init__(self, policy: tf_policy.TFPolicy, action_spec: Any) -> None:
        super().__init__(
            policy.time_step_spec,
            action_spec,
            policy_state_spec=policy.policy_state_spec,
            info_spec=policy.info_spec,
            clip=False,  # Actions are within their bounds.
        )
        self._wrapped_policy = policy
        self._range = action_range.of(action_spec)

    @property
    def wrapped_policy(self) -> tf_policy.TFPolicy:
        return self._wrapped_policy

    def _variables(self) -> Any:
        return self._wrapped_policy.variables()

    def _get_initial_state(self, batch_size: int | None) -> Any:
        return self._wrapped_policy.get_initial_state(batch_size)

    def _action(self, time_step: ts.TimeStep, policy_state: Any, seed: Any) -> Any:
        step = self._wrapped_policy.action(time_step, policy_state, seed)
        return step._replace(action=self._packed(self._range.to_environment(step.action)))

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> policy_step.PolicyStep:
        step = self._wrapped_policy.distribution(time_step, policy_state)
        return step._replace(action=self._packed(self._scaled(step.action)))

    def _packed(self, leaf: Any) -> Any:
        return tf.nest.pack_sequence_as(self.action_spec, [leaf])

    def _scaled(self, distribution: tfp.distributions.Distribution) -> Any:
        """The distribution in the environment's units, of the same class where there is one.

        An exported policy is loaded only where the classes of its distributions are known.
        """
        if isinstance(distribution, tfp.distributions.Deterministic):
            return tfp.distributions.Deterministic(self._range.to_environment(distribution.loc))
        if isinstance(distribution, distribution_utils.SquashToSpecNormal):
            if self._range.spec.dtype == tf.float32 and self._range.spec.shape.rank == 1:
                return distribution_utils.SquashToSpecNormal(
                    distribution.input_distribution, self._range.spec
                )
            return _Scaled(distribution, self._range)
        raise errors.SpecMismatchError(
            f"a {type(distribution).__name__} cannot be scaled to the bounds of {self._range.spec}"
        )


class _Scaled(tfp.distributions.Distribution):
    """A distribution over vectors in [-1, 1] as one over actions of any shape and dtype.

    TF-Agents' `SquashToSpecNormal` knows float32 vectors only.
    """

    def __init__(
        self, distribution: tfp.distributions.Distribution, scale: action_range.ActionRange
    ) -> None:
        self._inner = distribution
        self._range = scale
        super().__init__(
            dtype=scale.spec.dtype,
            reparameterization_type=distribution.reparameterization_type,
            validate_args=False,
            allow_nan_stats=distribution.allow_nan_stats,
            name="Scaled",
        )

    def _batch_shape(self) -> tf.TensorShape:
        return self._inner.batch_shape

    def _batch_shape_tensor(self, **kwargs: Any) -> tf.Tensor:
        return self._inner.batch_shape_tensor()

    def _event_shape(self) -> tf.TensorShape:
        return self._range.spec.shape

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant(self._range.spec.shape.as_list(), tf.int32)

    def _sample_n(self, n: Any, seed: Any = None, **kwargs: Any) -> tf.Tensor:
        drawn = self._inner.sample(n, seed=seed)  # [n, batch, size]
        outer = tf.shape(drawn)[:-1]
        flat = self._range.to_environment(tf.reshape(drawn, [-1, self._range.size]))
        return tf.reshape(flat, tf.concat([outer, self._range.spec.shape], axis=0))

    def _log_prob(self, value: tf.Tensor, **kwargs: Any) -> tf.Tensor:
        density = tf.cast(self._inner.log_prob(self._range.to_normalized(value)), self.dtype)
        return density - np.log(self._range.half_range).sum()

    def _mode(self, **kwargs: Any) -> tf.Tensor:
        return self._range.to_environment(self._inner.mode())

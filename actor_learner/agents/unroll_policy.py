"""Policies of on-policy agents: one that acts, and one that also says what a learner must know."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.agents.networks import actor_critic_network, network_variables

RAW_ACTION = "raw_action"
"""Key of the collect policy's info, if there are continuous actions: what was drawn, before it was
scaled and clipped to the action's bounds. `LOG_PROBABILITY` is that of this vector."""


class ActorCriticPolicy(tf_policy.TFPolicy):
    """Draws actions from the policy of an `ActorCriticNetwork`, within their bounds.

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: What the network was made for.
      actor_critic: The network; its variables are created if they are not yet.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        actor_critic: actor_critic_network.ActorCriticNetwork,
        *,
        info_spec: Any = (),
    ) -> None:
        with network_variables.of_any_integers():
            actor_critic.create_variables()
        super().__init__(
            time_step_spec,
            action_spec,
            policy_state_spec=actor_critic.state_spec,
            info_spec=info_spec,
            clip=False,  # Actions are within their bounds.
        )
        self._actor_critic = actor_critic

    def _variables(self) -> Any:
        return self._actor_critic.variables

    def _action(self, time_step: ts.TimeStep, policy_state: Any, seed: Any) -> Any:
        del seed
        parameters, state = self._parameters(time_step, policy_state)
        action = self._actor_critic.distribution.sample(parameters).action
        return policy_step.PolicyStep(action, state, ())

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> Any:
        parameters, state = self._parameters(time_step, policy_state)
        distribution = self._actor_critic.distribution.distribution(parameters)
        return policy_step.PolicyStep(distribution, state, ())

    def _parameters(self, time_step: ts.TimeStep, policy_state: Any) -> tuple[tf.Tensor, Any]:
        # Where an episode begins, `TFPolicy` has reset the state already.
        return self._actor_critic.act(time_step.observation, network_state=policy_state)


class UnrollCollectPolicy(ActorCriticPolicy):
    """Acts likewise, with an info of what the learner has to know about each action.

    The info is a dictionary with the keys `experience.LOG_PROBABILITY`, `RAW_ACTION` if there are
    continuous actions, and `experience.STATE`, the state the action was computed from, if the
    network has a memory.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        actor_critic: actor_critic_network.ActorCriticNetwork,
    ) -> None:
        info_spec: dict[str, Any] = {
            experience.LOG_PROBABILITY: tensor_spec.TensorSpec(
                [], tf.float32, experience.LOG_PROBABILITY
            )
        }
        if actor_critic.distribution.raw_spec is not None:
            info_spec[RAW_ACTION] = actor_critic.distribution.raw_spec
        if actor_critic.has_memory:
            info_spec[experience.STATE] = actor_critic.state_spec
        super().__init__(time_step_spec, action_spec, actor_critic, info_spec=info_spec)

    def _action(self, time_step: ts.TimeStep, policy_state: Any, seed: Any) -> Any:
        del seed
        parameters, state = self._parameters(time_step, policy_state)
        distribution = self._actor_critic.distribution
        sample = distribution.sample(parameters)
        info: dict[str, Any] = {
            experience.LOG_PROBABILITY: distribution.log_probability(parameters, *sample)
        }
        if sample.raw is not None:
            info[RAW_ACTION] = sample.raw
        if self._actor_critic.has_memory:
            info[experience.STATE] = policy_state
        return policy_step.PolicyStep(sample.action, state, info)

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> Any:
        raise NotImplementedError(
            "the info of this policy belongs to drawn actions: use action(), or the agent's policy"
        )


def log_probability(
    actor_critic: actor_critic_network.ActorCriticNetwork,
    parameters: tf.Tensor,
    trajectory: trajectory_lib.Trajectory,
) -> tf.Tensor:
    """Log-probabilities `[...]`, by `parameters` `[..., P]`, of the actions in a trajectory.

    Args:
      actor_critic: The network whose distribution the parameters are of.
      parameters: What it says now about the trajectory's observations.
      trajectory: Leaves `[..., *shape]`, with the collect policy's info.
    """
    raw = None
    if actor_critic.distribution.raw_spec is not None:
        raw = trajectory.policy_info[RAW_ACTION]
    return actor_critic.distribution.log_probability(parameters, trajectory.action, raw)

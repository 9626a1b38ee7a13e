"""Behavioural cloning: imitates the actions of recorded experience."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.behavioral_cloning import behavioral_cloning_agent
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import action_mask
from actor_learner.agents import (
    algorithm,
    normalization,
    normalized_agent,
    optimizers,
    scaled_agent,
)
from actor_learner.agents.networks import default_networks
from actor_learner.support import configurable, errors


class CloningAgent(behavioral_cloning_agent.BehavioralCloningAgent):
    """Clones the first action of each transition; the second step's may mean nothing.

    Discrete actions by cross-entropy, continuous ones, which must lie in [-1, 1], by the squared
    error.
    """

    def _train(
        self, experience: trajectory_lib.Trajectory, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        return super()._train(_first_steps(experience), weights)

    def _loss(
        self,
        experience: trajectory_lib.Trajectory,
        weights: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        return super()._loss(_first_steps(experience), weights, training)

    def _continuous_loss_fn(
        self, experience: trajectory_lib.Trajectory, training: bool = False
    ) -> tf.Tensor:
        action, _ = self._cloning_network(
            experience.observation, step_type=experience.step_type, training=training
        )
        return tf.reduce_mean(tf.math.squared_difference(experience.action, action), axis=1)


@configurable.register
def bc(
    world: algorithm.World,
    *,
    fc_layer_params: tuple[int, ...] = (128, 128),
    learning_rate: float = 1e-3,
    gradient_clipping: float | None = None,
    epsilon: float = 0.0,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
) -> algorithm.Algorithm:
    """Builds behavioural cloning for one discrete action, or one continuous action vector.

    The loss of continuous actions is the squared error in units of half their range.

    Args:
      world: Specs and step counters.
      fc_layer_params: Dense layers of the policy, after convolutions for images.
      learning_rate: Adam's learning rate.
      gradient_clipping: Largest norm of one variable's gradient; None clips nothing.
      epsilon: Share of random actions when collecting; only discrete ones.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
    """
    action_spec = world.action_spec
    discrete = all(leaf.dtype.is_integer for leaf in tf.nest.flatten(world.action_spec))
    if discrete:
        default_networks.single_discrete_action(world.action_spec)
        mask = action_mask.find(world.observation_spec, world.action_spec)
        observation_spec = world.observation_spec if mask is None else mask.rest_spec
        network = default_networks.q_net(observation_spec, world.action_spec, fc_layer_params)
        if mask is not None:
            if epsilon:
                raise errors.ConfigError(
                    f"bc.epsilon is {epsilon}, but observations carry an action_mask: random "
                    "actions could be illegal. Leave epsilon out"
                )
            network = default_networks.MaskedNetwork(
                world.observation_spec, mask, network, name="Clone"
            )
    else:
        default_networks.single_action(world.action_spec)
        world = scaled_agent.normalized_world(world)
        network = default_networks.DeterministicActor(
            world.observation_spec, world.action_spec, fc_layer_params, name="Clone"
        )
    options: dict[str, Any] = {"epsilon_greedy": epsilon} if discrete else {}
    agent = CloningAgent(
        world.time_step_spec,
        world.action_spec,
        cloning_network=network,
        optimizer=optimizers.Adam(
            learning_rate, clip_norm=gradient_clipping, gauge="gradient_norm"
        ),
        train_step_counter=world.train_step,
        **options,
    )
    return normalized_agent.normalized(
        algorithm.Algorithm(agent if discrete else scaled_agent.ScaledAgent(agent, action_spec)),
        "bc",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
    )


def _first_steps(experience: trajectory_lib.Trajectory) -> trajectory_lib.Trajectory:
    """The first of the two steps of each transition: `[batch, 2, ...]` to `[batch, ...]`."""
    return tf.nest.map_structure(lambda leaf: leaf[:, 0], experience)

"""DDPG: deterministic actor-critic with Ornstein-Uhlenbeck exploration."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.agents.ddpg import ddpg_agent
from tf_agents.trajectories import time_step as ts

from actor_learner.agents import (
    algorithm,
    exploration,
    normalization,
    normalized_agent,
    optimizers,
    scaled_agent,
)
from actor_learner.agents.losses import td_errors
from actor_learner.agents.networks import default_networks
from actor_learner.support import configurable, replicas


class DdpgWithLaneNoise(td_errors.WithTdErrors, ddpg_agent.DdpgAgent):
    """DDPG whose collect policy disturbs each lane on its own, and that returns TD errors."""

    def __init__(
        self, *args: Any, noise_stddev: float, noise_damping: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lane_collect_policy = exploration.OrnsteinUhlenbeckPolicy(
            self.policy, noise_stddev, noise_damping
        )

    @property
    def collect_policy(self) -> exploration.OrnsteinUhlenbeckPolicy:
        return self._lane_collect_policy

    def actor_loss(
        self, time_steps: ts.TimeStep, weights: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        if weights is not None:
            # The base class multiplies losses [batch, actions] by them: without the dimension that
            # is added here, each item would be weighted by all the weights.
            leaf = tf.nest.flatten(self.action_spec)[0]
            weights = tf.reshape(weights, [-1] + [1] * leaf.shape.rank)
        return replicas.share(super().actor_loss(time_steps, weights=weights, training=training))

    def critic_loss(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        return replicas.share(super().critic_loss(*args, **kwargs))


@configurable.register
def ddpg(
    world: algorithm.World,
    *,
    actor_fc_layer_params: tuple[int, ...] = (256, 256),
    critic_fc_layer_params: tuple[int, ...] = (256, 256),
    actor_learning_rate: float = 1e-4,
    critic_learning_rate: float = 1e-3,
    noise_stddev: float = 0.2,
    noise_damping: float = 0.15,
    gamma: float = 0.99,
    n_step: int = 1,
    target_update_tau: float = 0.005,
    target_update_period: int = 1,
    gradient_clipping: float | None = None,
    reward_scale: float = 1.0,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds DDPG for one continuous action vector.

    Args:
      world: Specs and step counters.
      actor_fc_layer_params: Dense layers of the actor.
      critic_fc_layer_params: Dense layers of the critic.
      actor_learning_rate: Adam's learning rate for the actor.
      critic_learning_rate: Adam's learning rate for the critic.
      noise_stddev: Standard deviation of the steps of the Ornstein-Uhlenbeck noise: 1 is half the
        range of the action.
      noise_damping: How fast that noise falls back to zero.
      gamma: Discount factor.
      n_step: Steps of the return.
      target_update_tau: Share of the networks in each target update.
      target_update_period: Train steps between target updates.
      gradient_clipping: Largest norm of one variable's gradient; None clips nothing.
      reward_scale: Factor on all rewards, after they are normalised.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards so that returns are about 1, by running statistics.
      reward_limit: Largest normalised reward.
    """
    default_networks.single_action(world.action_spec)
    action_spec, world = world.action_spec, scaled_agent.normalized_world(world)
    agent = DdpgWithLaneNoise(
        world.time_step_spec,
        world.action_spec,
        actor_network=default_networks.DeterministicActor(
            world.observation_spec, world.action_spec, actor_fc_layer_params
        ),
        critic_network=default_networks.Critic(
            (world.observation_spec, world.action_spec), critic_fc_layer_params
        ),
        actor_optimizer=optimizers.Adam(
            actor_learning_rate, clip_norm=gradient_clipping, gauge="actor_gradient_norm"
        ),
        critic_optimizer=optimizers.Adam(
            critic_learning_rate, clip_norm=gradient_clipping, gauge="critic_gradient_norm"
        ),
        noise_stddev=noise_stddev,
        noise_damping=noise_damping,
        target_update_tau=target_update_tau,
        target_update_period=target_update_period,
        td_errors_loss_fn=tf.math.squared_difference,
        gamma=gamma,
        reward_scale_factor=reward_scale,
        train_step_counter=world.train_step,
    )
    return normalized_agent.normalized(
        algorithm.Algorithm(
            scaled_agent.ScaledAgent(agent, action_spec),
            n_step=n_step,
            gamma=gamma,
            priorities=td_errors.absolute_td_errors,
        ),
        "ddpg",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )

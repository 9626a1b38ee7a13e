"""TD3: deterministic actor-critic with twin critics, delayed actor updates and smoothed targets."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.td3 import td3_agent
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

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


class ReplicatedTd3(td3_agent.Td3Agent):
    """TD3 for actions in [-1, 1], which may be trained on several replicas.

    Disturbed target actions stay within these bounds, as in the paper; TF-Agents' leave them, and
    rate actions that no policy can take.
    """

    def _train(
        self, experience: trajectory_lib.Trajectory, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        time_steps, policy_steps, next_time_steps = self._as_transition(experience)
        critic_variables = [
            *self._critic_network_1.trainable_variables,
            *self._critic_network_2.trainable_variables,
        ]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(critic_variables)
            critic_loss = self.critic_loss(
                time_steps, policy_steps.action, next_time_steps, weights=weights, training=True
            )
        tf.debugging.check_numerics(critic_loss, "the critic loss of TD3")
        self._critic_optimizer.apply_gradients(
            zip(tape.gradient(critic_loss, critic_variables), critic_variables)
        )
        actor_variables = self._actor_network.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(actor_variables)
            actor_loss = self.actor_loss(time_steps, weights=weights, training=True)
        tf.debugging.check_numerics(actor_loss, "the actor loss of TD3")
        optimizers.apply_when(
            tf.equal(self.train_step_counter % self._actor_update_period, 0),
            self._actor_optimizer,
            lambda: tape.gradient(actor_loss, actor_variables),
            actor_variables,
        )
        self.train_step_counter.assign_add(1)
        self._update_target()
        return tf_agent.LossInfo(
            actor_loss + critic_loss, td3_agent.Td3Info(actor_loss, critic_loss)
        )

    def critic_loss(
        self,
        time_steps: ts.TimeStep,
        actions: tf.Tensor,
        next_time_steps: ts.TimeStep,
        weights: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """The mean over the batch of both critics' losses."""
        target_actions, _ = self._target_actor_network(
            next_time_steps.observation, next_time_steps.step_type, training=training
        )
        noise = tf.random.normal(tf.shape(target_actions), stddev=self._target_policy_noise)
        bound = self._target_policy_noise_clip
        target_actions += tf.clip_by_value(noise, -bound, bound)
        target_actions = tf.clip_by_value(target_actions, -1.0, 1.0)
        rated = (next_time_steps.observation, target_actions)
        values = [
            critic(rated, next_time_steps.step_type, training=False)[0]
            for critic in (self._target_critic_network_1, self._target_critic_network_2)
        ]
        targets = tf.stop_gradient(
            self._reward_scale_factor * next_time_steps.reward
            + self._gamma * next_time_steps.discount * tf.minimum(*values)
        )
        taken = (time_steps.observation, actions)
        losses = [
            self._td_errors_loss_fn(
                targets, critic(taken, time_steps.step_type, training=training)[0]
            )
            for critic in (self._critic_network_1, self._critic_network_2)
        ]
        loss = tf.add_n(losses)  # [batch]
        return replicas.mean(loss if weights is None else loss * weights)


class Td3WithLaneNoise(td_errors.WithTdErrors, ReplicatedTd3):
    """TD3 whose collect policy disturbs each lane on its own, and that returns TD errors."""

    def __init__(self, *args: Any, collect_noise: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lane_collect_policy = exploration.GaussianNoisePolicy(self.policy, collect_noise)

    @property
    def collect_policy(self) -> exploration.GaussianNoisePolicy:
        return self._lane_collect_policy


@configurable.register
def td3(
    world: algorithm.World,
    *,
    actor_fc_layer_params: tuple[int, ...] = (256, 256),
    critic_fc_layer_params: tuple[int, ...] = (256, 256),
    actor_learning_rate: float = 1e-3,
    critic_learning_rate: float = 1e-3,
    exploration_noise: float = 0.1,
    target_policy_noise: float = 0.2,
    target_policy_noise_clip: float = 0.5,
    actor_update_period: int = 2,
    gamma: float = 0.99,
    n_step: int = 1,
    target_update_tau: float = 0.005,
    target_update_period: int = 2,
    gradient_clipping: float | None = None,
    reward_scale: float = 1.0,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds TD3 for one continuous action vector.

    Args:
      world: Specs and step counters.
      actor_fc_layer_params: Dense layers of the actor.
      critic_fc_layer_params: Dense layers of each of the two critics.
      actor_learning_rate: Adam's learning rate for the actor.
      critic_learning_rate: Adam's learning rate for the critics.
      exploration_noise: Standard deviation of the noise on collected actions: 1 is half the range
        of the action.
      target_policy_noise: Standard deviation of the noise on target actions, in the same unit.
      target_policy_noise_clip: Bound of that noise, in the same unit.
      actor_update_period: Train steps between updates of the actor.
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
    agent = Td3WithLaneNoise(
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
        collect_noise=exploration_noise,
        target_policy_noise=target_policy_noise,
        target_policy_noise_clip=target_policy_noise_clip,
        actor_update_period=actor_update_period,
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
        "td3",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )

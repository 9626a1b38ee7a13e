"""TD3: deterministic actor-critic with twin critics, delayed actor updates and smoothed targets."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.agents.td3 import td3_agent

from actor_learner import configurable
from actor_learner.agents import algorithm, exploration, networks, optimizers, td_errors


class Td3WithLaneNoise(td_errors.WithTdErrors, td3_agent.Td3Agent):
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
) -> algorithm.Algorithm:
    """Builds TD3 for one continuous action vector.

    Args:
      world: Specs and step counters.
      actor_fc_layer_params: Dense layers of the actor.
      critic_fc_layer_params: Dense layers of each of the two critics.
      actor_learning_rate: Adam's learning rate for the actor.
      critic_learning_rate: Adam's learning rate for the critics.
      exploration_noise: Standard deviation of the noise on collected actions, in action units.
      target_policy_noise: Standard deviation of the noise on target actions.
      target_policy_noise_clip: Bound of that noise.
      actor_update_period: Train steps between updates of the actor.
      gamma: Discount factor.
      n_step: Steps of the return.
      target_update_tau: Share of the networks in each target update.
      target_update_period: Train steps between target updates.
      gradient_clipping: Largest norm of one variable's gradient; None clips nothing.
      reward_scale: Factor on all rewards.
    """
    networks.single_action(world.action_spec)
    agent = Td3WithLaneNoise(
        world.time_step_spec,
        world.action_spec,
        actor_network=networks.DeterministicActor(
            world.observation_spec, world.action_spec, actor_fc_layer_params
        ),
        critic_network=networks.Critic(
            (world.observation_spec, world.action_spec), critic_fc_layer_params
        ),
        actor_optimizer=optimizers.Adam(actor_learning_rate, clip_norm=gradient_clipping),
        critic_optimizer=optimizers.Adam(critic_learning_rate, clip_norm=gradient_clipping),
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
    return algorithm.Algorithm(
        agent, n_step=n_step, gamma=gamma, priorities=td_errors.absolute_td_errors
    )

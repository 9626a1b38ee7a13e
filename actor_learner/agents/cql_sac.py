"""CQL on SAC: values of actions that the data does not contain are kept low, for offline data."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tf_agents.agents.cql import cql_sac_agent
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

from actor_learner.agents import (
    algorithm,
    normalization,
    normalized_agent,
    optimizers,
    scaled_agent,
)
from actor_learner.agents.losses import td_errors
from actor_learner.agents.networks import default_networks
from actor_learner.support import configurable, counters, errors, replicas

# Cloned actions are kept this far away from -1 and 1, where a squashed distribution has no density.
_MARGIN = 2e-4


class ConservativeSac(td_errors.WithTdErrors, td_errors.WithEntropy, cql_sac_agent.CqlSacAgent):
    """CQL-SAC with the right density of uniform actions, and TD errors for each item.

    For one action vector in [-1, 1].

    TF-Agents' class raises that density to the power of the number of action dimensions once too
    often where the bounds are given for each dimension, and so all but ignores uniform actions. Its
    actor's loss is traced by AutoGraph, which takes ten times as long.
    """

    def actor_loss(
        self,
        time_steps: ts.TimeStep,
        actions: Any,
        weights: tf.Tensor | None = None,
        training: bool | None = True,
    ) -> tf.Tensor:
        """SAC's loss of the actor; in the first steps it imitates `actions` instead."""
        sampled, log_density = self._actions_and_log_probs(time_steps, training=training)

        def imitate() -> tf.Tensor:
            inside = tf.clip_by_value(actions, _MARGIN - 1.0, 1.0 - _MARGIN)
            distribution, _ = self._actor_network(
                time_steps.observation, time_steps.step_type, (), training=training
            )
            return distribution.log_prob(inside)

        def improve() -> tf.Tensor:
            rated = (time_steps.observation, sampled)
            values = [
                critic(rated, time_steps.step_type, training=False)[0]
                for critic in (self._critic_network_1, self._critic_network_2)
            ]
            return tf.minimum(*values)

        if self._num_bc_steps:
            cloning = self.train_step_counter < self._num_bc_steps
            gain = tf.cond(cloning, imitate, improve)
        else:
            gain = improve()
        return common.aggregate_losses(
            per_example_loss=tf.exp(self._log_alpha) * log_density - gain,
            sample_weight=weights,
            regularization_loss=self._actor_network.losses,
        ).total_loss

    def _cql_loss(
        self, time_steps: ts.TimeStep, actions: tf.Tensor, training: bool | None = False
    ) -> tf.Tensor:
        """The mean of `log sum exp Q(s, a') - Q(s, a)` over both critics.

        The sum is over actions of the policy and uniform ones, each divided by its density. All
        are rated in one call of each critic.
        """
        batch, samples = tf.shape(actions)[0], self._num_cql_samples
        from_policy, log_density = self._sample_and_transpose_actions_and_log_probs(
            time_steps, samples, training=False
        )
        uniform = tf.random.uniform(tf.shape(from_policy), -1.0, 1.0)  # [batch, samples, size]
        size = actions.shape[-1]
        uniform_density = tf.fill([batch, samples], -size * math.log(2.0))
        candidates = tf.concat([from_policy, uniform], axis=1)
        candidates = tf.reshape(candidates, [-1, size])
        log_density = tf.concat([log_density, uniform_density], axis=1)  # [batch, 2 * samples]

        def tile(leaf: tf.Tensor) -> tf.Tensor:
            return tf.repeat(leaf, 2 * samples, axis=0)

        observation = tf.nest.map_structure(tile, time_steps.observation)
        step_type = tile(time_steps.step_type)
        gaps = []
        for critic in (self._critic_network_1, self._critic_network_2):
            values, _ = critic((observation, candidates), step_type, training=False)
            values = tf.reshape(values, [batch, 2 * samples]) * self._softmax_temperature
            total = tf.reduce_logsumexp(values - log_density, axis=1) / self._softmax_temperature
            value, _ = critic(
                (time_steps.observation, actions), time_steps.step_type, training=training
            )
            gaps.append(total - value)
        return replicas.share(tf.reduce_mean(gaps))


@configurable.register
def cql_sac(
    world: algorithm.World,
    *,
    actor_fc_layer_params: tuple[int, ...] = (256, 256),
    critic_fc_layer_params: tuple[int, ...] = (256, 256),
    actor_learning_rate: float = 1e-4,
    critic_learning_rate: float = 3e-4,
    alpha_learning_rate: float = 3e-4,
    initial_alpha: float = 1.0,
    target_entropy: float | None = None,
    cql_alpha: float = 5.0,
    cql_samples: int = 10,
    cql_threshold: float | None = None,
    cloning_steps: int = 0,
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
    """Builds CQL-SAC for one continuous action vector.

    Args:
      world: Specs and step counters.
      actor_fc_layer_params: Dense layers of the actor.
      critic_fc_layer_params: Dense layers of each of the two critics.
      actor_learning_rate: Adam's learning rate for the actor.
      critic_learning_rate: Adam's learning rate for the critics.
      alpha_learning_rate: Adam's learning rate for the entropy's weight.
      initial_alpha: Weight of the entropy at the start.
      target_entropy: Entropy that the weight is tuned for, of actions in [-1, 1] whatever their
        bounds are; None means minus the number of action dimensions.
      cql_alpha: Weight of the conservative loss; its start if there is a threshold.
      cql_samples: Actions drawn from the policy for that loss, and as many uniform ones.
      cql_threshold: Tunes the weight so that the conservative loss stays near this; None keeps the
        weight as it is.
      cloning_steps: Train steps at the start in which the actor imitates the data.
      gamma: Discount factor.
      n_step: Steps of the return.
      target_update_tau: Share of the critics in each target update.
      target_update_period: Train steps between target updates.
      gradient_clipping: Largest norm of one variable's gradient; None clips nothing.
      reward_scale: Factor on all rewards, after they are normalised.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards so that returns are about 1, by running statistics.
      reward_limit: Largest normalised reward.
    """
    leaf, action_spec = default_networks.single_action(world.action_spec), world.action_spec
    world = scaled_agent.normalized_world(world)
    for name, value in (("initial_alpha", initial_alpha), ("cql_alpha", cql_alpha)):
        if value <= 0:
            raise errors.ConfigError(f"cql_sac.{name} must be above 0, got {value}")
    if cql_samples < 1:
        raise errors.ConfigError(f"cql_sac.cql_samples must be at least 1, got {cql_samples}")
    if target_entropy is None:
        target_entropy = -float(leaf.shape.num_elements())
    agent = ConservativeSac(
        world.time_step_spec,
        world.action_spec,
        critic_network=default_networks.Critic(
            (world.observation_spec, world.action_spec), critic_fc_layer_params
        ),
        actor_network=default_networks.tanh_normal_actor_net(
            world.observation_spec, world.action_spec, actor_fc_layer_params
        ),
        actor_optimizer=optimizers.Adam(
            actor_learning_rate, clip_norm=gradient_clipping, gauge="actor_gradient_norm"
        ),
        critic_optimizer=optimizers.Adam(
            critic_learning_rate, clip_norm=gradient_clipping, gauge="critic_gradient_norm"
        ),
        alpha_optimizer=optimizers.Adam(alpha_learning_rate, clip_norm=gradient_clipping),
        cql_alpha=cql_alpha,
        num_cql_samples=cql_samples,
        include_critic_entropy_term=True,
        use_lagrange_cql_alpha=cql_threshold is not None,
        # Subtracted from each replica's share of the mean.
        cql_tau=0.0 if cql_threshold is None else replicas.share(cql_threshold),
        num_bc_steps=cloning_steps,
        target_update_tau=target_update_tau,
        target_update_period=target_update_period,
        td_errors_loss_fn=tf.math.squared_difference,
        gamma=gamma,
        reward_scale_factor=reward_scale,
        initial_log_alpha=math.log(initial_alpha),
        target_entropy=target_entropy,
        train_step_counter=world.train_step,
    )
    return normalized_agent.normalized(
        algorithm.Algorithm(
            scaled_agent.ScaledAgent(agent, action_spec),
            n_step=n_step,
            gamma=gamma,
            priorities=td_errors.absolute_td_errors,
            gauges={"alpha": lambda: math.exp(counters.read(agent._log_alpha))},
        ),
        "cql_sac",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )

"""C51: Q-learning on the distribution of returns instead of their mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.categorical_dqn import categorical_dqn_agent
from tf_agents.agents.dqn import dqn_agent
from tf_agents.trajectories import trajectory as trajectory_lib
from tf_agents.utils import common

from actor_learner import action_mask, batch_notes
from actor_learner.agents import algorithm, normalization, normalized_agent, optimizers, schedules
from actor_learner.agents.losses import td_errors
from actor_learner.agents.networks import default_networks
from actor_learner.support import configurable, errors


class WeightedC51(categorical_dqn_agent.CategoricalDqnAgent):
    """C51 that applies weights to its items and returns their errors; TF-Agents' does neither.

    The error of an item is the divergence of the predicted distribution from its target, which is
    what C51 minimises. Unlike the difference of the means it is 0 only when nothing is left to
    learn, and falls even where returns are random.
    """

    def _loss(
        self,
        experience: Any,
        td_errors_loss_fn: Any = None,
        gamma: float = 1.0,
        reward_scale_factor: float = 1.0,
        weights: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        del td_errors_loss_fn  # The cross-entropy, always.
        time_steps, policy_steps, next_time_steps = trajectory_lib.experience_to_transitions(
            experience, squeeze_time_dim=True
        )
        observation = time_steps.observation
        if self._observation_and_action_constraint_splitter is not None:
            observation, _ = self._observation_and_action_constraint_splitter(observation)
        logits, _ = self._q_network(observation, step_type=time_steps.step_type, training=training)
        action = tf.cast(tf.nest.flatten(policy_steps.action)[0], tf.int32)
        logits = tf.gather(logits, action, batch_dims=1)  # [batch, atoms]
        batch_notes.gauge("q_value", logits, self._support, reduce=_mean_return)
        reward = reward_scale_factor * next_time_steps.reward[:, tf.newaxis]
        discount = gamma * next_time_steps.discount[:, tf.newaxis]
        returns = reward + discount * self._support  # [batch, atoms]
        probabilities = self._next_q_distribution(next_time_steps)
        batch_notes.note("target", tf.reduce_sum(probabilities * returns, axis=-1))
        target = tf.stop_gradient(
            categorical_dqn_agent.project_distribution(returns, probabilities, self._support)
        )
        per_item = tf.nn.softmax_cross_entropy_with_logits(labels=target, logits=logits)
        losses = common.aggregate_losses(
            per_example_loss=per_item,
            sample_weight=weights,
            regularization_loss=self._q_network.losses,
        )
        common.summarize_scalar_dict(
            {"critic_loss": losses.weighted, "total_loss": losses.total_loss},
            step=self.train_step_counter,
            name_scope="Losses/",
        )
        entropy = -tf.reduce_sum(tf.math.xlogy(target, target), axis=-1)
        # Rounding may leave a divergence just below 0.
        divergence = tf.maximum(tf.stop_gradient(per_item) - entropy, 0.0)
        batch_notes.gauge("td_error", divergence)
        return tf_agent.LossInfo(
            losses.total_loss, dqn_agent.DqnLossInfo(td_loss=per_item, td_error=divergence)
        )


def _mean_return(logits: np.ndarray, support: np.ndarray) -> float:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return float(((weights / weights.sum(axis=-1, keepdims=True)) @ support).mean())


@configurable.register
def c51(
    world: algorithm.World,
    *,
    fc_layer_params: tuple[int, ...] = (64, 64),
    learning_rate: float = 1e-3,
    gamma: float = 0.99,
    n_step: int = 1,
    num_atoms: int = 51,
    min_q_value: float = -10.0,
    max_q_value: float = 10.0,
    epsilon_start: float = 1.0,
    epsilon_end: float = 0.05,
    epsilon_decay_steps: int = 10_000,
    target_update_tau: float = 1.0,
    target_update_period: int = 200,
    gradient_clipping: float | None = 10.0,
    reward_scale: float = 1.0,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds categorical DQN for one discrete action; respects an observation's `action_mask`.

    Args:
      world: Specs and step counters.
      fc_layer_params: Dense layers of the network, after convolutions for images.
      learning_rate: Adam's learning rate.
      gamma: Discount factor.
      n_step: Steps of the return.
      num_atoms: Values of the return that the distribution is over.
      min_q_value: Smallest of them; must lie below the worst discounted return.
      max_q_value: Largest of them; must lie above the best discounted return.
      epsilon_start: Share of random actions at the start.
      epsilon_end: Share of random actions after `epsilon_decay_steps`.
      epsilon_decay_steps: Environment steps over which the share falls.
      target_update_tau: Share of the online network in each target update; 1 copies.
      target_update_period: Train steps between target updates.
      gradient_clipping: Largest norm of one variable's gradient; None clips nothing.
      reward_scale: Factor on all rewards, after they are normalised.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards so that returns are about 1, by running statistics.
      reward_limit: Largest normalised reward.
    """
    default_networks.single_discrete_action(world.action_spec)
    if not min_q_value < max_q_value:
        raise errors.ConfigError(
            f"c51.min_q_value ({min_q_value}) must be below max_q_value ({max_q_value})"
        )
    epsilon = schedules.linear(
        world.environment_step, epsilon_start, epsilon_end, epsilon_decay_steps
    )
    mask = action_mask.find(world.observation_spec, world.action_spec)
    observation_spec = world.observation_spec if mask is None else mask.rest_spec
    agent = WeightedC51(
        world.time_step_spec,
        world.action_spec,
        categorical_q_network=default_networks.categorical_q_net(
            observation_spec, world.action_spec, fc_layer_params, num_atoms
        ),
        observation_and_action_constraint_splitter=None if mask is None else mask.splitter,
        optimizer=optimizers.Adam(
            learning_rate, clip_norm=gradient_clipping, gauge="gradient_norm"
        ),
        min_q_value=min_q_value,
        max_q_value=max_q_value,
        epsilon_greedy=epsilon,
        target_update_tau=target_update_tau,
        target_update_period=target_update_period,
        gamma=gamma,
        reward_scale_factor=reward_scale,
        train_step_counter=world.train_step,
    )
    schedules.track(agent.collect_policy, world.environment_step)
    return normalized_agent.normalized(
        algorithm.Algorithm(
            agent,
            n_step=n_step,
            gamma=gamma,
            epsilon=epsilon,
            priorities=td_errors.absolute_td_errors,
        ),
        "c51",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )

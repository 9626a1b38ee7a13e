"""DQN, by default double: Q-learning with a target network and epsilon-greedy exploration."""

from __future__ import annotations

from tf_agents.utils import common

from actor_learner import action_mask
from actor_learner.agents import (
    algorithm,
    dqn_agent,
    normalization,
    normalized_agent,
    optimizers,
    schedules,
)
from actor_learner.agents.losses import td_errors
from actor_learner.agents.networks import default_networks
from actor_learner.support import configurable


@configurable.register
def dqn(
    world: algorithm.World,
    *,
    fc_layer_params: tuple[int, ...] = (64, 64),
    learning_rate: float = 1e-3,
    gamma: float = 0.99,
    n_step: int = 1,
    double: bool = True,
    epsilon_start: float = 1.0,
    epsilon_end: float = 0.05,
    epsilon_decay_steps: int = 10_000,
    target_update_tau: float = 1.0,
    target_update_period: int = 200,
    gradient_clipping: float | None = 10.0,
    huber_loss: bool = True,
    reward_scale: float = 1.0,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds DQN for one discrete action; an `action_mask` in the observation is respected.

    Args:
      world: Specs and step counters.
      fc_layer_params: Dense layers of the Q-network, after convolutions for images.
      learning_rate: Adam's learning rate.
      gamma: Discount factor.
      n_step: Steps of the return; more propagate rewards faster, with more variance.
      double: Let the online network choose the action that the target network rates.
      epsilon_start: Share of random actions at the start.
      epsilon_end: Share of random actions after `epsilon_decay_steps`.
      epsilon_decay_steps: Environment steps over which the share falls.
      target_update_tau: Share of the online network in each target update; 1 copies.
      target_update_period: Train steps between target updates.
      gradient_clipping: Largest norm of one variable's gradient; None clips nothing.
      huber_loss: Huber loss of the TD error, which outliers move less; else squared.
      reward_scale: Factor on all rewards, after they are normalised.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards so that returns are about 1, by running statistics.
      reward_limit: Largest normalised reward.
    """
    default_networks.single_discrete_action(world.action_spec)
    epsilon = schedules.linear(
        world.environment_step, epsilon_start, epsilon_end, epsilon_decay_steps
    )
    mask = action_mask.find(world.observation_spec, world.action_spec)
    observation_spec = world.observation_spec if mask is None else mask.rest_spec
    agent_class = dqn_agent.DdqnAgent if double else dqn_agent.DqnAgent
    agent = agent_class(
        world.time_step_spec,
        world.action_spec,
        q_network=default_networks.q_net(observation_spec, world.action_spec, fc_layer_params),
        observation_and_action_constraint_splitter=None if mask is None else mask.splitter,
        optimizer=optimizers.Adam(
            learning_rate, clip_norm=gradient_clipping, gauge="gradient_norm"
        ),
        epsilon_greedy=epsilon,
        target_update_tau=target_update_tau,
        target_update_period=target_update_period,
        td_errors_loss_fn=(
            common.element_wise_huber_loss if huber_loss else common.element_wise_squared_loss
        ),
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
        "dqn",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )

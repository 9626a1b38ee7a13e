"""R2D2: recurrent replay distributed DQN, for worlds that must be remembered."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from actor_learner import experience
from actor_learner.agents import (
    algorithm,
    normalization,
    normalized_agent,
    optimizers,
    r2d2_agent,
    r2d2_policy,
)
from actor_learner.agents.losses import sequence_td
from actor_learner.agents.networks import default_networks, recurrent_q_network
from actor_learner.support import configurable


@configurable.register
def r2d2(
    world: algorithm.World,
    *,
    fc_layer_params: tuple[int, ...] = (64,),
    lstm_size: int | None = 64,
    head_layer_params: tuple[int, ...] = (64,),
    dueling: bool = True,
    learning_rate: float = 1e-4,
    adam_epsilon: float = 1e-3,
    gradient_clipping: float | None = 40.0,
    gamma: float = 0.997,
    n_step: int = 5,
    burn_in: int = 20,
    value_rescaling: bool = True,
    rescaling_epsilon: float = 1e-3,
    target_update_period: int = 2_500,
    max_share: float = 0.9,
    epsilon_base: float = 0.4,
    epsilon_exponents: tuple[float, float] = (1.0, 8.0),
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds R2D2 for one discrete action.

    It learns from sequences: `@SequenceReplay()`, whose `sequence_length - period` must be above
    `burn_in`, unless no episode is longer than a sequence.

    Args:
      world: Specs, step counters and lanes.
      fc_layer_params: Dense layers before the LSTM, after convolutions for images.
      lstm_size: Units of the LSTM. None leaves it out: the same agent without memory, to compare
        with.
      head_layer_params: Dense layers after the LSTM.
      dueling: Whether value and advantages have heads of their own.
      learning_rate: Adam's learning rate.
      adam_epsilon: Adam's epsilon; a large one takes smaller steps where gradients are small.
      gradient_clipping: Largest global norm of the gradient; None clips nothing.
      gamma: Discount factor.
      n_step: Steps of the return, within the sequence.
      burn_in: Steps at the start of a sequence that only bring the state of the network up to
        date; sequences that begin an episode are learned from in full.
      value_rescaling: Learn `h(return)`, which lets rewards of any size do without clipping.
      rescaling_epsilon: The slope that `h(x) = sign(x) (sqrt(|x| + 1) - 1) + rescaling_epsilon x`
        keeps for large returns.
      target_update_period: Train steps between copies to the target network.
      max_share: Share of the largest error, against the mean, in the priority of a sequence.
      epsilon_base: Lane i of N explores with the share `epsilon_base ** e_i` of random actions,
      epsilon_exponents: with e_i going evenly from the first to the second number over the lanes
        of all actors. A single lane takes the second.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards so that returns are about 1, by running statistics.
      reward_limit: Largest normalised reward.
    """
    default_networks.single_discrete_action(world.action_spec)
    td = sequence_td.SequenceTd(
        n_step, gamma, burn_in, value_rescaling, max_share, rescaling_epsilon
    )

    def epsilons(first_lane: int, total_lanes: int) -> np.ndarray:
        return r2d2_policy.lane_epsilons(
            first_lane, world.num_lanes, total_lanes, epsilon_base, epsilon_exponents
        )

    q_network, target_network = (
        recurrent_q_network.RecurrentQNetwork(
            world.observation_spec,
            world.action_spec,
            tuple(fc_layer_params),
            lstm_size,
            tuple(head_layer_params),
            dueling,
            name=name,
        )
        for name in ("QNetwork", "TargetQNetwork")
    )
    agent = r2d2_agent.R2d2Agent(
        world.time_step_spec,
        world.action_spec,
        q_network=q_network,
        target_network=target_network,
        optimizer=optimizers.Adam(learning_rate, epsilon=adam_epsilon),
        td=td,
        epsilons=epsilons(world.first_lane, world.total_lanes),
        target_update_period=target_update_period,
        gradient_clipping=gradient_clipping,
        train_step_counter=world.train_step,
    )

    def share_lanes(first_lane: int, total_lanes: int) -> None:
        agent.collect_policy.epsilons = epsilons(first_lane, total_lanes)

    return normalized_agent.normalized(
        algorithm.Algorithm(
            agent,
            n_step=n_step,
            gamma=gamma,
            epsilon=lambda: tf.constant(agent.collect_policy.epsilons.mean()),
            share_lanes=share_lanes,
            kind=experience.SEQUENCES,
            priorities=lambda loss_info: loss_info.extra.priorities,
            initial_priorities=agent.initial_priorities,
            burn_in=burn_in,
        ),
        "r2d2",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )

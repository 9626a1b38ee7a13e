"""PPO: on-policy actor-critic that holds each step near the policy that acted."""

from __future__ import annotations

from typing import Any

from actor_learner import experience
from actor_learner.agents import algorithm, normalization, optimizers, ppo_agent, schedules
from actor_learner.agents.losses import ppo_loss
from actor_learner.agents.networks import actor_critic_network
from actor_learner.support import configurable, errors

KL_TARGET = 0.01


@configurable.register
def ppo(
    world: algorithm.World,
    *,
    fc_layer_params: tuple[int, ...] = (64, 64),
    lstm_size: int | None = None,
    share_torso: bool = False,
    central_critic: bool = False,
    activation: str = "tanh",
    initial_stddev: float = 0.6,
    learning_rate: float = 3e-4,
    learning_rate_end: float | None = None,
    learning_rate_decay_steps: int | None = None,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    epochs: int = 10,
    minibatch_size: int = 256,
    clip_ratio: float | None = 0.2,
    value_clip: float | None = None,
    value_weight: float = 0.5,
    entropy_weight: float = 0.0,
    normalize_advantages: bool = True,
    gradient_clipping: float | None = 0.5,
    kl_penalty: float | None = None,
    kl_target: float = KL_TARGET,
    max_kl: float | None = None,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds PPO for any observations and actions, with or without memory.

    The length of unrolls, and with the number of lanes the frames per train step, are those of the
    sample stream: `UnrollQueue.unroll_length`.

    Args:
      world: Specs and step counters.
      fc_layer_params: Dense layers, after convolutions for images.
      lstm_size: Units of an LSTM behind them; None for no memory.
      share_torso: Whether policy and value share these layers; needed with an LSTM.
      central_critic: Whether the value sees a part `state` of the observation that the policy does
        not, so that agents act on what they know themselves: `AgentWorld.state`.
      activation: Of the dense layers.
      initial_stddev: Of continuous actions at the start, as a share of half their range.
      learning_rate: Adam's learning rate.
      learning_rate_end: What it falls to, linearly; None keeps it.
      learning_rate_decay_steps: Environment steps over which it falls.
      gamma: Discount factor.
      gae_lambda: Advantages look this far ahead: 0 one step, 1 to the end of the unroll.
      epochs: Times that each frame is learned from.
      minibatch_size: Frames per gradient step at most. With memory, whole unrolls of as many lanes.
      clip_ratio: How far probabilities may move, as a ratio, and still count; None clips nothing.
      value_clip: How far values may move in one train step and still count; None clips nothing.
      value_weight: Weight of the values' squared error.
      entropy_weight: Weight of the entropy bonus.
      normalize_advantages: Give the advantages of each minibatch mean 0 and variance 1.
      gradient_clipping: Largest norm of the gradient; None clips nothing.
      kl_penalty: First weight of a penalty on the KL divergence from the policy that acted; None
        for no penalty.
      kl_target: KL divergence per train step that the penalty's weight is adapted for.
      max_kl: End a train step at a minibatch that finds the policy moved further than this; it is
        not learned from, nor is what is left of the epochs.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards by the running deviation of discounted returns.
      reward_limit: Largest scaled reward.
    """
    if (learning_rate_end is None) != (learning_rate_decay_steps is None):
        raise errors.ConfigError(
            f"ppo.learning_rate_end ({learning_rate_end}) and ppo.learning_rate_decay_steps "
            f"({learning_rate_decay_steps}) belong together: set both, or neither"
        )
    if kl_penalty is None and clip_ratio is None and max_kl is None:
        raise errors.ConfigError(
            "nothing holds PPO near the policy that acted: set ppo.clip_ratio, ppo.kl_penalty or "
            "ppo.max_kl"
        )
    if kl_target != KL_TARGET and kl_penalty is None:
        raise errors.ConfigError(
            f"ppo.kl_target is {kl_target}, but has no effect without ppo.kl_penalty: set that "
            "too, or leave kl_target out"
        )
    normalization.check_limits(
        "ppo",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )
    rate: Any = learning_rate
    if learning_rate_end is not None and learning_rate_decay_steps is not None:
        rate = schedules.linear(
            world.environment_step, learning_rate, learning_rate_end, learning_rate_decay_steps
        )
    observation_normalizer = reward_normalizer = None
    if normalize_observations:
        observation_normalizer = normalization.ObservationNormalizer(
            world.observation_spec, observation_limit
        )
    network = actor_critic_network.ActorCriticNetwork(
        world.observation_spec,
        world.action_spec,
        fc_layer_params=fc_layer_params,
        lstm_size=lstm_size,
        share_torso=share_torso,
        activation=activation,
        initial_stddev=initial_stddev,
        central_critic=central_critic,
        observation_normalizer=observation_normalizer,
    )
    if normalize_rewards:
        reward_normalizer = normalization.RewardNormalizer(gamma, reward_limit)
        # Acting needs no rewards, but whoever trains an exported policy further needs their scale.
        network.reward_statistics = reward_normalizer.moments
    agent = ppo_agent.PPOAgent(
        world.time_step_spec,
        world.action_spec,
        network=network,
        optimizer=optimizers.Adam(rate, epsilon=1e-5),
        loss=ppo_loss.PPOLoss(
            clip_ratio=clip_ratio,
            value_clip=value_clip,
            value_weight=value_weight,
            entropy_weight=entropy_weight,
            normalize_advantages=normalize_advantages,
        ),
        gamma=gamma,
        gae_lambda=gae_lambda,
        epochs=epochs,
        minibatch_size=minibatch_size,
        gradient_clipping=gradient_clipping,
        kl_penalty=None if kl_penalty is None else ppo_agent.KLPenalty(kl_penalty, kl_target),
        max_kl=max_kl,
        observation_normalizer=observation_normalizer,
        reward_normalizer=reward_normalizer,
        train_step_counter=world.train_step,
    )
    return algorithm.Algorithm(agent, gamma=gamma, kind=experience.UNROLLS)

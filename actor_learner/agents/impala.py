"""IMPALA: a policy gradient on short unrolls, corrected for actors that lag behind the learner."""

from __future__ import annotations

from typing import Any

from actor_learner import experience
from actor_learner.agents import algorithm, impala_agent, normalization, optimizers, schedules
from actor_learner.agents.networks import actor_critic_network
from actor_learner.support import configurable, errors


@configurable.register
def impala(
    world: algorithm.World,
    *,
    fc_layer_params: tuple[int, ...] = (64, 64),
    lstm_size: int | None = None,
    share_torso: bool = True,
    activation: str = "tanh",
    initial_stddev: float = 0.6,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    learning_rate_end: float | None = None,
    learning_rate_decay_steps: int = 1_000_000,
    optimizer_epsilon: float = 1e-5,
    gamma: float = 0.99,
    trace_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    value_weight: float = 0.5,
    entropy_weight: float = 0.01,
    gradient_clipping: float | None = 40.0,
    reward_scale: float = 1.0,
    reward_clipping: float | None = None,
    normalize_observations: bool = False,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """Builds IMPALA for discrete, continuous or mixed actions, with or without memory.

    Batches are those of `UnrollQueue`: `UnrollQueue.unroll_length` steps of
    `UnrollQueue.unrolls_per_batch` lanes, one gradient step each.

    Args:
      world: Specs and step counters.
      fc_layer_params: Dense layers, behind convolutions for images.
      lstm_size: Units of an LSTM behind them; None for no memory.
      share_torso: Whether policy and value share these layers; with an LSTM they must.
      activation: Keras name of the dense layers' activation.
      initial_stddev: Standard deviation of continuous actions at the start, as a share of half
        their range.
      optimizer: "adam" or "rmsprop".
      learning_rate: At the start.
      learning_rate_end: Reached after `learning_rate_decay_steps`, in a straight line; None keeps
        the rate.
      learning_rate_decay_steps: Environment steps; without `learning_rate_end` of no effect.
      optimizer_epsilon: Added to the optimizer's divisor; more makes steps on small gradients
        smaller.
      gamma: Discount factor.
      trace_lambda: Less than 1 trusts the values earlier: less variance, more bias.
      rho_bar: Bound of the importance ratios of the value's target and the policy gradient.
      c_bar: Bound of the importance ratios by which later errors reach back.
      value_weight: Weight of the value's loss.
      entropy_weight: Weight of the entropy that is rewarded.
      gradient_clipping: Largest global norm of the gradient; None clips nothing.
      reward_scale: Factor on all rewards, after they are normalised.
      reward_clipping: Scaled rewards are clipped to plus or minus this; None clips nothing.
      normalize_observations: Centre and scale float vectors by running statistics.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Scale rewards by the running deviation of discounted returns.
      reward_limit: Largest normalised reward.
    """
    for name, value in (("rho_bar", rho_bar), ("c_bar", c_bar), ("learning_rate", learning_rate)):
        if value <= 0:
            raise errors.ConfigError(f"impala.{name} must be above 0, got {value}")
    for name, value in (("trace_lambda", trace_lambda), ("gamma", gamma)):
        if not 0.0 <= value <= 1.0:
            raise errors.ConfigError(f"impala.{name} must lie in [0, 1], got {value}")
    normalization.check_limits(
        "impala",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )
    rate: Any = learning_rate
    if learning_rate_end is not None:
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
        observation_normalizer=observation_normalizer,
    )
    if normalize_rewards:
        reward_normalizer = normalization.RewardNormalizer(gamma, reward_limit)
        # Acting needs no rewards, but whoever trains an exported policy further needs their scale.
        network.reward_statistics = reward_normalizer.moments
    agent = impala_agent.ImpalaAgent(
        world.time_step_spec,
        world.action_spec,
        network=network,
        optimizer=_optimizer(optimizer, rate, optimizer_epsilon),
        gamma=gamma,
        trace_lambda=trace_lambda,
        rho_bar=rho_bar,
        c_bar=c_bar,
        value_weight=value_weight,
        entropy_weight=entropy_weight,
        reward_scale=reward_scale,
        reward_clipping=reward_clipping,
        gradient_clipping=gradient_clipping,
        observation_normalizer=observation_normalizer,
        reward_normalizer=reward_normalizer,
        train_step_counter=world.train_step,
    )
    return algorithm.Algorithm(agent, gamma=gamma, kind=experience.UNROLLS)


def _optimizer(name: str, learning_rate: Any, epsilon: float) -> Any:
    if name == "adam":
        return optimizers.Adam(learning_rate, epsilon=epsilon)
    if name == "rmsprop":
        return optimizers.RMSprop(learning_rate, rho=0.99, epsilon=epsilon)
    raise errors.ConfigError(f"impala.optimizer must be 'adam' or 'rmsprop', got {name!r}")

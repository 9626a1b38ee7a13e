"""SAC: off-policy actor-critic that also maximises entropy, for continuous or discrete actions."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.sac import sac_agent

from actor_learner import action_mask
from actor_learner.agents import (
    algorithm,
    discrete_sac_agent,
    normalization,
    normalized_agent,
    optimizers,
    scaled_agent,
)
from actor_learner.agents.losses import td_errors
from actor_learner.agents.networks import default_networks
from actor_learner.support import configurable, counters, errors

_ENTROPY_SHARE = 0.6


class SacWithTdErrors(td_errors.WithTdErrors, td_errors.WithEntropy, sac_agent.SacAgent):
    """SAC that says how far each item was off, over both critics."""


@configurable.register
def sac(
    world: algorithm.World,
    *,
    actor_fc_layer_params: tuple[int, ...] = (256, 256),
    critic_fc_layer_params: tuple[int, ...] = (256, 256),
    actor_learning_rate: float = 3e-4,
    critic_learning_rate: float = 3e-4,
    alpha_learning_rate: float = 3e-4,
    initial_alpha: float = 1.0,
    target_entropy: float | None = None,
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
    """Builds SAC for one continuous action vector, or for one discrete action.

    With a discrete action, an `action_mask` in the observation is respected.

    Args:
      world: Specs and step counters.
      actor_fc_layer_params: Dense layers of the actor.
      critic_fc_layer_params: Dense layers of each of the two critics.
      actor_learning_rate: Adam's learning rate for the actor.
      critic_learning_rate: Adam's learning rate for the critics.
      alpha_learning_rate: Adam's learning rate for the entropy's weight.
      initial_alpha: Weight of the entropy at the start.
      target_entropy: Entropy that the weight is tuned for, of actions in [-1, 1] whatever their
        bounds are; None means minus the number of action dimensions. For a discrete action, the
        share in (0, 1) of the largest entropy that its legal values can have; None means 0.6.
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
    if initial_alpha <= 0:
        raise errors.ConfigError(f"sac.initial_alpha must be above 0, got {initial_alpha}")
    options = {
        "actor_optimizer": optimizers.Adam(
            actor_learning_rate, clip_norm=gradient_clipping, gauge="actor_gradient_norm"
        ),
        "critic_optimizer": optimizers.Adam(
            critic_learning_rate, clip_norm=gradient_clipping, gauge="critic_gradient_norm"
        ),
        "alpha_optimizer": optimizers.Adam(alpha_learning_rate, clip_norm=gradient_clipping),
        "target_update_tau": target_update_tau,
        "target_update_period": target_update_period,
        "gamma": gamma,
        "initial_log_alpha": math.log(initial_alpha),
        "train_step_counter": world.train_step,
    }
    build = _continuous if _is_continuous(world.action_spec) else _discrete
    agent = build(
        world,
        actor_fc_layer_params,
        critic_fc_layer_params,
        target_entropy,
        reward_scale,
        options,
    )
    inner = getattr(agent, "inner", agent)  # Of continuous actions, the one that is scaled.
    return normalized_agent.normalized(
        algorithm.Algorithm(
            agent,
            n_step=n_step,
            gamma=gamma,
            priorities=td_errors.absolute_td_errors,
            gauges={"alpha": lambda: math.exp(counters.read(inner._log_alpha))},
        ),
        "sac",
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )


def _is_continuous(action_spec: Any) -> bool:
    return any(leaf.dtype.is_floating for leaf in tf.nest.flatten(action_spec))


def _continuous(
    world: algorithm.World,
    actor_layers: default_networks.Layers,
    critic_layers: default_networks.Layers,
    target_entropy: float | None,
    reward_scale: float,
    options: dict[str, Any],
) -> tf_agent.TFAgent:
    leaf, action_spec = default_networks.single_action(world.action_spec), world.action_spec
    world = scaled_agent.normalized_world(world)
    if target_entropy is None:
        target_entropy = -float(leaf.shape.num_elements())
    agent = SacWithTdErrors(
        world.time_step_spec,
        world.action_spec,
        critic_network=default_networks.Critic(
            (world.observation_spec, world.action_spec), critic_layers
        ),
        actor_network=default_networks.tanh_normal_actor_net(
            world.observation_spec, world.action_spec, actor_layers
        ),
        td_errors_loss_fn=tf.math.squared_difference,
        reward_scale_factor=reward_scale,
        target_entropy=target_entropy,
        **options,
    )
    return scaled_agent.ScaledAgent(agent, action_spec)


def _discrete(
    world: algorithm.World,
    actor_layers: default_networks.Layers,
    critic_layers: default_networks.Layers,
    entropy_share: float | None,
    reward_scale: float,
    options: dict[str, Any],
) -> tf_agent.TFAgent:
    default_networks.single_discrete_action(world.action_spec)
    if entropy_share is None:
        entropy_share = _ENTROPY_SHARE
    if not 0.0 < entropy_share < 1.0:
        raise errors.ConfigError(
            f"sac.target_entropy is {entropy_share}; for a discrete action it is the share of the "
            "largest entropy, above 0 and below 1"
        )
    mask = action_mask.find(world.observation_spec, world.action_spec)
    observation_spec = world.observation_spec if mask is None else mask.rest_spec
    actor, *critics = (
        default_networks.q_net(observation_spec, world.action_spec, layers)
        for layers in (actor_layers, *[critic_layers] * 4)
    )
    return discrete_sac_agent.DiscreteSacAgent(
        world.time_step_spec,
        world.action_spec,
        mask=mask,
        actor=actor,
        critics=tuple(critics[:2]),
        target_critics=tuple(critics[2:]),
        entropy_share=entropy_share,
        reward_scale=reward_scale,
        **options,
    )

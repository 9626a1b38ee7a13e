"""SAC for one discrete action: expectations over all actions instead of samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.distributions import shifted_categorical
from tf_agents.networks import network
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import action_mask, batch_notes
from actor_learner.agents.networks import default_networks, network_variables
from actor_learner.support import replicas, write_order


class DiscreteSacLoss(NamedTuple):
    """What a train step tells about its batch.

    Attributes:
      critic_loss: Mean squared TD error, summed over both critics.
      actor_loss: Mean of what the actor minimises.
      alpha_loss: Mean of what the entropy's weight minimises.
      alpha: The entropy's weight.
      entropy: Mean entropy of the policy.
      td_error: `[batch]`, absolute, the mean over both critics.
    """

    critic_loss: tf.Tensor
    actor_loss: tf.Tensor
    alpha_loss: tf.Tensor
    alpha: tf.Tensor
    entropy: tf.Tensor
    td_error: tf.Tensor


class CategoricalPolicy(tf_policy.TFPolicy):
    """Draws actions from the logits of a network, legal ones only.

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: One discrete tensor spec, or a nest with one leaf.
      logits: Of observations `[batch, ...]`, `[batch, actions]`.
      actor: The network that gives them.
    """

    def __init__(
        self, time_step_spec: ts.TimeStep, action_spec: Any, logits: Any, actor: network.Network
    ) -> None:
        super().__init__(time_step_spec, action_spec, clip=False)
        self._logits = logits
        self._actor = actor
        self._leaf = default_networks.single_discrete_action(action_spec)

    def _variables(self) -> Any:
        return self._actor.variables

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> policy_step.PolicyStep:
        distribution = shifted_categorical.ShiftedCategorical(
            logits=self._logits(time_step.observation),
            dtype=self._leaf.dtype,
            shift=self._leaf.minimum,
        )
        nest = tf.nest.pack_sequence_as(self.action_spec, [distribution])
        return policy_step.PolicyStep(nest, policy_state)


class DiscreteSacAgent(tf_agent.TFAgent):
    """Soft actor-critic whose critics rate all actions at once.

    With p the policy and Q the smaller of the two critics' values, the value of a state is
    `sum_a p(a) (Q(a) - alpha log p(a))`. Critics learn `reward + gamma value'` of the action taken,
    with target critics; the actor maximises the value; alpha is tuned until the entropy of p is
    `entropy_share` of the largest there could be, which is the logarithm of the number of legal
    actions. `train` takes transitions, `Trajectory` `[batch, 2, ...]`, and `weights` `[batch]`.

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: One discrete tensor spec, or a nest with one leaf.
      mask: Of the observations; None if all actions are always legal.
      actor: Logits `[batch, actions]` of what is observed besides the mask.
      critics: Two networks, values `[batch, actions]` of the same.
      target_critics: Two like these.
      actor_optimizer: A Keras optimizer; so are the next two.
      critic_optimizer: Of both critics.
      alpha_optimizer: Of the entropy's weight.
      initial_log_alpha: Logarithm of that weight at the start.
      entropy_share: See above, in (0, 1).
      gamma: Discount factor.
      reward_scale: Factor on all rewards.
      target_update_tau: Share of the critics in each target update.
      target_update_period: Train steps between target updates.
      train_step_counter: Raised by one per call of `train`.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        *,
        mask: action_mask.ActionMask | None,
        actor: network.Network,
        critics: tuple[network.Network, network.Network],
        target_critics: tuple[network.Network, network.Network],
        actor_optimizer: Any,
        critic_optimizer: Any,
        alpha_optimizer: Any,
        initial_log_alpha: float,
        entropy_share: float,
        gamma: float,
        reward_scale: float,
        target_update_tau: float,
        target_update_period: int,
        train_step_counter: tf.Variable,
    ) -> None:
        with network_variables.of_any_integers():
            for each in (actor, *critics, *target_critics):
                each.create_variables()
        tf.Module.__init__(self, name="DiscreteSacAgent")
        self._mask = mask
        self._actor = actor
        self._critics = critics
        self._target_critics = target_critics
        self._actor_optimizer = actor_optimizer
        self._critic_optimizer = critic_optimizer
        self._alpha_optimizer = alpha_optimizer
        self._log_alpha = tf.Variable(float(initial_log_alpha), name="initial_log_alpha")
        self._entropy_share = entropy_share
        self._gamma = gamma
        self._reward_scale = reward_scale
        self._tau = target_update_tau
        self._period = target_update_period
        self._leaf = default_networks.single_discrete_action(action_spec)
        policy = CategoricalPolicy(time_step_spec, action_spec, self._masked_logits, actor)
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            policy,
            train_sequence_length=2,
            train_step_counter=train_step_counter,
        )

    def _initialize(self) -> None:
        self._update_targets(1.0)

    def _train(
        self, experience: trajectory_lib.Trajectory, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        critic_variables = [v for critic in self._critics for v in critic.trainable_variables]
        actor_variables = self._actor.trainable_variables
        with tf.GradientTape(persistent=True) as tape:
            losses = self._losses(experience, weights)
        # Checked before anything is written: the three optimizers apply all or nothing.
        with write_order.checks_come_first():
            for name in ("critic_loss", "actor_loss", "alpha_loss"):
                tf.debugging.check_numerics(getattr(losses, name), f"the {name} of SAC")
            for loss, optimizer, variables in (
                (losses.critic_loss, self._critic_optimizer, critic_variables),
                (losses.actor_loss, self._actor_optimizer, actor_variables),
                (losses.alpha_loss, self._alpha_optimizer, [self._log_alpha]),
            ):
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            step = self.train_step_counter.assign_add(1)
            replicas.in_step(self._update_targets_when_due)
        for name in ("critic_loss", "actor_loss", "alpha_loss", "alpha", "entropy"):
            tf.summary.scalar(f"Losses/{name}", getattr(losses, name), step=step)
        return self._info(losses)

    def _loss(
        self,
        experience: trajectory_lib.Trajectory,
        weights: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        del training  # The networks have no layer that would behave otherwise.
        return self._info(self._losses(experience, weights))

    def _info(self, losses: DiscreteSacLoss) -> tf_agent.LossInfo:
        total = losses.critic_loss + losses.actor_loss + losses.alpha_loss
        return tf_agent.LossInfo(total, losses)

    def _losses(
        self, experience: trajectory_lib.Trajectory, weights: tf.Tensor | None
    ) -> DiscreteSacLoss:
        now, taken, then = trajectory_lib.experience_to_transitions(
            experience, squeeze_time_dim=True
        )
        alpha = tf.exp(self._log_alpha)
        frozen_alpha = tf.stop_gradient(alpha)

        _, soft_value, _ = self._rated(then.observation, self._target_critics, frozen_alpha)
        reward = self._reward_scale * then.reward
        target = tf.stop_gradient(reward + self._gamma * then.discount * soft_value)
        target = batch_notes.note("target", target)
        action = tf.nest.flatten(taken.action)[0] - self._leaf.minimum
        observed, _ = self._split(now.observation)
        errors = []
        for critic in self._critics:
            values, _ = critic(observed)
            values = tf.gather(values, action, batch_dims=1)
            batch_notes.gauge("q_value", values)
            errors.append(target - values)

        entropy, soft_value, num_legal = self._rated(now.observation, self._critics, frozen_alpha)
        wanted = self._entropy_share * tf.math.log(num_legal)
        missing = tf.stop_gradient(wanted - entropy)

        def mean(values: tf.Tensor) -> tf.Tensor:
            return replicas.mean(values if weights is None else values * weights)

        td_error = tf.stop_gradient(tf.add_n([tf.abs(error) for error in errors]) / 2.0)
        batch_notes.gauge("td_error", td_error)
        return DiscreteSacLoss(
            critic_loss=mean(tf.add_n([tf.square(error) for error in errors])),
            actor_loss=mean(-soft_value),
            alpha_loss=mean(-self._log_alpha * missing),
            alpha=replicas.share(alpha),
            entropy=replicas.mean(entropy),
            td_error=td_error,
        )

    def _rated(
        self, observation: Any, critics: tuple[network.Network, ...], alpha: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Entropy, soft value, and number of legal actions, `[batch]` each.

        A gradient flows to the actor, and to no critic.
        """
        observed, legal = self._split(observation)
        log_probability = tf.nn.log_softmax(self._masked_logits(observation))
        probability = tf.exp(log_probability)  # 0 where an action is not legal.
        values = tf.stop_gradient(tf.minimum(*(critic(observed)[0] for critic in critics)))
        entropy = -tf.reduce_sum(probability * log_probability, axis=-1)
        value = tf.reduce_sum(probability * values, axis=-1) + alpha * entropy
        if legal is None:
            return entropy, value, tf.cast(tf.shape(values)[-1], tf.float32)
        return entropy, value, tf.reduce_sum(tf.cast(legal, tf.float32), axis=-1)

    def _masked_logits(self, observation: Any) -> tf.Tensor:
        observed, legal = self._split(observation)
        logits, _ = self._actor(observed)
        return logits if legal is None else tf.where(legal, logits, default_networks.ILLEGAL)

    def _split(self, observation: Any) -> tuple[Any, tf.Tensor | None]:
        return (observation, None) if self._mask is None else self._mask.split(observation)

    def _update_targets_when_due(self) -> None:
        due = tf.equal(self.train_step_counter % self._period, 0)
        tf.cond(due, lambda: self._update_targets(self._tau), lambda: None)

    def _update_targets(self, tau: float) -> None:
        for critic, target in zip(self._critics, self._target_critics):
            for source, copy in zip(critic.variables, target.variables):
                copy.assign(source if tau == 1.0 else (1.0 - tau) * copy + tau * source)

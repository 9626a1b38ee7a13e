"""IMPALA as a TFAgent: an actor-critic that learns from unrolls of slightly older policies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.trajectories import time_step as ts

from actor_learner import batch_notes
from actor_learner import experience as experience_lib
from actor_learner.agents import normalization, unroll_policy
from actor_learner.agents.losses import vtrace as vtrace_lib
from actor_learner.agents.networks import actor_critic_network
from actor_learner.support import errors, replicas


class ImpalaLoss(NamedTuple):
    """Means over the steps of a batch, scalars.

    Attributes:
      policy_loss: Of the policy gradient.
      value_loss: Half the squared error of the values.
      entropy: Of the policy.
      importance: Ratio of the probabilities of the actions now and when they were chosen; far from
        1 the actors lag too far behind.
      gradient_norm: Norm of the gradient before it is clipped; 0 where none was computed.
    """

    policy_loss: tf.Tensor
    value_loss: tf.Tensor
    entropy: tf.Tensor
    importance: tf.Tensor
    gradient_norm: tf.Tensor


class ImpalaAgent(tf_agent.TFAgent):
    """One gradient step per batch of unrolls, with V-trace's targets.

    `train` takes an `experience.Unroll`. The loss is the mean over all steps, boundary rows left
    out, of

        -advantage * log pi(action) + value_weight / 2 * (v - V)^2 - entropy_weight * entropy

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: What the network was made for.
      network: Policy and value.
      optimizer: A Keras optimizer.
      gamma: Discount factor.
      trace_lambda: Factor of V-trace's c.
      rho_bar: Bound of V-trace's rho.
      c_bar: Bound of V-trace's c.
      value_weight: Weight of the value's loss.
      entropy_weight: Weight of the entropy that is rewarded.
      reward_scale: Factor on all rewards.
      reward_clipping: Scaled rewards are clipped to plus or minus this; None clips nothing.
      gradient_clipping: Largest global norm of the gradient; None clips nothing.
      observation_normalizer: The network's, to be updated; None if it has none.
      reward_normalizer: Scales the rewards, before `reward_scale`; None leaves them. Like the
        statistics of observations, its own are updated last, so that actions and loss are computed
        with the same ones.
      train_step_counter: Scalar int64 variable, raised by one per train step.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        *,
        network: actor_critic_network.ActorCriticNetwork,
        optimizer: Any,
        gamma: float = 0.99,
        trace_lambda: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        value_weight: float = 0.5,
        entropy_weight: float = 0.01,
        reward_scale: float = 1.0,
        reward_clipping: float | None = None,
        gradient_clipping: float | None = None,
        observation_normalizer: normalization.ObservationNormalizer | None = None,
        reward_normalizer: normalization.RewardNormalizer | None = None,
        train_step_counter: tf.Variable | None = None,
    ) -> None:
        self._network = network
        self._optimizer = optimizer
        self._gamma = gamma
        self._trace_lambda = trace_lambda
        self._rho_bar = rho_bar
        self._c_bar = c_bar
        self._value_weight = value_weight
        self._entropy_weight = entropy_weight
        self._reward_scale = reward_scale
        self._reward_clipping = reward_clipping
        self._gradient_clipping = gradient_clipping
        self._observation_normalizer = observation_normalizer
        self._reward_normalizer = reward_normalizer
        super().__init__(
            time_step_spec,
            action_spec,
            unroll_policy.ActorCriticPolicy(time_step_spec, action_spec, network),
            unroll_policy.UnrollCollectPolicy(time_step_spec, action_spec, network),
            train_sequence_length=None,
            train_step_counter=train_step_counter,
        )

    def _initialize(self) -> None:
        """Does nothing: the network's variables are made with it."""

    def _train(self, experience: experience_lib.Unroll, weights: Any = None) -> tf_agent.LossInfo:
        variables = self._network.trainable_variables
        with tf.GradientTape() as tape:
            info = self._loss(experience, weights, training=True)
        tf.debugging.check_numerics(info.loss, "the loss of IMPALA is not finite")
        gradients = replicas.reduced(tape.gradient(info.loss, variables))
        norm = tf.linalg.global_norm(gradients)
        if self._gradient_clipping is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._gradient_clipping, norm)
        info = info._replace(extra=info.extra._replace(gradient_norm=replicas.share(norm)))
        self._optimizer.apply_gradients(
            zip(gradients, variables), experimental_aggregate_gradients=False
        )
        for name, value in zip(("loss", *info.extra._fields), (info.loss, *info.extra)):
            tf.summary.scalar(f"Losses/{name}", value, self.train_step_counter)
        if self._observation_normalizer is not None:
            self._observation_normalizer.update(
                tf.nest.map_structure(lambda leaf: leaf[:, :-1], experience.trajectory.observation)
            )
        if self._reward_normalizer is not None:
            self._reward_normalizer.update(experience.trajectory)
        self.train_step_counter.assign_add(1)
        return info

    def _loss(
        self, experience: experience_lib.Unroll, weights: Any = None, training: bool = False
    ) -> tf_agent.LossInfo:
        if weights is not None:
            raise errors.SpecMismatchError(
                "IMPALA learns from each unroll once and takes no weights: use an UnrollQueue"
            )
        trajectory = experience.trajectory
        outputs, _ = self._network(
            trajectory.observation,
            step_type=trajectory.step_type,
            network_state=experience.state,
            training=training,
        )
        steps = tf.nest.map_structure(lambda leaf: leaf[:, :-1], trajectory)
        parameters = outputs.parameters[:, :-1]
        log_probability = unroll_policy.log_probability(self._network, parameters, steps)
        trace = vtrace_lib.vtrace(
            behaviour_log_probability=steps.policy_info[experience_lib.LOG_PROBABILITY],
            target_log_probability=log_probability,
            step_type=steps.step_type,
            reward=self._rewards(steps.reward),
            discount=self._gamma * steps.discount,
            value=outputs.value,
            rho_bar=self._rho_bar,
            c_bar=self._c_bar,
            trace_lambda=self._trace_lambda,
        )
        trace = trace._replace(value_target=batch_notes.note("target", trace.value_target))
        weight = trace.mask / replicas.loss_divisor(tf.reduce_sum(trace.mask))
        batch_notes.gauge(
            "explained_variance",
            trace.value_target,
            outputs.value[:, :-1],
            trace.mask,
            reduce=_explained_variance,
        )
        errors_of_value = tf.math.squared_difference(trace.value_target, outputs.value[:, :-1])
        parts = ImpalaLoss(
            policy_loss=-tf.reduce_sum(weight * trace.advantage * log_probability),
            value_loss=0.5 * tf.reduce_sum(weight * errors_of_value),
            entropy=tf.reduce_sum(weight * self._network.distribution.entropy(parameters)),
            importance=tf.reduce_sum(weight * trace.importance),
            gradient_norm=tf.zeros([]),
        )
        loss = (
            parts.policy_loss
            + self._value_weight * parts.value_loss
            - self._entropy_weight * parts.entropy
        )
        return tf_agent.LossInfo(loss, parts)

    def _rewards(self, reward: tf.Tensor) -> tf.Tensor:
        if self._reward_normalizer is not None:
            reward = self._reward_normalizer.normalize(reward)
        if self._reward_scale != 1.0:
            reward *= self._reward_scale
        if self._reward_clipping is not None:
            reward = tf.clip_by_value(reward, -self._reward_clipping, self._reward_clipping)
        return reward


def _explained_variance(target: np.ndarray, value: np.ndarray, mask: np.ndarray) -> float:
    """The share of the targets' variance that the values explain; 0 if the targets are one."""
    target, value = target[mask > 0], value[mask > 0]
    variance = float(target.var()) if target.size else 0.0
    return 1.0 - float((target - value).var()) / variance if variance else 0.0

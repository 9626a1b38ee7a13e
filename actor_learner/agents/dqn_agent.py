"""TF-Agents' DQN with a train step of fewer operations; the losses and weights are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents import data_converter
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import network
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

from actor_learner import batch_notes
from actor_learner.agents.losses import td_errors


def _mean_distance(targets: np.ndarray, predictions: np.ndarray) -> float:
    return float(np.abs(targets - predictions).mean())


class DqnAgent(dqn_agent.DqnAgent):
    """DQN on single transitions.

    Most of a small network's train step is spent on starting operations. TF-Agents' agent computes
    returns over n steps by a loop in the graph even for n = 1, and finds the best action by a
    policy with its distribution; both are left out here. Returns over several steps come ready out
    of our streams.

    Args:
      *args: Of TF-Agents' agent.
      **kwargs: Of TF-Agents' agent, but `n_step_update`; `q_network` must not be recurrent.
    """

    def __init__(
        self, *args: Any, td_errors_loss_fn: td_errors.LossFn | None = None, **kwargs: Any
    ) -> None:
        loss_fn = td_errors_loss_fn or common.element_wise_huber_loss

        def noting_loss(targets: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
            targets = batch_notes.note("target", targets)
            batch_notes.gauge("q_value", predictions)
            batch_notes.gauge("td_error", targets, predictions, reduce=_mean_distance)
            return loss_fn(targets, predictions)

        super().__init__(*args, td_errors_loss_fn=noting_loss, **kwargs)
        self._as_transition = data_converter.AsTransition(self.data_context, squeeze_time_dim=True)

    def _compute_next_q_values(self, next_time_steps: ts.TimeStep, info: Any) -> tf.Tensor:
        del info
        return tf.reduce_max(self._q_values(self._target_q_network, next_time_steps), axis=-1)

    def _q_values(self, q_network: network.Network, time_steps: ts.TimeStep) -> tf.Tensor:
        """The values `[batch, actions]`; those of illegal actions are lower than any other.

        Where nothing is legal, everything counts as legal.
        """
        observation, mask = time_steps.observation, None
        if self._observation_and_action_constraint_splitter is not None:
            observation, mask = self._observation_and_action_constraint_splitter(observation)
        values, _ = q_network(observation, step_type=time_steps.step_type)
        if mask is None:
            return values
        legal = tf.cast(mask, tf.bool)
        # A splitter may leave nothing legal, as in the last observation of an episode.
        legal |= tf.logical_not(tf.reduce_any(legal, axis=-1, keepdims=True))
        return tf.where(legal, values, values.dtype.min)


class DdqnAgent(DqnAgent):
    """Double DQN: the online network chooses the action that the target network rates."""

    def _compute_next_q_values(self, next_time_steps: ts.TimeStep, info: Any) -> tf.Tensor:
        del info
        best = tf.argmax(self._q_values(self._q_network, next_time_steps), axis=-1)
        values = self._q_values(self._target_q_network, next_time_steps)
        return tf.gather(values, best, batch_dims=1)

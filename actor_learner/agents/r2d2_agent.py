"""R2D2: recurrent Q-learning on sequences, from the state that the actor had."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import greedy_policy, q_policy
from tf_agents.trajectories import time_step as ts

from actor_learner import batch_notes, experience
from actor_learner.agents import r2d2_policy
from actor_learner.agents.losses import sequence_td
from actor_learner.agents.networks import default_networks, network_variables, recurrent_q_network
from actor_learner.support import errors, replicas


class R2d2Loss(NamedTuple):
    """What a train step tells about its batch.

    Attributes:
      priorities: `[batch]`, of its sequences, before any exponent.
      td_error: Mean absolute TD error of the rows learned from.
      q_value: Mean value of the actions taken in them.
    """

    priorities: tf.Tensor
    td_error: tf.Tensor
    q_value: tf.Tensor


class R2d2Agent(tf_agent.TFAgent):
    """Double Q-learning with a recurrent network, a target network, and stored states.

    `train` takes an `experience.Sequence` and `weights` `[batch]`. The network goes through a
    sequence from the stored state of its row 0; the first `td.burn_in` rows make up for that state
    being of older weights, and no gradient flows through them, except in sequences that begin an
    episode, whose state is exact. The loss is half the squared TD error, weighted per sequence and
    averaged over all rows learned from.

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: One discrete tensor spec, or a nest with one leaf.
      q_network: The network that acts and is trained.
      target_network: One like it, which is a copy of it from time to time.
      optimizer: A Keras optimizer.
      td: Defines the TD errors.
      epsilons: `[lanes]`, shares of random actions of the collect policy.
      target_update_period: Train steps between copies.
      gradient_clipping: Largest global norm of the gradient; None clips nothing.
      train_step_counter: Scalar int64 variable.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        *,
        q_network: recurrent_q_network.RecurrentQNetwork,
        target_network: recurrent_q_network.RecurrentQNetwork,
        optimizer: tf.keras.optimizers.Optimizer,
        td: sequence_td.SequenceTd,
        epsilons: np.ndarray,
        target_update_period: int,
        gradient_clipping: float | None,
        train_step_counter: tf.Variable,
    ) -> None:
        if target_update_period < 1:
            raise errors.ConfigError(
                f"target_update_period must be at least 1, got {target_update_period}"
            )
        self._q_network = q_network
        self._target_network = target_network
        with network_variables.of_any_integers():
            q_network.create_variables()
            target_network.create_variables()
        self._optimizer = optimizer
        self._td = td
        self._target_update_period = target_update_period
        self._gradient_clipping = gradient_clipping
        self._action_leaf = default_networks.single_discrete_action(action_spec)
        collect_policy = r2d2_policy.R2d2CollectPolicy(
            time_step_spec, action_spec, q_network, epsilons
        )
        policy = greedy_policy.GreedyPolicy(
            q_policy.QPolicy(
                time_step_spec,
                action_spec,
                q_network=q_network,
                validate_action_spec_and_network=False,  # It would refuse actions from 1 on.
            )
        )
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            collect_policy,
            train_sequence_length=None,
            train_step_counter=train_step_counter,
        )

    def initial_priorities(self, sequence: experience.Sequence) -> np.ndarray:
        """Priorities `[n]` of sequences as the actor collected them, from the values it acted by.

        The value that a row is bootstrapped from is the best one by the acting network, which is
        what double Q-learning gives while the target network is equal to it.

        Args:
          sequence: NumPy leaves `[n, L, ...]`; needs no observations and no states.
        """
        trajectory, mask = sequence.trajectory, sequence.mask
        target = self._td.targets(
            np,
            trajectory.reward,
            trajectory.discount,
            trajectory.step_type,
            mask,
            trajectory.policy_info[r2d2_policy.Q_BEST],
        )
        error = target - trajectory.policy_info[r2d2_policy.Q_TAKEN]
        learned = self._td.learned(np, trajectory.step_type, mask)
        return self._td.priorities(np, error, learned)

    def sequence_values(self, sequence: experience.Sequence) -> tuple[tf.Tensor, tf.Tensor]:
        """Values of all rows `[batch, L, actions]`, by the network and by the target network.

        A gradient flows to the first, but through no burn-in.
        """
        trajectory, state = sequence.trajectory, sequence.state
        burn_in = self._td.burn_in
        target_values, _ = self._target_network(
            trajectory.observation, step_type=trajectory.step_type, network_state=state
        )
        if not burn_in or not tf.nest.flatten(state):
            values, _ = self._q_network(
                trajectory.observation, step_type=trajectory.step_type, network_state=state
            )
            return values, target_values

        def part(rows: slice) -> tuple[Any, tf.Tensor]:
            cut = tf.nest.map_structure(lambda leaf: leaf[:, rows], trajectory.observation)
            return cut, trajectory.step_type[:, rows]

        observation, step_type = part(slice(None, burn_in))
        first_values, state = self._q_network(observation, step_type=step_type, network_state=state)
        begins_episode = tf.equal(trajectory.step_type[:, :1], ts.StepType.FIRST)
        state = tf.nest.map_structure(
            lambda leaf: tf.where(begins_episode, leaf, tf.stop_gradient(leaf)), state
        )
        observation, step_type = part(slice(burn_in, None))
        values, _ = self._q_network(observation, step_type=step_type, network_state=state)
        return tf.concat([first_values, values], axis=1), target_values

    def _initialize(self) -> None:
        self._update_target()

    def _train(
        self, experience: experience.Sequence, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        variables = self._q_network.trainable_variables
        with tf.GradientTape() as tape:
            loss_info = self._loss(experience, weights)
        tf.debugging.check_numerics(loss_info.loss, "the loss of R2D2 is not finite")
        gradients = replicas.reduced(tape.gradient(loss_info.loss, variables))
        if self._gradient_clipping is not None:
            norm = tf.linalg.global_norm(gradients)
            gradients, _ = tf.clip_by_global_norm(gradients, self._gradient_clipping, norm)
            batch_notes.gauge("gradient_norm", norm)
        self._optimizer.apply_gradients(
            zip(gradients, variables), experimental_aggregate_gradients=False
        )
        step = self.train_step_counter.assign_add(1)
        replicas.in_step(self._update_target_when_due)
        for name in ("td_error", "q_value"):
            tf.summary.scalar(f"R2D2/{name}", getattr(loss_info.extra, name), step=step)
        tf.summary.scalar("Losses/loss", loss_info.loss, step=step)
        return loss_info

    def _loss(
        self,
        experience: experience.Sequence,
        weights: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        del training  # The network has no layer that would behave otherwise.
        trajectory, mask = experience.trajectory, experience.mask
        self._check_length(trajectory.step_type.shape[1])
        values, target_values = self.sequence_values(experience)
        best = tf.argmax(values, axis=-1, output_type=tf.int32)
        target = self._td.targets(
            tf,
            trajectory.reward,
            trajectory.discount,
            trajectory.step_type,
            mask,
            tf.gather(target_values, best, batch_dims=2),
        )
        target = batch_notes.note("target", target)
        action = tf.nest.flatten(trajectory.action)[0] - self._action_leaf.minimum
        taken = tf.gather(values, action, batch_dims=2)  # [batch, L]
        error = tf.stop_gradient(target) - taken
        learned = self._td.learned(tf, trajectory.step_type, mask)
        per_sequence = tf.reduce_sum(0.5 * tf.square(error) * learned, axis=1)
        if weights is not None:
            per_sequence *= weights
        num_rows = replicas.loss_divisor(tf.reduce_sum(learned))
        loss = tf.reduce_sum(per_sequence) / num_rows
        return tf_agent.LossInfo(
            loss,
            R2d2Loss(
                priorities=self._td.priorities(tf, tf.stop_gradient(error), learned),
                td_error=tf.reduce_sum(tf.abs(error) * learned) / num_rows,
                q_value=tf.reduce_sum(taken * learned) / num_rows,
            ),
        )

    def _update_target_when_due(self) -> None:
        due = tf.equal(self.train_step_counter % self._target_update_period, 0)
        tf.cond(due, self._update_target, lambda: None)

    def _update_target(self) -> None:
        for target, online in zip(self._target_network.variables, self._q_network.variables):
            target.assign(online)

    def _check_length(self, length: int) -> None:
        if self._td.burn_in > length - 2:
            raise errors.ConfigError(
                f"r2d2.burn_in is {self._td.burn_in} and SequenceReplay.sequence_length {length}: "
                "after burn-in there must be at least two steps, of which one is learned from. "
                "Better still, burn_in < sequence_length - period, so that no step is left out"
            )

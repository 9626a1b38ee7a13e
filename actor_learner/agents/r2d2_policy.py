"""How R2D2 acts: epsilon-greedily, each lane with an epsilon of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.agents.networks import default_networks, recurrent_q_network
from actor_learner.support import errors

Q_TAKEN = "q_taken"
"""Key of the collect policy's info: the value of the action taken."""

Q_BEST = "q_best"
"""Key of the collect policy's info: the value of the best action."""


def lane_epsilons(
    first_lane: int,
    num_lanes: int,
    total_lanes: int,
    base: float = 0.4,
    exponents: tuple[float, float] = (1.0, 8.0),
) -> np.ndarray:
    """Shares of random actions: `base ** linspace(*exponents, total_lanes)`, those of one actor.

    A single lane gets the last of the ladder: with the first it would explore for ever as the
    boldest of many does, and no lane would follow the policy that is learned.

    Args:
      first_lane: Number of the actor's first lane among all lanes.
      num_lanes: Lanes of the actor.
      total_lanes: Lanes of all actors.
      base: Number in [0, 1].
      exponents: Of the first and the last lane.

    Returns:
      `[num_lanes]` float32.
    """
    if not 0.0 <= base <= 1.0 or min(exponents) < 0:
        raise errors.ConfigError(
            f"epsilons are epsilon_base ({base}) to the power of epsilon_exponents ({exponents}): "
            "the base must lie in [0, 1] and the exponents must not be negative"
        )
    first, last = exponents
    everyone = base ** np.linspace(first if total_lanes > 1 else last, last, total_lanes)
    return everyone[first_lane : first_lane + num_lanes].astype(np.float32)


class R2d2CollectPolicy(tf_policy.TFPolicy):
    """Takes the action of the highest value, or with a lane's epsilon a random one.

    Its info is a dictionary: `experience.STATE`, the network's state that the values were computed
    from, and the values `Q_TAKEN` and `Q_BEST`, from which priorities of new sequences follow.

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: One discrete tensor spec, or a nest with one leaf.
      q_network: Gives the values; shared with the agent.
      epsilons: `[lanes]`; a batch of another size goes through them again and again.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        q_network: recurrent_q_network.RecurrentQNetwork,
        epsilons: np.ndarray,
    ) -> None:
        scalar = tf.TensorSpec([], tf.float32)
        super().__init__(
            time_step_spec,
            action_spec,
            policy_state_spec=q_network.state_spec,
            info_spec={
                experience.STATE: q_network.state_spec,
                Q_TAKEN: scalar,
                Q_BEST: scalar,
            },
            clip=False,
        )
        self._q_network = q_network
        # Of any number of lanes: a run may be resumed with others. Whoever restores a checkpoint
        # shares the lanes out again.
        self._epsilons = tf.Variable(
            np.asarray(epsilons, np.float32), trainable=False, shape=tf.TensorShape([None])
        )
        self._leaf_spec = default_networks.single_discrete_action(action_spec)

    @property
    def epsilons(self) -> np.ndarray:
        """`[lanes]`, the share of random actions of each lane."""
        return self._epsilons.numpy()

    @epsilons.setter
    def epsilons(self, epsilons: np.ndarray) -> None:
        self._epsilons.assign(np.asarray(epsilons, np.float32))

    lane_values = epsilons  # What tells one lane from another, for whoever acts for some of them.

    def for_lanes(self, num_lanes: int) -> R2d2CollectPolicy:
        """The same policy for so many lanes, with epsilons of its own: those of the first ones."""
        return R2d2CollectPolicy(
            self.time_step_spec,
            self.action_spec,
            self._q_network,
            np.take(self.epsilons, range(num_lanes), mode="wrap"),
        )

    def _variables(self) -> Any:
        return self._q_network.variables

    def _action(self, time_step: ts.TimeStep, policy_state: Any, seed: Any) -> Any:
        state = self._q_network.state_for(time_step.step_type, policy_state)
        values, next_state = self._q_network(
            time_step.observation, step_type=time_step.step_type, network_state=state
        )  # [lanes, actions]
        num_lanes = tf.shape(values)[0]
        # With one seed for both draws, which lanes explore would decide how they do.
        seeds = tfp.util.SeedStream(seed, salt="r2d2_collect_policy")
        best = tf.argmax(values, axis=-1, output_type=tf.int32)
        legal = self._q_network.legal(time_step.observation)
        if legal is None:
            random = tf.random.uniform(
                [num_lanes], maxval=values.shape[-1], dtype=tf.int32, seed=seeds()
            )
        else:
            # The largest of as many random numbers as there are legal actions.
            drawn = tf.where(legal, tf.random.uniform(tf.shape(values), seed=seeds()), -1.0)
            random = tf.argmax(drawn, axis=-1, output_type=tf.int32)
        epsilons = tf.gather(self._epsilons, tf.range(num_lanes) % tf.size(self._epsilons))
        explores = tf.random.uniform([num_lanes], seed=seeds()) < epsilons
        chosen = tf.where(explores, random, best)
        action = tf.cast(chosen, self._leaf_spec.dtype) + self._leaf_spec.minimum
        info = {
            experience.STATE: state,
            Q_TAKEN: tf.gather(values, chosen, batch_dims=1),
            Q_BEST: tf.reduce_max(values, axis=-1),
        }
        return policy_step.PolicyStep(
            tf.nest.pack_sequence_as(self.action_spec, [action]), next_state, info
        )

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> Any:
        raise NotImplementedError("the info needs the action that was taken; use action()")

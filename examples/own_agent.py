"""An agent of one's own: `python train.py --gin_file=examples/own_agent.gin`.

A builder takes a `World` and returns a `TFAgent`, or an `Algorithm` that says more about it.
"""

import gin
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.networks import sequential
from tf_agents.policies import epsilon_greedy_policy, q_policy

from actor_learner import Algorithm, World


class LinearQAgent(tf_agent.TFAgent):
    """Q-learning with one linear layer: as small as an agent can be, and no smaller."""

    def __init__(self, world: World, learning_rate: float, gamma: float, epsilon: float):
        num_actions = int(world.action_spec.maximum - world.action_spec.minimum + 1)
        self._network = sequential.Sequential([tf.keras.layers.Dense(num_actions)])
        self._network.create_variables(world.observation_spec)
        self._optimizer = tf.keras.optimizers.Adam(learning_rate)
        self._gamma = gamma
        policy = q_policy.QPolicy(world.time_step_spec, world.action_spec, self._network)
        super().__init__(
            world.time_step_spec,
            world.action_spec,
            policy,
            epsilon_greedy_policy.EpsilonGreedyPolicy(policy, epsilon),
            train_sequence_length=2,
            # Raised in `_train`; a run whose agent forgets that ends with an error.
            train_step_counter=world.train_step,
        )

    def _train(self, experience, weights=None):
        """`experience`: `Trajectory`, leaves `[batch, 2, ...]`, as of `experience.TRANSITIONS`."""
        observation = experience.observation  # [batch, 2, ...]
        with tf.GradientTape() as tape:
            values, _ = self._network(observation[:, 0])
            next_values, _ = self._network(observation[:, 1])
            target = experience.reward[:, 0] + self._gamma * experience.discount[:, 0] * (
                tf.reduce_max(next_values, axis=-1)
            )
            taken = tf.gather(values, experience.action[:, 0], batch_dims=1)
            error = tf.stop_gradient(target) - taken  # [batch]
            loss = tf.reduce_mean(tf.square(error) * (1.0 if weights is None else weights))
        variables = self._network.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.train_step_counter.assign_add(1)
        # Scalars with names become columns of the metrics; `[batch]` may serve as priorities.
        return tf_agent.LossInfo(loss, {"q_value": tf.reduce_mean(taken), "error": error})


@gin.configurable
def linear_q(world, learning_rate=1e-2, gamma=0.99, epsilon=0.1):
    """Builds it; `Experiment.agent = @linear_q`."""
    return Algorithm(
        LinearQAgent(world, learning_rate, gamma, epsilon),
        gamma=gamma,  # Replay sums n-step returns with it.
        priorities=lambda loss: tf.abs(loss.extra["error"]),  # So PrioritizedReplay works, too.
        gauges={"epsilon_greedy": lambda: epsilon},  # Any number worth a chart.
    )

"""A network of one's own, in TF-Agents' DQN: `--gin_file=examples/own_network.gin`."""

import gin
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import network

from actor_learner import Algorithm


class DuelingNetwork(network.Network):
    """Q = V + A - mean(A): values and advantages from one body."""

    def __init__(self, observation_spec, num_actions, units, name="DuelingNetwork"):
        super().__init__(observation_spec, name=name)  # Target networks are copies with a name.
        self._body = tf.keras.layers.Dense(units, "relu")
        self._value = tf.keras.layers.Dense(1)
        self._advantage = tf.keras.layers.Dense(num_actions)

    def call(self, observation, step_type=None, network_state=(), training=False):
        hidden = self._body(observation)  # [batch, units]
        advantage = self._advantage(hidden)
        values = self._value(hidden) + advantage - tf.reduce_mean(advantage, -1, keepdims=True)
        return values, network_state


@gin.configurable
def dueling_dqn(world, units=64, learning_rate=1e-3, gamma=0.99, epsilon=0.1):
    """Builds TF-Agents' double DQN around it; any agent of theirs is used in this way."""
    num_actions = int(world.action_spec.maximum - world.action_spec.minimum + 1)
    agent = dqn_agent.DdqnAgent(
        world.time_step_spec,
        world.action_spec,
        q_network=DuelingNetwork(world.observation_spec, num_actions, units),
        optimizer=tf.keras.optimizers.Adam(learning_rate),
        epsilon_greedy=epsilon,
        target_update_period=200,
        gamma=gamma,
        train_step_counter=world.train_step,
    )
    return Algorithm(agent, gamma=gamma)

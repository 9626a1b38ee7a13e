"""Values of actions given all that was observed since the episode began."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import nest_utils

from actor_learner import action_mask
from actor_learner.agents.networks import default_networks, encoders, lstm


class RecurrentQNetwork(network.Network):
    """Encoder, LSTM, and a head with one value per action.

    Takes observations of one step, `[batch, ...]`, or of T consecutive steps of one episode each,
    `[batch, T, ...]`, of which only the first may be of type FIRST: then the state is fresh.

    Args:
      observation_spec: Nest of tensor specs. Actions that an `action_mask` in it excludes have
        values below all others.
      action_spec: One discrete tensor spec, or a nest with one leaf.
      fc_layer_params: Dense layers between the observation (after convolutions for images) and
        the LSTM.
      lstm_size: Units of the LSTM; None leaves it out, and with it all memory.
      head_layer_params: Dense layers after the LSTM.
      dueling: Whether the value of the situation and the advantages of actions have heads, with
        dense layers, of their own.
      name: Name of the network.
    """

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        fc_layer_params: default_networks.Layers,
        lstm_size: int | None,
        head_layer_params: default_networks.Layers,
        dueling: bool,
        name: str = "RecurrentQNetwork",
    ) -> None:
        state_spec: Any = ()
        if lstm_size is not None:
            unit_spec = tensor_spec.TensorSpec([lstm_size], tf.float32)
            state_spec = (unit_spec, unit_spec)
        super().__init__(input_tensor_spec=observation_spec, state_spec=state_spec, name=name)
        leaf = default_networks.single_discrete_action(action_spec)
        num_actions = int(leaf.maximum - leaf.minimum + 1)
        self._mask = action_mask.find(observation_spec, action_spec)
        if self._mask is not None:
            observation_spec = self._mask.rest_spec
        self._encoder = encoders.encoding_net(observation_spec, fc_layer_params, f"{name}/encoder")
        self._lstm = None if lstm_size is None else lstm.Lstm(lstm_size, name=f"{name}/lstm")
        self._actions = _head(head_layer_params, num_actions, f"{name}/actions")
        self._value = _head(head_layer_params, 1, f"{name}/value") if dueling else None

    def legal(self, observation: Any) -> tf.Tensor | None:
        """Which actions are legal, bool `[batch, actions]`; None if observations carry no mask."""
        return None if self._mask is None else self._mask.split(observation)[1]

    def call(
        self,
        observation: Any,
        step_type: Any = None,
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[tf.Tensor, Any]:
        """Returns values `[batch, (T,) actions]` and the state after the last step."""
        one_step = nest_utils.get_outer_rank(observation, self.input_tensor_spec) == 1
        if one_step:
            observation = tf.nest.map_structure(lambda leaf: leaf[:, tf.newaxis], observation)
            step_type = None if step_type is None else step_type[:, tf.newaxis]
        legal = None
        if self._mask is not None:
            observation, legal = self._mask.split(observation)  # [batch, T, actions]
        hidden, _ = self._encoder(observation, training=training)  # [batch, T, features]
        if self._lstm is not None:
            if not network_state:
                network_state = self.get_initial_state(tf.shape(hidden)[0])
            if step_type is not None:
                network_state = self.state_for(step_type[:, 0], network_state)
            hidden, network_state = self._lstm(hidden, network_state)
        values = hidden
        for layer in self._actions:
            values = layer(values)
        if self._value is not None:
            value = hidden
            for layer in self._value:
                value = layer(value)
            values += value - tf.reduce_mean(values, axis=-1, keepdims=True)
        if legal is not None:
            values = tf.where(legal, values, default_networks.ILLEGAL)
        return (values[:, 0] if one_step else values), network_state

    def state_for(self, step_type: tf.Tensor, state: Any) -> Any:
        """The state that steps `[batch]` begin with: that before, or zeros where one is FIRST."""
        first = tf.equal(step_type, ts.StepType.FIRST)[:, tf.newaxis]
        return tf.nest.map_structure(lambda leaf: tf.where(first, tf.zeros_like(leaf), leaf), state)


def _head(hidden: default_networks.Layers, outputs: int, name: str) -> list[tf.keras.layers.Layer]:
    sizes = [*hidden, outputs]
    activations = ["relu"] * len(hidden) + [None]
    return [
        tf.keras.layers.Dense(
            size,
            activation=activation,
            kernel_initializer="glorot_uniform",
            name=f"{name}/dense_{index}",
        )
        for index, (size, activation) in enumerate(zip(sizes, activations))
    ]

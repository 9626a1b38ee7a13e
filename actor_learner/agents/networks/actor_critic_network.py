"""The network of on-policy agents: a policy and a value from one observation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import action_mask
from actor_learner.agents import action_distribution
from actor_learner.agents.networks import encoders, lstm
from actor_learner.support import errors

Layers = tuple[int, ...]

STATE = "state"
"""Key of the part of an observation that only a central critic sees."""


class ActorCritic(NamedTuple):
    """What the network says about observations `[batch, (T,) ...]`.

    Attributes:
      parameters: `[batch, (T,) num_parameters]` of the network's `distribution`.
      value: `[batch, (T)]`, the expected return.
    """

    parameters: tf.Tensor
    value: tf.Tensor


class ActorCriticNetwork(network.Network):
    """Dense layers behind an encoder that fits the observation, an LSTM if wanted, two heads.

    Takes one step, `[batch, ...]`, or T consecutive steps, `[batch, T, ...]`, in which episodes may
    end: rows of type FIRST begin with a fresh memory. Without memory all rows are one batch for
    the layers; with it, T must be known when the graph is built.

    Args:
      observation_spec: Nest of tensor specs. An `action_mask` in it says which discrete actions
        have a probability above 0.
      action_spec: Nest of bounded tensor specs, discrete or continuous.
      fc_layer_params: Dense layers behind the encoder.
      lstm_size: Units of an LSTM behind those; None for no memory.
      share_torso: Whether the value has the policy's layers, or layers of its own. Must be true
        with an LSTM.
      activation: Keras name of the dense layers' activation.
      initial_stddev: Standard deviation of continuous actions at the start, as a share of half
        their range. It is learned, the same for all observations.
      central_critic: Whether the observation has a part `state`, which the value sees and the
        policy does not.
      observation_normalizer: A `tf.Module` with `normalize(observation)`, which then is part of the
        network.
      name: Name of the network.
    """

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        *,
        fc_layer_params: Layers = (64, 64),
        lstm_size: int | None = None,
        share_torso: bool = False,
        activation: str = "tanh",
        initial_stddev: float = 0.6,
        central_critic: bool = False,
        observation_normalizer: Any = None,
        name: str = "ActorCriticNetwork",
    ) -> None:
        if lstm_size is not None and not share_torso:
            raise errors.ConfigError(
                "a policy and a value with a memory share it: set share_torso = True, or "
                "lstm_size = None"
            )
        if central_critic and share_torso:
            raise errors.ConfigError(
                "a central critic sees what the policy must not: set share_torso = False, and "
                "lstm_size = None"
            )
        if initial_stddev <= 0:
            raise errors.ConfigError(f"initial_stddev must be above 0, got {initial_stddev}")
        state_spec: Any = ()
        if lstm_size is not None:
            unit_spec = tensor_spec.TensorSpec([lstm_size], tf.float32)
            state_spec = (unit_spec, unit_spec)
        super().__init__(input_tensor_spec=observation_spec, state_spec=state_spec, name=name)
        self.distribution = action_distribution.ActionDistribution(action_spec)
        self._normalizer = observation_normalizer
        self._mask = action_mask.find(observation_spec, action_spec)
        if self._mask is not None:
            observation_spec = self._mask.rest_spec
        self._central_critic = central_critic
        torso = (fc_layer_params, activation)
        own_spec = _without_state(observation_spec) if central_critic else observation_spec
        self._policy_torso = _Torso(own_spec, *torso, name=f"{name}/policy")
        self._value_torso = None
        if not share_torso:
            self._value_torso = _Torso(observation_spec, *torso, name=f"{name}/value")
        self._lstm = None if lstm_size is None else lstm.Lstm(lstm_size, name=f"{name}/lstm")
        self._policy_head = tf.keras.layers.Dense(
            self.distribution.num_logits + self.distribution.num_continuous,
            kernel_initializer=tf.keras.initializers.Orthogonal(0.01),
            name=f"{name}/policy_head",
        )
        self._value_head = tf.keras.layers.Dense(
            1, kernel_initializer=tf.keras.initializers.Orthogonal(1.0), name=f"{name}/value_head"
        )
        self._log_stddev = None
        if self.distribution.num_continuous:
            self._log_stddev = self.add_weight(
                "log_stddev",
                [self.distribution.num_continuous],
                initializer=tf.keras.initializers.Constant(math.log(initial_stddev)),
            )

    @property
    def has_memory(self) -> bool:
        return self._lstm is not None

    def call(
        self,
        observation: Any,
        step_type: Any = None,
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[ActorCritic, Any]:
        """Returns an `ActorCritic` and the state after the last step."""
        del training
        rows, num_steps, legal = self._rows(observation)
        hidden, network_state = self._hidden(rows, num_steps, step_type, network_state)
        parameters = self._parameters(hidden, legal)
        value = hidden if self._value_torso is None else self._value_torso(rows)
        value = self._value_head(value)[:, 0]
        if num_steps is not None:
            batch = _batch_size(observation)
            parameters = tf.reshape(parameters, [batch, num_steps, parameters.shape[-1]])
            value = tf.reshape(value, [batch, num_steps])
        return ActorCritic(parameters, value), network_state

    def act(
        self, observation: Any, step_type: tf.Tensor | None = None, network_state: Any = ()
    ) -> tuple[tf.Tensor, Any]:
        """Parameters `[batch, num_parameters]` for one step, and the next state; no value.

        The network's variables must have been created.
        """
        rows, _, legal = self._rows(observation)
        hidden, network_state = self._hidden(rows, None, step_type, network_state)
        return self._parameters(hidden, legal), network_state

    def _rows(self, observation: Any) -> tuple[Any, Any, tf.Tensor | None]:
        """What is observed as `[rows, ...]`; T, or None if it is one step; and what is legal."""
        leaf = tf.nest.flatten(observation)[0]
        spec = tf.nest.flatten(self.input_tensor_spec)[0]
        num_steps = None
        if len(leaf.shape) == spec.shape.rank + 2:
            num_steps = leaf.shape[1] or tf.shape(leaf)[1]
            observation = tf.nest.map_structure(
                lambda leaf, spec: tf.reshape(leaf, [-1, *spec.shape]),
                observation,
                self.input_tensor_spec,
            )
        if self._normalizer is not None:
            observation = self._normalizer.normalize(observation)
        if self._mask is None:
            return observation, num_steps, None
        rest, legal = self._mask.split(observation)
        return rest, num_steps, legal

    def _hidden(
        self, rows: Any, num_steps: Any, step_type: Any, network_state: Any
    ) -> tuple[tf.Tensor, Any]:
        hidden = self._policy_torso(_without_state(rows) if self._central_critic else rows)
        if self._lstm is None:
            return hidden, network_state
        if num_steps is None:
            hidden = hidden[:, tf.newaxis]
            step_type = None if step_type is None else step_type[:, tf.newaxis]
        elif not isinstance(num_steps, int):
            raise errors.SpecMismatchError(
                "a network with memory needs to know the number of steps when its graph is built"
            )
        else:
            hidden = tf.reshape(hidden, [-1, num_steps, hidden.shape[-1]])
        if not network_state:
            network_state = self.get_initial_state(tf.shape(hidden)[0])
        outputs = []
        for t in range(hidden.shape[1]):
            if step_type is not None:
                goes_on = tf.not_equal(step_type[:, t : t + 1], ts.StepType.FIRST)
                keep = tf.cast(goes_on, tf.float32)
                network_state = tuple(keep * part for part in network_state)
            output, network_state = self._lstm(hidden[:, t : t + 1], network_state)
            outputs.append(output)
        hidden = outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=1)
        return tf.reshape(hidden, [-1, hidden.shape[-1]]), network_state

    def _parameters(self, hidden: tf.Tensor, legal: tf.Tensor | None) -> tf.Tensor:
        parameters = self._policy_head(hidden)
        if legal is not None:
            parameters = self.distribution.without_illegal(parameters, legal)
        if self._log_stddev is None:
            return parameters
        stddevs = tf.broadcast_to(
            self._log_stddev, [tf.shape(parameters)[0], self.distribution.num_continuous]
        )
        return tf.concat([parameters, stddevs], axis=-1)


class _Torso(tf.keras.layers.Layer):
    """An observation `[rows, ...]` to features: an encoder, unless it is a vector, dense layers."""

    def __init__(
        self, observation_spec: Any, fc_layer_params: Layers, activation: str, name: str
    ) -> None:
        super().__init__(name=name, autocast=False)
        self._encoder = None
        if encoders.choose_encoder(observation_spec) != encoders.Encoder(None, None, None):
            self._encoder = encoders.encoding_net(observation_spec, (), f"{name}/encoder")
        self._dense = [
            tf.keras.layers.Dense(
                units,
                activation=activation,
                kernel_initializer=tf.keras.initializers.Orthogonal(math.sqrt(2.0)),
                name=f"{name}/dense_{index}",
            )
            for index, units in enumerate(fc_layer_params)
        ]

    def call(self, observation: Any) -> tf.Tensor:
        if self._encoder is None:
            (hidden,) = tf.nest.flatten(observation)
        else:
            hidden, _ = self._encoder(observation)
        for layer in self._dense:
            hidden = layer(hidden)
        return hidden


def _without_state(observation: Any) -> Any:
    """What the policy of a central critic sees; the observation itself, if that is all there is.

    Raises:
      errors.SpecMismatchError: If there is no state.
    """
    if not isinstance(observation, Mapping) or STATE not in observation or len(observation) < 2:
        raise errors.SpecMismatchError(
            f"a central critic needs observations with a part {STATE!r} and at least one other, "
            f"these are {observation}: set AgentWorld.state, or have the environment add it"
        )
    own = {key: part for key, part in observation.items() if key != STATE}
    return own[action_mask.OBSERVATION] if list(own) == [action_mask.OBSERVATION] else own


def _batch_size(observation: Any) -> Any:
    leaf = tf.nest.flatten(observation)[0]
    return leaf.shape[0] or tf.shape(leaf)[0]

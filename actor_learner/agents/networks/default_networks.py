"""Default networks of our agents, chosen from the specs.

Those for continuous actions take and give them in [-1, 1]; `scaled_agent` says how these become the
environment's.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents.sac import tanh_normal_projection_network
from tf_agents.networks import (
    actor_distribution_network,
    categorical_q_network,
    network,
    q_network,
)
from tf_agents.specs import tensor_spec

from actor_learner import action_mask
from actor_learner.agents import action_range
from actor_learner.agents.networks import encoders
from actor_learner.support import errors

Layers = tuple[int, ...]

ILLEGAL = -1e9
"""Value, or logit, of an action that the observation's mask excludes."""

LOG_STDDEV_BOUNDS = (-20.0, 2.0)
"""Of the Gaussian that SAC squashes: a wider one is all but a choice between the two bounds, and a
narrower one has densities beyond what float32 can tell apart."""


def q_net(observation_spec: Any, action_spec: Any, fc_layer_params: Layers) -> network.Network:
    """One value per action."""
    encoder = encoders.choose_encoder(observation_spec)
    return q_network.QNetwork(
        observation_spec, action_spec, fc_layer_params=fc_layer_params, **encoder._asdict()
    )


def categorical_q_net(
    observation_spec: Any, action_spec: Any, fc_layer_params: Layers, num_atoms: int
) -> network.Network:
    """One distribution over `num_atoms` returns per action."""
    encoder = encoders.choose_encoder(observation_spec)
    return categorical_q_network.CategoricalQNetwork(
        observation_spec,
        action_spec,
        num_atoms=num_atoms,
        fc_layer_params=fc_layer_params,
        **encoder._asdict(),
    )


def tanh_normal_actor_net(
    observation_spec: Any, action_spec: Any, fc_layer_params: Layers
) -> network.Network:
    """A squashed Gaussian over actions in [-1, 1], for SAC."""
    encoder = encoders.choose_encoder(observation_spec)
    return actor_distribution_network.ActorDistributionNetwork(
        observation_spec,
        action_spec,
        fc_layer_params=fc_layer_params,
        continuous_projection_net=functools.partial(
            tanh_normal_projection_network.TanhNormalProjectionNetwork,
            std_transform=_bounded_stddev,
        ),
        **encoder._asdict(),
    )


def _bounded_stddev(log_stddev: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.clip_by_value(log_stddev, *LOG_STDDEV_BOUNDS))


class MaskedNetwork(network.Network):
    """Another network's output per action, far below all others where an action is not legal.

    Args:
      observation_spec: A dictionary of tensor specs with an `action_mask`.
      mask: Of these observations.
      inner: Takes in what is observed besides; `[batch, actions]`.
      name: Name of the network.
    """

    def __init__(
        self,
        observation_spec: Any,
        mask: action_mask.ActionMask,
        inner: network.Network,
        name: str = "MaskedNetwork",
    ) -> None:
        super().__init__(input_tensor_spec=observation_spec, state_spec=(), name=name)
        self._mask = mask
        self._inner = inner

    def call(
        self,
        observation: Any,
        step_type: Any = None,
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[tf.Tensor, Any]:
        observed, legal = self._mask.split(observation)
        values, network_state = self._inner(observed, step_type, network_state, training)
        return tf.where(legal, values, ILLEGAL), network_state


class DeterministicActor(network.Network):
    """Observation to one action in [-1, 1]: an encoder, then a squashed dense layer.

    Args:
      observation_spec: Nest of tensor specs.
      action_spec: One float32 tensor spec with the bounds -1 and 1, or a nest with one leaf.
      fc_layer_params: Sizes of the dense layers.
      name: Name of the network.
    """

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        fc_layer_params: Layers,
        name: str = "DeterministicActor",
    ) -> None:
        super().__init__(input_tensor_spec=observation_spec, state_spec=(), name=name)
        self._action_spec = action_spec
        self._leaf_spec = single_action(action_spec)
        self._encoder = encoders.encoding_net(observation_spec, fc_layer_params, f"{name}/encoder")
        self._head = tf.keras.layers.Dense(
            self._leaf_spec.shape.num_elements(),
            activation="tanh",
            kernel_initializer=tf.keras.initializers.RandomUniform(-0.003, 0.003),
            name=f"{name}/action",
        )

    def call(
        self,
        observation: Any,
        step_type: Any = None,
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[Any, Any]:
        hidden, network_state = self._encoder(observation, step_type, network_state, training)
        action = tf.reshape(self._head(hidden), [-1, *self._leaf_spec.shape])
        return tf.nest.pack_sequence_as(self._action_spec, [action]), network_state


class Critic(network.Network):
    """Value of an observation and an action: an encoder, the action beside it, dense layers.

    Unlike TF-Agents' critic it takes in images and nested observations.

    Args:
      input_tensor_spec: `(observation_spec, action_spec)`.
      fc_layer_params: Sizes of the dense layers after observation and action are joined.
      name: Name of the network.
    """

    def __init__(
        self, input_tensor_spec: Any, fc_layer_params: Layers, name: str = "Critic"
    ) -> None:
        super().__init__(input_tensor_spec=input_tensor_spec, state_spec=(), name=name)
        self._flat_action_spec = tf.nest.flatten(input_tensor_spec[1])
        self._encoder = encoders.encoding_net(input_tensor_spec[0], (), f"{name}/encoder")
        self._layers_after = [
            tf.keras.layers.Dense(units, activation="relu", kernel_initializer="glorot_uniform")
            for units in fc_layer_params
        ]
        self._value = tf.keras.layers.Dense(1, kernel_initializer="glorot_uniform")

    def call(
        self, inputs: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, Any]:
        observation, action = inputs
        hidden, network_state = self._encoder(observation, step_type, network_state, training)
        parts = [
            tf.reshape(tf.cast(part, tf.float32), [-1, spec.shape.num_elements()])
            for part, spec in zip(tf.nest.flatten(action), self._flat_action_spec)
        ]
        joint = tf.concat([hidden, *parts], axis=-1)
        for layer in self._layers_after:
            joint = layer(joint)
        return tf.reshape(self._value(joint), [-1]), network_state


def single_action(action_spec: Any) -> tensor_spec.BoundedTensorSpec:
    """The only leaf of an action spec, checked to be continuous."""
    leaves = tf.nest.flatten(action_spec)
    if len(leaves) != 1 or not leaves[0].dtype.is_floating:
        raise errors.SpecMismatchError(
            f"this agent needs one continuous action, the environment has {action_spec}: use dqn "
            "or c51 for discrete actions"
        )
    if (
        not isinstance(leaves[0], tensor_spec.BoundedTensorSpec)
        or (
            np.asarray(leaves[0].maximum / 2 - leaves[0].minimum / 2)
            >= action_range.LARGEST_HALF_RANGE
        ).any()
    ):
        raise errors.SpecMismatchError(
            f"this agent needs an action with bounds, the environment has {leaves[0]}: give it "
            "bounds with gymnasium.wrappers.TransformAction, or use ppo, which needs none"
        )
    return leaves[0]


def single_discrete_action(action_spec: Any) -> tensor_spec.BoundedTensorSpec:
    """The only leaf of an action spec, checked to be one discrete choice."""
    leaves = tf.nest.flatten(action_spec)
    if len(leaves) != 1 or not leaves[0].dtype.is_integer or leaves[0].shape.rank != 0:
        raise errors.SpecMismatchError(
            f"this agent needs one discrete action, the environment has {action_spec}: use sac, "
            "td3 or ddpg for continuous actions"
        )
    return leaves[0]

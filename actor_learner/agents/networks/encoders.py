"""Chooses how a network takes in observations: vectors, images, choices, or nests of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.networks import encoding_network
from tf_agents.specs import tensor_spec

from actor_learner.agents.networks import layers
from actor_learner.support import errors

ConvLayers = tuple[tuple[int, int, int], ...]

LARGEST_ONE_HOT = 4096
"""Integers whose one-hot code would be longer than this are taken as numbers, not as choices."""

MOST_CHANNELS = 16
"""A first or last dimension of an image up to this size holds channels or stacked frames."""


class Encoder(NamedTuple):
    """Arguments of TF-Agents networks that take in an observation.

    Attributes:
      preprocessing_layers: Keras layers like the observation, or None.
      preprocessing_combiner: Layer that joins the parts of a nested observation, or None.
      conv_layer_params: `(filters, kernel, stride)` of each convolution, or None.
    """

    preprocessing_layers: Any
    preprocessing_combiner: tf.keras.layers.Layer | None
    conv_layer_params: ConvLayers | None


def choose_encoder(observation_spec: Any) -> Encoder:
    """The encoder for a spec: none for vectors, convolutions for images, a layer per Dict part."""
    if not tf.nest.is_nested(observation_spec):
        if is_image(observation_spec):
            return Encoder(
                layers.ScaleImage(_scale(observation_spec), image_layout(observation_spec)),
                None,
                convolutions(observation_spec),
            )
        return Encoder(_vector_layer(observation_spec, nested=False), None, None)
    parts = tf.nest.map_structure(_part_layer, observation_spec)
    return Encoder(parts, tf.keras.layers.Concatenate(axis=-1), None)


def encoding_net(
    observation_spec: Any, fc_layer_params: tuple[int, ...], name: str
) -> encoding_network.EncodingNetwork:
    """An encoding network with the encoder that fits `observation_spec`."""
    encoder = choose_encoder(observation_spec)
    return encoding_network.EncodingNetwork(
        observation_spec,
        preprocessing_layers=encoder.preprocessing_layers,
        preprocessing_combiner=encoder.preprocessing_combiner,
        conv_layer_params=encoder.conv_layer_params,
        fc_layer_params=fc_layer_params,
        name=name,
    )


def is_image(spec: tf.TensorSpec) -> bool:
    """Whether a leaf is an image of at least 8 by 8 pixels, with channels last, first or none."""
    return image_layout(spec) is not None


def image_layout(spec: tf.TensorSpec) -> str | None:
    """Where an image's channels are: "last", "first" (stacked frames), "none"; None: no image.

    Two dimensions are an image only if they hold bytes; of floats they may be a table.
    """
    shape = tuple(spec.shape)
    if len(shape) == 2 and spec.dtype == tf.uint8 and min(shape) >= 8:
        return "none"
    if len(shape) == 3:
        if min(shape[:2]) >= 8 and shape[2] <= MOST_CHANNELS:
            return "last"
        if min(shape[1:]) >= 8 and shape[0] <= MOST_CHANNELS:
            return "first"
    return None


def image_size(spec: tf.TensorSpec) -> int:
    """The smaller of height and width."""
    shape = tuple(spec.shape)
    return min(shape[1:] if image_layout(spec) == "first" else shape[:2])


def convolutions(spec: tf.TensorSpec) -> ConvLayers:
    """Convolutions that fit an image: those of the Atari DQN paper from 36 pixels on."""
    if image_size(spec) >= 36:
        return ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    return ((16, 3, 1), (32, 3, 1))


def _part_layer(spec: tf.TensorSpec) -> tf.keras.layers.Layer:
    """A layer that turns one part of a nested observation into a vector."""
    if is_image(spec):
        return layers.ImageVector(_scale(spec), image_layout(spec), convolutions(spec))
    return _vector_layer(spec, nested=True)


def _scale(spec: tf.TensorSpec) -> float:
    return 255.0 if spec.dtype == tf.uint8 else 1.0


def _vector_layer(spec: tf.TensorSpec, nested: bool) -> tf.keras.layers.Layer | None:
    """One-hot for discrete values, a flat float vector for the rest; None if nothing is to do."""
    size = spec.shape.num_elements()
    if spec.dtype.is_integer and isinstance(spec, tensor_spec.BoundedTensorSpec):
        low, high = int(spec.minimum.min()), int(spec.maximum.max())
        if size * (high - low + 1) <= LARGEST_ONE_HOT:
            return layers.OneHot(low, high - low + 1, size)
    if spec.dtype.is_bool or spec.dtype.is_integer or spec.dtype.is_floating:
        if nested or spec.dtype != tf.float32 or spec.shape.rank != 1:
            return layers.FloatVector(size, _scale(spec))
        return None
    raise errors.SpecMismatchError(f"no network can take in an observation of {spec}")

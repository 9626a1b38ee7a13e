"""Keras layers that turn one part of an observation into what dense layers take.

Classes rather than lambdas, because TF-Agents copies networks through their layers' configurations
and Keras refuses to rebuild a lambda from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class ScaleImage(tf.keras.layers.Layer):
    """Casts to float, divides by `scale`, puts channels last: `[batch, height, width, channels]`.

    Args:
      scale: Divisor, 255 for bytes.
      layout: Where the channels are: "last", "first" or "none".
    """

    def __init__(self, scale: float, layout: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._scale = scale
        self._layout = layout

    def call(self, image: tf.Tensor) -> tf.Tensor:
        image = tf.cast(image, tf.float32) / self._scale
        if self._layout == "first":
            return tf.transpose(image, [0, 2, 3, 1])
        return image[..., tf.newaxis] if self._layout == "none" else image

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self._scale, "layout": self._layout}


class OneHot(tf.keras.layers.Layer):
    """Discrete values from `low` on, `[batch, ...]`, to `[batch, size * depth]`."""

    def __init__(self, low: int, depth: int, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._low, self._depth, self._size = low, depth, size

    def call(self, value: tf.Tensor) -> tf.Tensor:
        hot = tf.one_hot(tf.cast(value, tf.int32) - self._low, self._depth)
        return tf.reshape(hot, [-1, self._size * self._depth])

    def get_config(self) -> dict[str, Any]:
        config = {"low": self._low, "depth": self._depth, "size": self._size}
        return {**super().get_config(), **config}


class FloatVector(tf.keras.layers.Layer):
    """Numbers of any shape and type, `[batch, ...]`, over `scale`: float32 `[batch, size]`."""

    def __init__(self, size: int, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._size, self._scale = size, scale

    def call(self, value: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(value, tf.float32), [-1, self._size]) / self._scale

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "size": self._size, "scale": self._scale}


class ImageVector(tf.keras.layers.Layer):
    """An image through convolutions `(filters, kernel, stride)` to `[batch, features]`."""

    def __init__(
        self,
        scale: float,
        layout: str,
        convolutions: Sequence[tuple[int, int, int]],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._scale, self._layout = scale, layout
        self._prepare = ScaleImage(scale, layout)
        self._convolutions = tuple(tuple(convolution) for convolution in convolutions)
        self._stack = [
            tf.keras.layers.Conv2D(filters, kernel, stride, activation="relu")
            for filters, kernel, stride in self._convolutions
        ]
        self._flatten = tf.keras.layers.Flatten()

    def call(self, image: tf.Tensor) -> tf.Tensor:
        hidden = self._prepare(image)
        for layer in self._stack:
            hidden = layer(hidden)
        return self._flatten(hidden)

    def get_config(self) -> dict[str, Any]:
        config = {
            "scale": self._scale,
            "layout": self._layout,
            "convolutions": self._convolutions,
        }
        return {**super().get_config(), **config}

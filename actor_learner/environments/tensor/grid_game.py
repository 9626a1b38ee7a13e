"""What the small games have in common: a grid of 10 x 10 cells, in the spirit of MinAtar.

Observations are uint8 `[10, 10, channels]`, 255 where something is and 0 elsewhere.
"""

from __future__ import annotations

import abc
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.environments.tensor import dynamics, pictures

SIZE = 10


class GridGame(dynamics.Dynamics):
    """A game that shows cells of a grid, one channel for each kind of thing."""

    max_episode_steps = 500

    def __init__(self, num_channels: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, num_channels), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(num_actions)

    @abc.abstractmethod
    def _channels(self, state: Any) -> list[tf.Tensor]:
        """Returns bool `[lanes, 10, 10]` for each kind of thing."""

    def observe(self, state: Any) -> tf.Tensor:
        channels = tf.stack(self._channels(state), axis=3)
        return tf.where(channels, tf.constant(255, tf.uint8), tf.constant(0, tf.uint8))

    def render(self, state: Any) -> np.ndarray:
        lanes = tf.nest.map_structure(lambda leaf: tf.constant(leaf)[tf.newaxis], state)
        return pictures.of_grid(self.observe(lanes)[0].numpy() > 0)


def sideways(action: tf.Tensor, *, plus: int = 2, minus: int = 1) -> tf.Tensor:
    """+1 where the action is `plus`, -1 where it is `minus`, else 0; int32 `[lanes]`."""
    return tf.cast(tf.equal(action, plus), tf.int32) - tf.cast(tf.equal(action, minus), tf.int32)


def one_hot(index: tf.Tensor, depth: int) -> tf.Tensor:
    """bool `[..., depth]`; all False where the index is out of range."""
    return tf.equal(index[..., tf.newaxis], tf.range(depth))


def cell(row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    """bool `[lanes, 10, 10]` with one cell."""
    return tf.logical_and(
        one_hot(row, SIZE)[:, :, tf.newaxis], one_hot(column, SIZE)[:, tf.newaxis]
    )

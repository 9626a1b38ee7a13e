"""MountainCar-v0 and MountainCarContinuous-v0 in TensorFlow operations."""

from __future__ import annotations

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.environments.tensor import dynamics, pictures
from actor_learner.support import configurable

_LEFT, _RIGHT = -1.2, 0.6
_MAX_SPEED = 0.07
_GRAVITY = 0.0025
_LOW = np.array([_LEFT, -_MAX_SPEED], np.float32)
_HIGH = np.array([_RIGHT, _MAX_SPEED], np.float32)


class _Valley(dynamics.Dynamics):
    """A car between two hills; the state is float32 `[lanes, 2]`, as it is observed."""

    observation_space = gymnasium.spaces.Box(_LOW, _HIGH)

    def reset(self, num_lanes: int, seed: tf.Tensor) -> tf.Tensor:
        position = tf.random.stateless_uniform([num_lanes], seed, -0.6, -0.4)
        return tf.stack([position, tf.zeros_like(position)], axis=1)

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        return state


@configurable.register
class MountainCarDynamics(_Valley):
    """Drives up a hill with three actions; -1 for each step."""

    action_space = gymnasium.spaces.Discrete(3)
    max_episode_steps = 200

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        push = (tf.cast(action, tf.float32) - 1.0) * 0.001
        state = _rolled(state, push)
        arrived = tf.logical_and(state[:, 0] >= 0.5, state[:, 1] >= 0.0)
        return dynamics.Outcome(state, -tf.ones_like(push), arrived)

    def render(self, state: np.ndarray) -> np.ndarray:
        return pictures.of_gymnasium("MountainCar-v0", state)


@configurable.register
class MountainCarContinuousDynamics(_Valley):
    """Drives up a hill with a force; 100 for arriving, less a tenth of the forces' squares."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    max_episode_steps = 999

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        force = action[:, 0]
        state = _rolled(state, tf.clip_by_value(force, -1.0, 1.0) * 0.0015)
        arrived = tf.logical_and(state[:, 0] >= 0.45, state[:, 1] >= 0.0)
        reward = tf.where(arrived, 100.0, 0.0) - 0.1 * tf.square(force)
        return dynamics.Outcome(state, reward, arrived)

    def render(self, state: np.ndarray) -> np.ndarray:
        return pictures.of_gymnasium("MountainCarContinuous-v0", state)


def _rolled(state: tf.Tensor, push: tf.Tensor) -> tf.Tensor:
    """The state after one step; the wall on the left stops the car."""
    position, speed = tf.unstack(state, axis=1)
    speed = tf.clip_by_value(
        speed + push - _GRAVITY * tf.cos(3.0 * position), -_MAX_SPEED, _MAX_SPEED
    )
    position = tf.clip_by_value(position + speed, _LEFT, _RIGHT)
    stopped = tf.logical_and(position <= _LEFT, speed < 0.0)
    return tf.stack([position, tf.where(stopped, 0.0, speed)], axis=1)

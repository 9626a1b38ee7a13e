"""Acrobot-v1 in TensorFlow operations."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.environments.tensor import dynamics, pictures
from actor_learner.support import configurable

# Both links are 1 m long, weigh 1 kg, balance in their middle and have a moment of inertia of 1.
_CENTRE = 0.5
_GRAVITY = 9.8
_SECONDS = 0.2
_MAX_SPEEDS = (4 * math.pi, 9 * math.pi)
_HIGH = np.array([1.0, 1.0, 1.0, 1.0, *_MAX_SPEEDS], np.float32)


@configurable.register
class AcrobotDynamics(dynamics.Dynamics):
    """Swings two links above a line; the state is float32 `[lanes, 4]`, two angles, two speeds."""

    observation_space = gymnasium.spaces.Box(-_HIGH, _HIGH)
    action_space = gymnasium.spaces.Discrete(3)
    max_episode_steps = 500

    def reset(self, num_lanes: int, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([num_lanes, 4], seed, -0.1, 0.1)

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        torque = tf.cast(action, tf.float32) - 1.0
        first, second, speed, other_speed = tf.unstack(_after(state, torque), axis=1)
        first, second = _wrapped(first), _wrapped(second)
        state = tf.stack(
            [
                first,
                second,
                tf.clip_by_value(speed, -_MAX_SPEEDS[0], _MAX_SPEEDS[0]),
                tf.clip_by_value(other_speed, -_MAX_SPEEDS[1], _MAX_SPEEDS[1]),
            ],
            axis=1,
        )
        above = -tf.cos(first) - tf.cos(second + first) > 1.0
        return dynamics.Outcome(state, tf.where(above, 0.0, -1.0), above)

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        first, second, speed, other_speed = tf.unstack(state, axis=1)
        angles = [tf.cos(first), tf.sin(first), tf.cos(second), tf.sin(second)]
        return tf.stack([*angles, speed, other_speed], axis=1)

    def render(self, state: np.ndarray) -> np.ndarray:
        return pictures.of_gymnasium("Acrobot-v1", state)


def _after(state: tf.Tensor, torque: tf.Tensor) -> tf.Tensor:
    """One step of Runge and Kutta's fourth-order method."""
    k1 = _derivative(state, torque)
    k2 = _derivative(state + _SECONDS / 2.0 * k1, torque)
    k3 = _derivative(state + _SECONDS / 2.0 * k2, torque)
    k4 = _derivative(state + _SECONDS * k3, torque)
    return state + _SECONDS / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def _derivative(state: tf.Tensor, torque: tf.Tensor) -> tf.Tensor:
    """Sutton and Barto's equations of motion."""
    first, second, speed, other_speed = tf.unstack(state, axis=1)
    d1 = _CENTRE**2 + 1.0 + _CENTRE**2 + 2.0 * _CENTRE * tf.cos(second) + 2.0
    d2 = _CENTRE**2 + _CENTRE * tf.cos(second) + 1.0
    phi2 = _CENTRE * _GRAVITY * tf.cos(first + second - math.pi / 2.0)
    phi1 = (
        -_CENTRE * tf.square(other_speed) * tf.sin(second)
        - 2.0 * _CENTRE * other_speed * speed * tf.sin(second)
        + (_CENTRE + 1.0) * _GRAVITY * tf.cos(first - math.pi / 2.0)
        + phi2
    )
    other_rate = (torque + d2 / d1 * phi1 - _CENTRE * tf.square(speed) * tf.sin(second) - phi2) / (
        _CENTRE**2 + 1.0 - tf.square(d2) / d1
    )
    rate = -(d2 * other_rate + phi1) / d1
    return tf.stack([speed, other_speed, rate, other_rate], axis=1)


def _wrapped(angle: tf.Tensor) -> tf.Tensor:
    return tf.math.floormod(angle + math.pi, 2 * math.pi) - math.pi

"""Pendulum-v1 in TensorFlow operations."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.environments.tensor import dynamics, pictures
from actor_learner.support import configurable

_GRAVITY = 10.0
_SECONDS = 0.05
_MAX_SPEED = 8.0
_MAX_TORQUE = 2.0
_HIGH = np.array([1.0, 1.0, _MAX_SPEED], np.float32)


@configurable.register
class PendulumDynamics(dynamics.Dynamics):
    """Swings a pendulum up; the state is float32 `[lanes, 2]`, angle and speed."""

    observation_space = gymnasium.spaces.Box(-_HIGH, _HIGH)
    action_space = gymnasium.spaces.Box(-_MAX_TORQUE, _MAX_TORQUE, (1,))
    max_episode_steps = 200

    def reset(self, num_lanes: int, seed: tf.Tensor) -> tf.Tensor:
        unit = tf.random.stateless_uniform([num_lanes, 2], seed, -1.0, 1.0)
        return unit * tf.constant([math.pi, 1.0])

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        angle, speed = tf.unstack(state, axis=1)
        torque = tf.clip_by_value(action[:, 0], -_MAX_TORQUE, _MAX_TORQUE)
        upright = tf.math.floormod(angle + math.pi, 2 * math.pi) - math.pi
        cost = tf.square(upright) + 0.1 * tf.square(speed) + 0.001 * tf.square(torque)
        speed += (1.5 * _GRAVITY * tf.sin(angle) + 3.0 * torque) * _SECONDS
        speed = tf.clip_by_value(speed, -_MAX_SPEED, _MAX_SPEED)
        state = tf.stack([angle + speed * _SECONDS, speed], axis=1)
        return dynamics.Outcome(state, -cost, tf.zeros_like(angle, tf.bool))

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        angle, speed = tf.unstack(state, axis=1)
        return tf.stack([tf.cos(angle), tf.sin(angle), speed], axis=1)

    def render(self, state: np.ndarray) -> np.ndarray:
        return pictures.of_gymnasium("Pendulum-v1", state)

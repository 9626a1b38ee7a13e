"""CartPole-v1 in TensorFlow operations."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.environments.tensor import dynamics, pictures
from actor_learner.support import configurable

_GRAVITY = 9.8
_POLE_MASS = 0.1
_TOTAL_MASS = 1.0 + _POLE_MASS
_HALF_LENGTH = 0.5
_FORCE = 10.0
_SECONDS = 0.02
_MAX_POSITION = 2.4
_MAX_ANGLE = 12 * 2 * math.pi / 360
_HIGH = np.array([2 * _MAX_POSITION, np.inf, 2 * _MAX_ANGLE, np.inf], np.float32)


@configurable.register
class CartPoleDynamics(dynamics.Dynamics):
    """Balances a pole on a cart; the state is float32 `[lanes, 4]`, as it is observed."""

    observation_space = gymnasium.spaces.Box(-_HIGH, _HIGH)
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 500

    def reset(self, num_lanes: int, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([num_lanes, 4], seed, -0.05, 0.05)

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        position, velocity, angle, turning = tf.unstack(state, axis=1)
        force = tf.where(tf.equal(action, 1), _FORCE, -_FORCE)
        cosine, sine = tf.cos(angle), tf.sin(angle)
        pole = _POLE_MASS * _HALF_LENGTH
        push = (force + pole * tf.square(turning) * sine) / _TOTAL_MASS
        angular = (_GRAVITY * sine - cosine * push) / (
            _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS * tf.square(cosine) / _TOTAL_MASS)
        )
        linear = push - pole * angular * cosine / _TOTAL_MASS
        position += _SECONDS * velocity
        angle += _SECONDS * turning
        state = tf.stack(
            [position, velocity + _SECONDS * linear, angle, turning + _SECONDS * angular], axis=1
        )
        fallen = tf.logical_or(tf.abs(position) > _MAX_POSITION, tf.abs(angle) > _MAX_ANGLE)
        return dynamics.Outcome(state, tf.ones_like(position), fallen)

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        return state

    def render(self, state: np.ndarray) -> np.ndarray:
        return pictures.of_gymnasium("CartPole-v1", state)

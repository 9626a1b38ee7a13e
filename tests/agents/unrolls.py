"""Unrolls as actors collect them, without an environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.inference import graph
from tests.agents.losses import test_gae


class Collector:
    """Runs an agent's collect policy on random observations, unroll after unroll.

    Rows of type FIRST, MID and LAST come at random, but within an unroll in their order.
    """

    def __init__(self, agent: Any, lanes: int, length: int, seed: int = 0) -> None:
        self._agent = agent
        self._lanes, self._length = lanes, length
        self._generator = np.random.default_rng(seed)
        self._stream = graph.GraphInference(agent.collect_policy, lanes)

    def collect(self, scale: float = 1.0) -> experience.Unroll:
        """The next unroll, as tensors; float observations are Gaussian with deviation `scale`."""
        kinds = test_gae.random_unroll(self._generator, self._lanes, self._length)
        spec = self._agent.time_step_spec.observation
        rows = []
        for row in range(self._length + 1):
            observation = tf.nest.map_structure(lambda leaf: self._observation(leaf, scale), spec)
            step = ts.TimeStep(
                kinds.step_type[:, row],
                np.zeros(self._lanes, np.float32),
                np.ones(self._lanes, np.float32),
                observation,
            )
            if row < self._length:
                response = self._stream.act(step)
                action, info = response.action, dict(response.policy_info)
                state = info.pop(experience.STATE, ())
                if row == 0:
                    first_state = state
            else:
                action, info = tf.nest.map_structure(np.zeros_like, (action, info))
            rows.append((observation, action, info))
        observation, action, info = tf.nest.map_structure(
            lambda *leaves: tf.stack([tf.convert_to_tensor(leaf) for leaf in leaves], axis=1), *rows
        )
        trajectory = trajectory_lib.Trajectory(
            tf.constant(kinds.step_type),
            observation,
            action,
            info,
            tf.constant(kinds.next_step_type),
            tf.constant(kinds.reward),
            tf.constant(kinds.discount),
        )
        return experience.Unroll(trajectory, tf.nest.map_structure(tf.constant, first_state))

    def _observation(self, spec: Any, scale: float) -> np.ndarray:
        if spec.dtype.is_floating:
            values = self._generator.normal(3.0, scale, (self._lanes, *spec.shape))
            return values.astype(spec.dtype.as_numpy_dtype)
        return tensor_spec.sample_spec_nest(spec, outer_dims=(self._lanes,)).numpy()

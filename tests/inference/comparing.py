"""Runs a policy by TFLite and by TensorFlow, with the same random numbers, and compares."""

import numpy as np
import tensorflow as tf

from actor_learner.inference import graph, lite
from tests.inference import policies

LANES = 3


def both(policy, monkeypatch, lanes=LANES):
    """The policy run by TFLite and by TensorFlow, with the same random numbers."""
    ours = lite.LiteInference(policy, lanes, seed=1)
    policies.use_known_numbers(ours)
    with monkeypatch.context() as patch:
        policies.trace_with_known_numbers(patch)
        theirs = graph.GraphInference(policy, lanes)
    return ours, theirs


def assert_same(policy, observation_spec, monkeypatch, steps):
    """Compares actions, infos and states over steps that begin and end episodes here and there."""
    ours, theirs = both(policy, monkeypatch)
    generator = np.random.default_rng(0)
    for _ in range(steps):
        types = generator.choice(3, LANES, p=[0.1, 0.8, 0.1])
        step = policies.time_step(generator, observation_spec, LANES, types)
        got, wanted = ours.act(step), theirs.act(step)
        for part in ("action", "policy_info", "previous_state"):
            tf.nest.assert_same_structure(getattr(got, part), getattr(wanted, part))
            for leaf, expected in zip(
                tf.nest.flatten(getattr(got, part)), tf.nest.flatten(getattr(wanted, part))
            ):
                expected = np.asarray(expected)
                assert leaf.dtype == expected.dtype and leaf.shape == expected.shape
                np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-5)
    for leaf, spec in zip(tf.nest.flatten(got.action), tf.nest.flatten(policy.action_spec)):
        assert (leaf.dtype, leaf.shape) == (spec.dtype.as_numpy_dtype, (LANES, *spec.shape))
    for leaf, spec in zip(tf.nest.flatten(got.policy_info), tf.nest.flatten(policy.info_spec)):
        assert (leaf.dtype, leaf.shape) == (spec.dtype.as_numpy_dtype, (LANES, *spec.shape))

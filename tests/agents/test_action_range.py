"""The way between an action's bounds and [-1, 1]: exact at the bounds, in any dtype and shape."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.agents import action_range

B = tensor_spec.BoundedTensorSpec
LOW = [-0.05, -0.4, -2.0, -100.0, 0.0, -3.0]
HIGH = [0.05, 0.4, 2.0, 100.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_actions_go_there_and_back(dtype):
    spec = B([6], dtype, LOW, HIGH)
    actions = action_range.ActionRange(spec)
    normalized = np.random.default_rng(0).uniform(-1, 1, (50, 6)).astype(np.float32)
    inside = actions.to_environment(tf.constant(normalized))
    assert inside.dtype == dtype
    expected = np.mean([LOW, HIGH], axis=0) + normalized * (np.subtract(HIGH, LOW) / 2)
    np.testing.assert_allclose(inside, expected, atol=1e-5)
    back = actions.to_normalized(tf.reshape(inside, [10, 5, 6]))
    assert back.dtype == tf.float32 and back.shape == (10, 5, 6)
    np.testing.assert_allclose(back, normalized.reshape(10, 5, 6), atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_actions_never_leave_their_bounds(dtype):
    # As float32, 0.05 is more than it is as float64.
    spec = B([6], dtype, LOW, HIGH)
    inside = action_range.ActionRange(spec).to_environment([[-1.0] * 6, [1.0] * 6, [7.0] * 6])
    assert (inside >= spec.minimum).numpy().all() and (inside <= spec.maximum).numpy().all()
    np.testing.assert_array_equal(inside[2], spec.maximum)
    np.testing.assert_allclose(inside[:2], [LOW, HIGH], rtol=1e-6)


@pytest.mark.parametrize("shape", [[], [2, 3]])
def test_an_action_of_any_shape_is_a_vector_in_between(shape):
    actions = action_range.ActionRange(B(shape, tf.float32, -4.0, 4.0))
    size = int(np.prod(shape))
    assert actions.normalized_spec.shape == [size]
    normalized = tf.random.uniform([5, size], -1, 1, seed=1)
    inside = actions.to_environment(normalized)
    assert inside.shape == [5, *shape]
    np.testing.assert_allclose(tf.reshape(inside, [5, size]), 4 * normalized, rtol=1e-6)
    np.testing.assert_allclose(actions.to_normalized(inside), normalized, rtol=1e-6)


def test_an_element_with_one_value_and_one_without_bounds():
    actions = action_range.ActionRange(B([2], tf.float32, [3.0, -np.inf], [3.0, np.inf]))
    np.testing.assert_array_equal(actions.to_environment([[0.5, 0.5]]), [[3.0, 0.5]])
    np.testing.assert_array_equal(actions.to_normalized(tf.constant([[3.0, 9.0]])), [[0.0, 9.0]])


def test_actions_outside_the_bounds_stay_outside():
    actions = action_range.ActionRange(B([1], tf.float32, 0.0, 4.0))
    np.testing.assert_array_equal(actions.to_normalized(tf.constant([[6.0]])), [[2.0]])

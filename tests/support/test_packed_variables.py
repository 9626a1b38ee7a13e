"""Variables of all kinds, read together."""

import gc
import sys

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.support import leaking_python, packed_variables


def variables():
    return [
        tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3)),
        tf.Variable(7, dtype=tf.int64),
        tf.Variable([True, False]),
        tf.Variable(np.array([1, 2, 3], np.uint8)),
        tf.Variable(np.array([0.5], np.float16)),
        tf.Variable([1.0, 2.0], shape=[None]),
        tf.Variable(np.zeros((0, 4), np.float32)),
        tf.Variable(np.float64(np.pi)),
    ]


def test_values_come_in_the_order_of_the_variables_with_their_shapes_and_types():
    these = variables()
    for value, variable in zip(packed_variables.PackedVariables(these).read(), these):
        np.testing.assert_array_equal(value, variable.numpy())
        assert value.dtype == variable.dtype.as_numpy_dtype
        assert value.shape == tuple(variable.numpy().shape)


def test_each_reading_shows_what_was_assigned_since():
    these = variables()
    packed = packed_variables.PackedVariables(these)
    packed.read()
    these[0].assign(-these[0])
    these[1].assign_add(1)
    these[5].assign([3.0])
    values = packed.read()
    np.testing.assert_array_equal(values[0], -np.arange(6, dtype=np.float32).reshape(2, 3))
    assert values[1] == 8
    np.testing.assert_array_equal(values[5], [3.0])


@pytest.mark.parametrize("number", [0, 1])
def test_few_variables_are_read_as_well(number):
    values = packed_variables.PackedVariables(variables()[:number]).read()
    assert len(values) == number


@pytest.mark.skipif(not leaking_python.leaks(), reason="tensors can be counted where they leak")
def test_a_reading_makes_one_tensor():
    packed = packed_variables.PackedVariables([tf.Variable([1.0]) for _ in range(20)])
    for _ in range(20):
        packed.read()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(1_000):
        packed.read()
    gc.collect()
    assert round((sys.getallocatedblocks() - before) / 1_000) == 1

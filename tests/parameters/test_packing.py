"""Tests of `actor_learner.parameters.packing`."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.parameters import packing


def make_variables(fill):
    rng = np.random.default_rng(fill)
    return [
        tf.Variable(rng.normal(size=(3, 5)).astype(np.float32)),
        tf.Variable(rng.normal(size=[]).astype(np.float64)),
        tf.Variable(rng.integers(0, 1 << 40, size=(2,))),
        tf.Variable(rng.integers(0, 2, size=(7,)).astype(bool)),
        tf.Variable(rng.integers(0, 255, size=(1, 3)).astype(np.uint8)),
        tf.Variable(rng.normal(size=(0, 4)).astype(np.float16)),
    ]


def values_of(variables):
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("header", [0, 10])
def test_what_is_packed_is_assigned_bit_for_bit(header):
    sent, received = make_variables(1), make_variables(2)
    packed = packing.Packing(sent, header).pack()
    packing.Packing(received, header).assign(packed)
    for ours, theirs in zip(values_of(received), values_of(sent)):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_variables_stand_at_multiples_of_64_bytes_behind_the_header_with_zeros_between():
    variables = [tf.Variable(np.full([3], 7, np.uint8)), tf.Variable(np.full([2], 9, np.uint8))]
    made = packing.Packing(variables, header_bytes=10)
    packed = made.pack()
    assert packed.dtype == np.uint8 and packed.shape == (made.size,) == (192,)
    wanted = np.zeros(192, np.uint8)
    wanted[64:67], wanted[128:130] = 7, 9
    np.testing.assert_array_equal(packed, wanted)


def test_a_packed_array_is_a_copy_that_may_be_written_to():
    variable = tf.Variable([1.0, 2.0])
    made = packing.Packing([variable])
    packed = made.pack()
    variable.assign([3.0, 4.0])
    np.testing.assert_array_equal(packed[:8].view(np.float32), [1.0, 2.0])
    packed[:8].view(np.float32)[:] = [5.0, 6.0]
    np.testing.assert_array_equal(variable.numpy(), [3.0, 4.0])
    made.assign(packed)
    np.testing.assert_array_equal(variable.numpy(), [5.0, 6.0])


def test_a_variable_that_is_not_finite_is_named():
    variables = [tf.Variable([1.0], name="good"), tf.Variable([1.0, float("nan")], name="bad")]
    made = packing.Packing(variables)
    assert "bad" in made.not_finite(made.pack())
    variables[1].assign([1.0, 2.0])
    assert made.not_finite(made.pack()) is None

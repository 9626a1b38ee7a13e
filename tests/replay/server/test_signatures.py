"""Signatures and their differences."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import array_spec, tensor_spec

from actor_learner.replay.server import signatures

Pair = collections.namedtuple("Pair", "left right")


def test_a_window_adds_time_and_lanes_in_front():
    spec = {
        "x": array_spec.BoundedArraySpec((3,), np.float32, 0, 1),
        "y": tf.TensorSpec([], "int64"),
    }

    windows = signatures.window_signature(spec, 5)
    lanes = signatures.window_signature(spec, None, num_lanes=4)

    assert {name: (leaf.shape.as_list(), leaf.dtype) for name, leaf in windows.items()} == {
        "x": ([5, 3], tf.float32),
        "y": ([5], tf.int64),
    }
    assert lanes["x"].shape.as_list() == [None, 4, 3]
    assert all(type(leaf) is tf.TensorSpec for leaf in windows.values())


def test_without_time_reverses_a_window():
    spec = Pair(tf.TensorSpec([2], tf.float32), (tf.TensorSpec([], tf.int32),))
    step = signatures.without_time(signatures.window_signature(spec, 7))

    assert signatures.describe_mismatch(spec, step) == []
    assert step.left.shape.as_list() == [2]


def test_a_signature_without_time_is_named():
    with pytest.raises(ValueError, match=r"right\[0\] has shape \[\]"):
        signatures.without_time(Pair(tf.TensorSpec([2], tf.int32), [tf.TensorSpec([], tf.int32)]))


@pytest.mark.parametrize(
    "expected, actual, lines",
    [
        (tf.TensorSpec([None, 2], tf.int32), np.zeros([9, 2], np.int32), []),
        (
            tf.TensorSpec([2], tf.int32),
            np.zeros([3], np.int32),
            ["the value itself: expected int32 [2], got int32 [3]"],
        ),
        (
            {"x": tf.TensorSpec([None], tf.float32)},
            {"x": 1.5},
            ["x: expected float32 [?], got float64 []"],
        ),
        (
            {"x": tf.TensorSpec([], tf.int64)},
            {"y": np.int64(1)},
            [
                "x: expected int64 [], but there is no such field",
                "y: not expected, but got int64 []",
            ],
        ),
        (
            Pair({"camera": (tf.TensorSpec([2], "uint8"),)}, ()),
            Pair({"camera": [np.zeros([2], np.float32)]}, ()),
            ["left.camera[0]: expected uint8 [2], got float32 [2]"],
        ),
        ((tf.TensorSpec(None, tf.int32),), [tf.zeros([1, 1], tf.int32)], []),
    ],
)
def test_differences_name_field_expected_and_actual(expected, actual, lines):
    assert signatures.describe_mismatch(expected, actual) == lines


def test_bounded_specs_count_by_shape_and_type():
    bounded = tensor_spec.BoundedTensorSpec([2], tf.float32, -1, 1)
    assert signatures.describe_mismatch(tf.TensorSpec([2], tf.float32), bounded) == []

"""Rows: packing steps into bytes and reading them back."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import codec, window_layout
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
OBSERVATION = collections.OrderedDict(
    [
        ("speed", B([3], tf.float32, -1, 1)),
        ("count", B([], tf.int64, 0, 9)),
        ("flags", tf.TensorSpec([2, 2], tf.bool)),
        ("image", B([32, 32, 3], tf.uint8, 0, 255)),
        ("pair", (B([2], tf.float64, -1, 1), B([], tf.int8, 0, 1))),
    ]
)


def data_spec(observation=OBSERVATION):
    step = ts.time_step_spec(observation)
    action = B([2], tf.float32, -1, 1)
    return trajectory_lib.Trajectory(
        step.step_type, observation, action, {"log_prob": tf.TensorSpec([], tf.float32)},
        step.step_type, step.reward, step.discount,
    )  # fmt: skip


def random_step(spec, lanes, seed=0):
    generator = np.random.default_rng(seed)

    def leaf(spec):
        values = generator.integers(0, 2, size=(lanes, *spec.shape))
        if spec.dtype.is_floating:
            values = generator.normal(size=(lanes, *spec.shape))
        return values.astype(spec.dtype.as_numpy_dtype)

    return tf.nest.map_structure(leaf, spec)


def test_every_kind_of_field_survives_the_round_trip():
    spec, lanes = data_spec(), 4
    layout = window_layout.RowLayout(spec, lanes)
    step = random_step(spec, lanes)
    packed = layout.row(step, version=7)
    assert packed[codec.VERSION] == 7
    # As a reader sees them: [batch, T, ...] with a lane as the batch.
    columns = {k: tf.constant(v)[:, None] for k, v in packed.items() if k != codec.VERSION}
    unpacked = layout.unpack(columns)
    tf.nest.assert_same_structure(unpacked, spec)

    def same(stored, original):
        assert stored.dtype == original.dtype
        np.testing.assert_array_equal(stored[:, 0], original)

    tf.nest.map_structure(same, unpacked, step)


def test_only_large_fields_get_a_column_of_their_own():
    layout = window_layout.RowLayout(data_spec(), 4, window=2)
    assert layout.columns == ("record", "version", "observation/image")
    signature = layout.signature()
    assert signature["observation/image"].shape == [2, 4, 32, 32, 3]
    # 3 floats, an int64, 4 bools, 2 doubles, an int8, 2 floats of action, log_prob, and the four
    # numbers of every step.
    record_bytes = 12 + 8 + 4 + 16 + 1 + 8 + 4 + 4 * 4
    assert signature["record"].shape == [2, 4, record_bytes]


def test_the_digest_changes_with_name_shape_and_type_of_a_field():
    def digest(**observation):
        return window_layout.RowLayout(data_spec(observation), 1).digest()

    base = digest(x=B([2], tf.float32, 0, 1))
    assert base == digest(x=B([2], tf.float32, 5, 6))
    others = [
        digest(y=B([2], tf.float32, 0, 1)),
        digest(x=B([3], tf.float32, 0, 1)),
        digest(x=B([2], tf.int32, 0, 1)),
    ]
    assert len({base, *others}) == 4


def test_a_step_of_another_shape_is_refused_naming_table_field_and_shapes():
    spec = data_spec({"speed": B([3], tf.float32, -1, 1)})
    layout = window_layout.RowLayout(spec, 2)
    step = random_step(spec, 2)
    wrong = step._replace(observation={"speed": np.zeros((2, 4), np.float32)})
    with pytest.raises(errors.SpecMismatchError) as error:
        layout.check(wrong, "experience")
    assert "table 'experience', field 'observation/speed'" in str(error.value)
    assert "(2, 3) float32" in str(error.value) and "(2, 4) float32" in str(error.value)


def test_a_step_of_another_structure_is_refused():
    spec = data_spec({"speed": B([3], tf.float32, -1, 1)})
    step = random_step(data_spec({"pace": B([3], tf.float32, -1, 1)}), 2)
    with pytest.raises(errors.SpecMismatchError, match="structure"):
        window_layout.RowLayout(spec, 2).check(step, "experience")


def test_strings_are_refused():
    with pytest.raises(errors.SpecMismatchError, match="observation/name"):
        window_layout.RowLayout(data_spec({"name": tf.TensorSpec([], tf.string)}), 1)

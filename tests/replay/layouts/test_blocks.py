"""The layout of cells: packing rows, and reading them back."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import blocks, codec
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
OBSERVATION = collections.OrderedDict(
    [
        ("speed", B([3], tf.float32, -1, 1)),
        ("count", B([], tf.int64, 0, 9)),
        ("flags", tf.TensorSpec([2, 3], tf.bool)),
        ("image", B([32, 32, 3], tf.uint8, 0, 255)),
        ("small", (B([5], tf.uint8, 0, 255), B([], tf.int8, 0, 1), B([3], tf.uint16, 0, 99))),
        ("reals", (B([2], tf.float64, -1, 1), tf.TensorSpec([3], tf.float16))),
    ]
)


def data_spec(observation=OBSERVATION):
    step = ts.time_step_spec(observation)
    return trajectory_lib.Trajectory(
        step.step_type, observation, B([2], tf.float32, -1, 1),
        {"log_prob": tf.TensorSpec([], tf.float32)},
        step.step_type, step.reward, step.discount,
    )  # fmt: skip


def random_step(spec, lanes, seed):
    generator = np.random.default_rng(seed)

    def leaf(spec):
        values = generator.integers(0, 2, size=(lanes, *spec.shape))
        if spec.dtype.is_floating:
            values = generator.normal(size=(lanes, *spec.shape))
        return values.astype(spec.dtype.as_numpy_dtype)

    return tf.nest.map_structure(leaf, spec)


def test_every_kind_of_field_survives_the_round_trip():
    spec, lanes, num_rows = data_spec(), 3, 4
    layout = blocks.BlockLayout(spec, lanes, rows_per_item=num_rows)
    packed = layout.empty_rows(num_rows)
    steps = [random_step(spec, lanes, seed) for seed in range(num_rows)]
    paths = [field.path for field in layout.observed.fields]
    for row, step in enumerate(steps):
        for path, leaf in zip(paths, tf.nest.flatten(step)):
            packed.fields[path][row] = leaf
        packed.fields[codec.VERSION][row] = 10**12 + row
    # As a reader gets it: [items, cells, ...], here one item of one cell.
    columns = {name: tf.constant(cell)[None, None] for name, cell in packed.cell().items()}
    fields = layout.read(columns)
    np.testing.assert_array_equal(fields[codec.VERSION], 10**12 + np.repeat(range(num_rows), lanes))
    unpacked = layout.nest(fields)
    tf.nest.assert_same_structure(unpacked, spec)

    def same(spec, stored, *originals):
        assert stored.dtype == spec.dtype
        assert stored.shape[1:] == spec.shape
        np.testing.assert_array_equal(stored, np.concatenate(originals))

    tf.nest.map_structure(same, spec, unpacked, *steps)


def test_small_fields_share_a_column_and_large_ones_have_their_own():
    layout = blocks.BlockLayout(data_spec(), 3, rows_per_item=4, n_step=6)
    assert layout.columns == ("record", "observation/image")
    assert (layout.cells_before, layout.cells_after) == (0, 2)
    signature = layout.signature()
    assert signature["observation/image"].shape == [3, 4, 3, 32, 32, 3]
    # Words: speed 3, count 2, flags 2, small 2 + 1 + 2, reals 4 + 2, action 2, log_prob 1, the four
    # numbers of every step, version 2.
    assert signature["record"].shape == [3, 4 * 3 * (3 + 2 + 2 + 5 + 6 + 2 + 1 + 4 + 2)]


@pytest.mark.parametrize("shape, axis", [([4, 40, 30], 0), ([40, 30, 4], 2), ([4, 400, 4], 0)])
def test_of_stacked_frames_one_is_stored(shape, axis):
    spec = data_spec({"camera": B(shape, tf.uint8, 0, 255), "speed": B([4], tf.float32, 0, 1)})
    layout = blocks.BlockLayout(spec, 2, frame_stack=4)
    assert list(layout.stacks) == ["observation/camera"]
    assert layout.stacks["observation/camera"].axis == axis
    assert (layout.cells_before, layout.cells_after) == (3, 1)
    frame = [size for index, size in enumerate(shape) if index != axis]
    assert layout.signature()["observation/camera"].shape == [5, 1, 2, *frame]


def test_the_digest_changes_with_all_that_a_reader_must_know():
    spec = data_spec({"camera": B([4, 40, 30], tf.uint8, 0, 255)})
    other = data_spec({"picture": B([4, 40, 30], tf.uint8, 0, 255)})
    digests = [
        blocks.BlockLayout(spec, 1).digest(),
        blocks.BlockLayout(other, 1).digest(),
        blocks.BlockLayout(spec, 1, n_step=2).digest(),
        blocks.BlockLayout(spec, 1, rows_per_item=2).digest(),
        blocks.BlockLayout(spec, 1, frame_stack=4).digest(),
    ]
    assert len(set(digests)) == 5
    assert digests[0] == blocks.BlockLayout(spec, 1).digest()


def test_an_empty_field_is_refused():
    spec = data_spec({"nothing": tf.TensorSpec([0], tf.float32)})
    with pytest.raises(errors.SpecMismatchError, match="observation/nothing"):
        blocks.BlockLayout(spec, 1)

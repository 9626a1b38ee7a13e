"""Recording: every step comes back as it was, and damaged files are noticed."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import array_spec, tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import spec_json
from actor_learner.replay.layouts import codec, window_layout
from actor_learner.replay.recording import (
    experience_recorder,
    shards,
)
from actor_learner.support import errors
from tests.replay import lane_steps

B = tensor_spec.BoundedTensorSpec


def counted_spec():
    step = ts.time_step_spec(
        {"count": tf.TensorSpec([], tf.int64), "picture": B([2, 2], tf.uint8, 0, 255)}
    )
    return trajectory_lib.Trajectory(
        step.step_type, step.observation, B([2], tf.float32, -9.0, 9.0), (),
        step.step_type, step.reward, step.discount,
    )  # fmt: skip


def record(directory, lanes, flush_every=None, **options):
    """Records one stream of steps per lane; a shard per `flush_every` rows."""
    with experience_recorder.ExperienceRecorder(
        directory, counted_spec(), len(lanes), **options
    ) as recorder:
        for number, row in enumerate(lane_steps.batched(lanes), start=1):
            recorder(row)
            if flush_every and number % flush_every == 0:
                recorder.flush()


def read_all(directory, names):
    """The fields of all shards, in order."""
    read = [shards.read(shard, names) for shard in shards.find(directory)]
    return {name: np.concatenate([fields[name] for fields in read]) for name in names}


@pytest.mark.parametrize("compress", [True, False])
def test_every_step_comes_back_as_it_was(tmp_path, compress):
    lanes = [lane_steps.steps([3, 2, 4], lane=1), lane_steps.steps([5, 1, 3], lane=2)]
    record(tmp_path, lanes, flush_every=5, compress=compress, version=lambda: 11)
    found = shards.find(tmp_path)
    assert [tuple(shard[2:]) for shard in found] == [(0, 5, 2), (5, 5, 2), (10, 2, 2)]
    assert len(shards.contiguous(found)) == 1
    layout = window_layout.RowLayout(counted_spec(), 2)
    names = [field.path for field in layout.fields]
    fields = read_all(tmp_path, [*names, codec.VERSION])
    for number, row in enumerate(lane_steps.batched(lanes)):
        for field, leaf in zip(layout.fields, tf.nest.flatten(row)):
            np.testing.assert_array_equal(fields[field.path][number], leaf)
            assert fields[field.path].dtype == field.dtype
    assert fields[codec.VERSION].tolist() == [11] * 12


def test_steps_without_lanes_are_those_of_one_lane(tmp_path):
    with experience_recorder.ExperienceRecorder(tmp_path, counted_spec(), 1) as recorder:
        for step in lane_steps.steps([4]):
            recorder(step)
        assert recorder.num_rows == 5
    counts = read_all(tmp_path, ["observation/count"])["observation/count"]
    assert counts.tolist() == [[10], [11], [12], [13], [14]]


def test_memory_is_bounded_by_the_size_of_a_shard(tmp_path):
    # A row of two lanes is 2 * (8 + 4 + 8 + 4 * 4) = 72 bytes.
    record(tmp_path, [lane_steps.steps([9]), lane_steps.steps([9])], shard_bytes=72 * 4)
    assert [shard.num_rows for shard in shards.find(tmp_path)] == [4, 4, 2]


def test_a_cut_shard_is_left_out_and_whole_ones_are_used(tmp_path):
    record(tmp_path, [lane_steps.steps([9, 9])], flush_every=5)
    paths = sorted(tmp_path.glob("shard-*.npz"))
    paths[1].write_bytes(paths[1].read_bytes()[:-40])
    found = shards.find(tmp_path)
    assert [shard.first_row for shard in found] == [0, 10, 15]
    # The rows on both sides of the gap do not follow one another.
    assert [[s.first_row for s in group] for group in shards.contiguous(found)] == [[0], [10, 15]]


def test_a_changed_byte_is_noticed_when_the_field_is_read(tmp_path):
    record(tmp_path, [lane_steps.steps([9])], compress=False)
    (shard,) = shards.find(tmp_path)
    content = bytearray(shard.path.read_bytes())
    counts = np.arange(10, 20, dtype=np.int64).tobytes()
    content[bytes(content).index(counts)] ^= 1
    shard.path.write_bytes(bytes(content))
    assert shards.read(shard, ["reward"])["reward"].shape == (10, 1)
    assert shards.read(shard, ["observation/count"]) is None


def test_what_a_killed_recorder_left_half_written_is_no_shard(tmp_path):
    record(tmp_path, [lane_steps.steps([3])])
    (path,) = tmp_path.glob("shard-*.npz")
    (tmp_path / f".123.{path.name}").write_bytes(path.read_bytes()[:50])
    assert len(shards.find(tmp_path)) == 1


def test_recorders_share_a_directory_as_sessions_of_their_own(tmp_path):
    record(tmp_path, [lane_steps.steps([4])])
    record(tmp_path, [lane_steps.steps([4])] * 3)
    found = shards.find(tmp_path)
    assert sorted(shard.num_lanes for shard in found) == [1, 3]
    assert len(shards.contiguous(found)) == 2


def test_steps_of_another_kind_are_refused(tmp_path):
    record(tmp_path, [lane_steps.steps([4])])
    other = counted_spec()._replace(action=tf.TensorSpec([3], tf.float32))
    with pytest.raises(errors.SpecMismatchError, match="another kind.*action float32"):
        experience_recorder.ExperienceRecorder(tmp_path, other, 1)
    with experience_recorder.ExperienceRecorder(tmp_path, counted_spec(), 1) as recorder:
        wrong = lane_steps.steps([4])[0]._replace(action=np.zeros(3, np.float32))
        with pytest.raises(errors.SpecMismatchError, match="field 'action'"):
            recorder(wrong)


# Specs.


SPECS = {
    "vector": B([3], tf.float32, [-1.0, -np.inf, 0.25], [1.0, np.inf, 3.4028235e38]),
    "image": B([8, 8, 3], tf.uint8, 0, 255, name="camera"),
    "choice": B([], tf.int64, -(2**62), 2**62 + 1),
    "flag": tf.TensorSpec([2], tf.bool),
    "nest": {"a": [B([1], tf.float64, 0.1, 0.3), tf.TensorSpec([], tf.int8)], "b": ()},
    "named": ts.time_step_spec(tf.TensorSpec([2], tf.float32)),
}


def assert_same_specs(first, second):
    tf.nest.assert_same_structure(first, second)
    for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(second)):
        assert (a.shape, a.dtype, a.name, type(a)) == (b.shape, b.dtype, b.name, type(b))
        if isinstance(a, B):
            for bound in ("minimum", "maximum"):
                one, other = getattr(a, bound), getattr(b, bound)
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_specs_survive_as_json(name):
    text = json.dumps(spec_json.encode(SPECS[name]), allow_nan=False)
    assert_same_specs(spec_json.decode(json.loads(text)), SPECS[name])


def test_array_specs_become_tensor_specs():
    spec = array_spec.BoundedArraySpec((2,), np.float32, -1, 1, name="x")
    assert_same_specs(spec_json.decode(spec_json.encode(spec)), tensor_spec.from_spec(spec))


def test_what_is_no_spec_cannot_be_described():
    with pytest.raises(errors.SpecMismatchError, match="is not a spec"):
        spec_json.encode({"a": 3})
    with pytest.raises(errors.SpecMismatchError, match="keys must be text"):
        spec_json.encode({1: SPECS["flag"]})
    with pytest.raises(errors.SpecMismatchError, match="describes no spec"):
        spec_json.decode({"spec": "bounded", "shape": [2]})


def test_an_environment_is_not_needed_to_know_its_specs(tmp_path):
    time_step_spec = ts.time_step_spec({"a": SPECS["vector"], "b": SPECS["image"]})
    action_spec = B([2], tf.float32, [-2.0, -1.0], [2.0, 1.0], name="torque")
    spec = trajectory_lib.Trajectory(
        time_step_spec.step_type, time_step_spec.observation, action_spec,
        {"log_probability": tf.TensorSpec([], tf.float32)},
        time_step_spec.step_type, time_step_spec.reward, time_step_spec.discount,
    )  # fmt: skip
    run = tmp_path / "run"
    experience_recorder.ExperienceRecorder(run / experience_recorder.DIRECTORY, spec, 2).close()
    found_time_step, found_action = experience_recorder.read_specs(run)
    assert_same_specs(found_time_step, time_step_spec)
    assert_same_specs(found_action, action_spec)
    assert isinstance(experience_recorder.read_data_spec(run), trajectory_lib.Trajectory)


def test_a_place_without_a_recording_is_named(tmp_path):
    with pytest.raises(errors.ConfigError, match="Experiment.record"):
        experience_recorder.read_specs(tmp_path)
    with pytest.raises(errors.ConfigError, match="does not exist"):
        experience_recorder.read_specs(tmp_path / "nowhere")
    (tmp_path / experience_recorder.DESCRIPTION).write_text("{")
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        experience_recorder.read_specs(tmp_path)
    (tmp_path / experience_recorder.DESCRIPTION).write_text('{"format": 99, "step": {}}')
    with pytest.raises(errors.SpecMismatchError, match="format 99"):
        experience_recorder.read_specs(tmp_path)

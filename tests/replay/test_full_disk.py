"""Replay checkpoints and recordings on a real disk that fills up and is freed again."""

import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory

from actor_learner.replay.recording import experience_recorder, shards
from actor_learner.replay.server import server
from actor_learner.support import disk_space, errors, unsaved
from tests.small_disk import small_disk  # noqa: F401 - a fixture.


@pytest.fixture
def ledger():
    with unsaved.scope() as made:
        yield made


def test_a_replay_checkpoint_that_does_not_fit_leaves_the_former_one(small_disk):  # noqa: F811
    with server.ReplayServer(
        [reverb.Table.queue("queue", 1_000)], checkpoint_dir=small_disk.path / "replay"
    ) as replay:
        for _ in range(50):
            replay.client().insert(np.random.rand(1_000), {"queue": 1.0})
        former = replay.checkpoint()
        small_disk.fill()
        with pytest.raises(errors.ReplayError) as raised:
            replay.checkpoint()
        assert disk_space.is_out_of_space(raised.value)
        assert isinstance(raised.value.__cause__, IndexError)
        assert list((small_disk.path / "replay" / "incoming").iterdir()) == []
        small_disk.free()
        assert replay.checkpoint() > former


def recorder_on(directory, **options):
    spec = trajectory.Trajectory(
        step_type=tensor_spec.TensorSpec([], tf.int32),
        observation=tensor_spec.TensorSpec([8], tf.float32),
        action=tensor_spec.TensorSpec([], tf.int64),
        policy_info=(),
        next_step_type=tensor_spec.TensorSpec([], tf.int32),
        reward=tensor_spec.TensorSpec([], tf.float32),
        discount=tensor_spec.TensorSpec([], tf.float32),
    )
    return experience_recorder.ExperienceRecorder(directory, spec, 2, **options)


def step(number):
    return trajectory.Trajectory(
        step_type=np.ones(2, np.int32),
        observation=np.full((2, 8), number, np.float32),
        action=np.zeros(2, np.int64),
        policy_info=(),
        next_step_type=np.ones(2, np.int32),
        reward=np.zeros(2, np.float32),
        discount=np.ones(2, np.float32),
    )


def test_recorded_steps_wait_for_room_and_none_is_missing(small_disk, ledger):  # noqa: F811
    row_bytes = 2 * (8 * 4 + 4 + 8 + 4 + 4 + 4)
    recorder = recorder_on(small_disk.path, shard_bytes=10 * row_bytes)
    for number in range(15):
        recorder(step(number))
    small_disk.fill()
    for number in range(15, 75):
        recorder(step(number))
    assert [entry.what for entry in ledger.entries] == [
        f"recorded experience in {small_disk.path.name}/"
    ]
    assert "steps wait" in ledger.summary()
    small_disk.free()
    recorder.close()
    assert ledger.entries == []
    (group,) = shards.contiguous(shards.find(small_disk.path))
    observed = [shards.read(shard, ["observation"])["observation"][:, 0, 0] for shard in group]
    np.testing.assert_array_equal(np.concatenate(observed), np.arange(75))
    assert not list(small_disk.path.glob(".*"))


def test_of_too_many_recorded_steps_the_oldest_are_lost_and_counted(small_disk, ledger):  # noqa: F811
    row_bytes = 2 * (8 * 4 + 4 + 8 + 4 + 4 + 4)
    recorder = recorder_on(small_disk.path, shard_bytes=10 * row_bytes)
    small_disk.fill()
    for number in range(10 * 20):
        recorder(step(number))
    small_disk.free()
    recorder.close()
    (group,) = shards.contiguous(shards.find(small_disk.path))
    assert group[0].first_row == 40
    assert ledger.closing_lines() == [
        "LOST:         40 recorded steps of all lanes: the disk was full"
    ]

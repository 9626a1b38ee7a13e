"""Replay drawn by the learner: the same rows and seed give the same batches, and right ones."""

import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.server import server
from actor_learner.replay.streams import sample_stream, seeded_replay
from actor_learner.support import errors, reverb_calls

LANES = 3
SPEC = trajectory_lib.Trajectory(
    step_type=tf.TensorSpec([], tf.int32),
    observation={"image": tf.TensorSpec([40, 40], tf.uint8), "time": tf.TensorSpec([], tf.int64)},
    action=tensor_spec.BoundedTensorSpec([], tf.int64, 0, 9),
    policy_info=(),
    next_step_type=tf.TensorSpec([], tf.int32),
    reward=tf.TensorSpec([], tf.float32),
    discount=tf.TensorSpec([], tf.float32),
)


def step(t):
    """Step t of endless episodes: everything in it can be told from its time."""
    time = np.full(LANES, t, np.int64) + 1000 * np.arange(LANES)
    return trajectory_lib.Trajectory(
        step_type=np.ones(LANES, np.int32),
        observation={
            "image": np.broadcast_to((time % 251)[:, None, None], (LANES, 40, 40)).astype(np.uint8),
            "time": time,
        },
        action=time % 7,
        policy_info=(),
        next_step_type=np.ones(LANES, np.int32),
        reward=time.astype(np.float32),
        discount=np.ones(LANES, np.float32),
    )


def draw(seed, n_step, turns=3):
    stream = seeded_replay.SeededReplay(capacity=90, seed=seed)
    experience = sample_stream.Experience(SPEC, LANES, n_step, 0.5)
    batches = []
    with server.ReplayServer(stream.tables(experience)) as replay:
        observer = stream.observer(experience, replay.client(), version=lambda: 11)
        iterator = iter(stream.dataset(experience, replay.address, 8, timeout_seconds=5.0))
        for turn in range(turns):
            for t in range(20):
                observer(step(20 * turn + t))
            observer.flush()
            batches += [next(iterator), next(iterator)]
        assert stream.num_transitions(experience, 0) == 90
        observer.close()
    return batches


@pytest.mark.parametrize("n_step", [1, 3])
def test_batches_hold_what_was_written_and_see_new_rows_at_once(n_step):
    batches = draw(5, n_step)
    for number, (trajectory, info) in enumerate(batches):
        time = trajectory.observation["time"].numpy()
        assert time.shape == (8, 2)
        np.testing.assert_array_equal(time[:, 1], time[:, 0] + n_step)
        newest = 20 * (number // 2 + 1) - 1
        assert (time % 1000).max() <= newest
        first = time[:, 0]
        expected = sum(0.5**k * (first + k) for k in range(n_step))
        np.testing.assert_allclose(trajectory.reward[:, 0], expected)
        np.testing.assert_array_equal(trajectory.action[:, 0], first % 7)
        np.testing.assert_array_equal(trajectory.observation["image"][:, 0, 3, 3], first % 251)
        np.testing.assert_array_equal(info.version, 11)
    last = np.concatenate([b[0].observation["time"].numpy()[:, 0] % 1000 for b in batches[-2:]])
    assert last.min() >= 30  # The ring holds 30 rows.


def test_the_same_seed_draws_the_same_batches():
    for (one, _), (two, _) in zip(draw(5, 1), draw(5, 1)):
        np.testing.assert_array_equal(one.observation["time"], two.observation["time"])
    different = [
        np.any(one.observation["time"].numpy() != two.observation["time"].numpy())
        for (one, _), (two, _) in zip(draw(5, 1), draw(6, 1))
    ]
    assert any(different)


def write(observer, times):
    for t in times:
        observer(step(t))
    observer.flush()


@pytest.mark.parametrize("more", [0, 300])
def test_another_iterator_goes_on_where_the_first_one_stopped(more):
    stream = seeded_replay.SeededReplay(seed=0)
    experience = sample_stream.Experience(SPEC, LANES, 1, 0.5)
    with server.ReplayServer(stream.tables(experience)) as replay:
        observer = stream.observer(experience, replay.client())
        dataset = stream.dataset(experience, replay.address, 8, timeout_seconds=5.0)
        write(observer, range(20))
        next(iter(dataset))
        write(observer, range(20, 20 + more))
        trajectory, _ = reverb_calls.call_with_deadline(
            lambda: next(iter(dataset)), 60.0, lambda: AssertionError("the iterator hangs")
        )
        assert (trajectory.observation["time"].numpy() % 1000).max() < 20 + more
        assert stream.num_transitions(experience, 0) == (20 + more) * LANES
        observer.close()


def test_the_counts_of_the_table_do_not_depend_on_when_they_are_looked_at():
    stream = seeded_replay.SeededReplay(seed=0)
    experience = sample_stream.Experience(SPEC, LANES, 1, 0.5)
    with server.ReplayServer(stream.tables(experience)) as replay:
        observer = stream.observer(experience, replay.client())
        iterator = iter(stream.dataset(experience, replay.address, 8, timeout_seconds=5.0))
        write(observer, range(20))
        next(iterator)
        write(observer, range(20, 30))
        # Nobody asks for a batch: what was written stays unread, however long one waits.
        with pytest.raises(errors.ReplayTimeoutError):
            reverb_calls.call_with_deadline(
                lambda: _wait_for_samples(replay, 21), 0.3, lambda: errors.ReplayTimeoutError()
            )
        table = replay.info().tables[stream.table_name]
        assert (table.size, table.samples, table.inserts) == (10, 20, 30)
        observer.close()


def _wait_for_samples(replay, count):
    while replay.info().tables[seeded_replay.TABLE].samples < count:
        time.sleep(0.01)


def test_rows_that_somebody_else_takes_end_the_wait_with_an_explanation(caplog):
    stream = seeded_replay.SeededReplay(seed=0)
    experience = sample_stream.Experience(SPEC, LANES, 1, 0.5)
    with server.ReplayServer(stream.tables(experience)) as replay:
        observer = stream.observer(experience, replay.client())
        write(observer, range(5))
        real, thief = reverb_calls.fetch_table, replay.client()

        def fetch_and_steal(*args):
            info = real(*args)
            list(thief.sample(seeded_replay.TABLE, 3))
            return info

        dataset = stream.dataset(experience, replay.address, 8, timeout_seconds=0.3)
        with mock.patch.object(reverb_calls, "fetch_table", fetch_and_steal):
            with pytest.raises(StopIteration):
                next(iter(dataset))
        assert "0.3 s for 5 rows that table 'experience'" in caplog.text
        observer.close()


def test_an_empty_table_ends_the_dataset_after_the_timeout():
    stream = seeded_replay.SeededReplay(seed=0)
    experience = sample_stream.Experience(SPEC, LANES, 1, 0.5)
    with server.ReplayServer(stream.tables(experience)) as replay:
        iterator = iter(stream.dataset(experience, replay.address, 8, timeout_seconds=0.2))
        with pytest.raises(StopIteration):
            next(iterator)

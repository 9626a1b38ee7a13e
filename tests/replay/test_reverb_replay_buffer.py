"""The replay buffer against TF-Agents' own: same elements, same errors, and deadlines besides."""

import numpy as np
import pytest
import reverb
import tensorflow as tf
import tree
from tf_agents.replay_buffers import reverb_replay_buffer as theirs

from actor_learner.replay import observers, reverb_replay_buffer
from actor_learner.replay.server import server, signatures, tables
from actor_learner.support import errors
from tests.replay import lane_steps

SPEC = tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), lane_steps.steps([1])[0])
Buffer = reverb_replay_buffer.ReverbReplayBuffer


@pytest.fixture
def replay():
    """A server with one table per way of reading; each holds the windows of one episode of 7."""
    with server.ReplayServer(
        [
            tables.uniform_table("uniform", 100),
            tables.prioritized_table("prioritized", 100, priority_exponent=1.0),
            tables.queue_table("queue", 100),
            tables.uniform_table("signed", 100, signature=signatures.window_signature(SPEC, 4)),
        ]
    ) as running:
        names = ["uniform", "prioritized", "queue", "signed"]
        with observers.ReverbAddTrajectoryObserver(running.client(), names, 4, 4) as observer:
            for step in lane_steps.steps([7]):
                observer(step)
        yield running


def _counts(data):
    return np.asarray(data.observation["count"]).tolist()


def _add_one(data):
    return data._replace(reward=data.reward + 1)


@pytest.mark.parametrize("sequence_length", [4, None])
@pytest.mark.parametrize(
    "arguments",
    [
        dict(),
        dict(sample_batch_size=3),
        dict(sample_batch_size=3, num_steps=4),
        dict(sample_batch_size=3, num_steps=2),
        dict(num_steps=2),
        dict(sample_batch_size=3, num_steps=2, num_parallel_calls=2),
        dict(sample_batch_size=3, sequence_preprocess_fn=_add_one),
        dict(sample_batch_size=3, num_steps=2, sequence_preprocess_fn=_add_one),
    ],
)
def test_elements_have_the_form_of_tf_agents_elements(replay, sequence_length, arguments):
    ours = Buffer(SPEC, "uniform", sequence_length, local_server=replay)
    reference = theirs.ReverbReplayBuffer(
        SPEC, "uniform", sequence_length, local_server=replay.server
    )

    dataset = ours.as_dataset(**arguments)
    assert dataset.element_spec == reference.as_dataset(**arguments).element_spec
    data, info = next(iter(dataset))

    counted = np.atleast_2d(_counts(data))
    assert {tuple(row) for row in counted} <= (
        {(10, 11), (12, 13), (14, 15), (16, 17)}
        if arguments.get("num_steps") == 2
        else {(10, 11, 12, 13), (14, 15, 16, 17)}
    )
    expected_reward = counted - 10 + ("sequence_preprocess_fn" in arguments)
    np.testing.assert_array_equal(np.atleast_2d(data.reward), expected_reward)
    keys = np.atleast_2d(info.key)
    assert keys.shape == counted.shape
    assert (keys == keys[:, :1]).all()


def test_rows_cut_from_one_batch_of_items_are_all_delivered(replay):
    buffer = Buffer(SPEC, "queue", 4, local_server=replay, rate_limiter_timeout_ms=100)
    dataset = buffer.as_dataset(2, num_steps=2)
    rows = [tuple(row) for data, _ in dataset for row in _counts(data)]

    assert sorted(rows) == [(10, 11), (12, 13), (14, 15), (16, 17)]


@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_a_queue_is_read_in_order(replay, batch_size):
    buffer = Buffer(SPEC, "queue", 4, local_server=replay, rate_limiter_timeout_ms=100)
    dataset = buffer.as_dataset(batch_size, single_deterministic_pass=True, num_steps=2)

    rows = [row for data, _ in dataset for row in np.reshape(_counts(data), [-1, 2]).tolist()]
    assert rows == [[10, 11], [12, 13], [14, 15], [16, 17]]


def test_keys_of_samples_update_priorities(replay):
    buffer = Buffer(SPEC, "prioritized", 4, local_server=replay)
    dataset = buffer.as_dataset(1)
    keys = {}
    for data, info in dataset:
        keys[_counts(data)[0][0]] = info.key[0, 0]
        if len(keys) == 2:
            break
    buffer.update_priorities(tf.stack([keys[10]]), tf.constant([0.0], tf.float64))
    in_graph = tf.function(lambda k, p: buffer.update_priorities(k, p))
    in_graph(tf.stack([keys[14]]), tf.constant([5.0], tf.float64))

    samples = list(buffer.py_client.sample("prioritized", 20, emit_timesteps=False))
    assert {int(sample.data[1][0]) for sample in samples} == {14}
    assert samples[-1].info.priority == 5.0


def test_priorities_of_a_batch_with_time_are_refused(replay):
    buffer = Buffer(SPEC, "prioritized", 4, local_server=replay)
    with pytest.raises(ValueError, match=r"info.key\[:, 0\]"):
        buffer.update_priorities(np.zeros([2, 4], np.uint64), np.zeros([2, 4]))


def test_size_capacity_and_clearing(replay):
    buffer = Buffer(SPEC, "uniform", 4, server_address=replay.address)
    assert (buffer.num_frames(), buffer.capacity) == (2, 100)

    buffer.clear()

    assert buffer.num_frames() == 0
    assert buffer.get_table_info().current_size == 0


def test_the_server_may_be_given_as_replay_server_reverb_server_or_address(replay):
    for where in (
        dict(local_server=replay),
        dict(local_server=replay.server),
        dict(server_address=replay.address),
    ):
        buffer = Buffer(SPEC, "uniform", 4, **where)
        assert buffer.num_frames() == 2
        assert buffer.local_server is where.get("local_server")
        assert buffer.tf_client.server_address == replay.address
    with pytest.raises(ValueError, match="exactly one"):
        Buffer(SPEC, "uniform", 4)


@pytest.mark.parametrize("call", ["add_batch", "get_next", "gather_all"])
def test_what_reverb_cannot_do_is_not_implemented(replay, call):
    buffer = Buffer(SPEC, "uniform", 4, local_server=replay)
    with pytest.raises(NotImplementedError):
        getattr(buffer, call)(*([None] if call == "add_batch" else []))


def test_a_data_spec_unlike_the_tables_signature_is_refused_by_field(replay):
    Buffer(SPEC, "signed", None, local_server=replay)
    other = SPEC._replace(action=tf.TensorSpec([3], tf.float32))
    with pytest.raises(
        errors.SpecMismatchError, match=r"action: expected float32 \[4, 2\], got float32 \[4, 3\]"
    ):
        Buffer(other, "signed", 4, local_server=replay)


def test_an_unknown_table_is_an_error_that_lists_the_others(replay):
    with pytest.raises(errors.ReplayError, match="no table 'absent'; it has 'prioritized'"):
        Buffer(SPEC, "absent", 4, local_server=replay)


def test_an_absent_server_is_an_error_in_our_words():
    with pytest.raises(errors.ReplayTimeoutError, match="no Reverb server answered at localhost:1"):
        Buffer(SPEC, "uniform", 4, server_address="localhost:1", timeout_seconds=1)


def test_calls_after_the_servers_death_end():
    running = server.ReplayServer([tables.uniform_table("uniform", 10)])
    buffer = Buffer(SPEC, "uniform", 4, local_server=running, timeout_seconds=1)
    running.stop()

    for call in (
        buffer.clear,
        buffer.num_frames,
        lambda: buffer.update_priorities(np.array([1], np.uint64), np.array([1.0])),
    ):
        with pytest.raises(errors.ReplayError):
            call()


def test_make_reverb_dataset_gives_samples_like_tf_agents(replay):
    arguments = dict(batch_size=2, sequence_length=4)
    ours = reverb_replay_buffer.make_reverb_dataset(replay.address, "uniform", SPEC, **arguments)
    reference = theirs.make_reverb_dataset(replay.address, "uniform", SPEC, **arguments)

    assert ours.element_spec == reference.element_spec
    sample = next(iter(ours))
    assert isinstance(sample, reverb.ReplaySample)
    assert {row[0] for row in _counts(sample.data)} <= {10, 14}


def test_make_reverb_dataset_applies_the_functions_it_is_given(replay):
    dataset = reverb_replay_buffer.make_reverb_dataset(
        replay.address,
        "uniform",
        SPEC,
        sequence_length=4,
        batch_size=2,
        cycle_length=2,
        prefetch_size=1,
        per_sequence_fn=lambda sample: (sample.data.observation["count"], sample.info.key),
        dataset_transformation=lambda dataset: dataset.map(lambda count, key: (count * 2, key)),
    )
    count, key = next(iter(dataset))

    assert {tuple(row) for row in count.numpy()} <= {(20, 22, 24, 26), (28, 30, 32, 34)}
    assert key.shape == (2, 4)


def test_rows_are_cut_and_the_rest_is_dropped():
    cut = reverb_replay_buffer.truncate_reshape_rows_by_num_steps(
        {"x": tf.range(7), "y": tf.reshape(tf.range(14), [7, 2])}, 3
    )
    np.testing.assert_array_equal(cut["x"], [[0, 1, 2], [3, 4, 5]])
    assert cut["y"].shape == (2, 3, 2)

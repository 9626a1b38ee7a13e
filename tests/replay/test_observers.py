"""The items that observers write to a real server, as a table of cases: episodes in, items out."""

from __future__ import annotations

import numpy as np
import pytest
import reverb
import tensorflow as tf
import tree

from actor_learner.replay import observers
from actor_learner.replay.server import signatures, tables
from actor_learner.support import errors
from tests.replay import lane_steps

Episode = observers.ReverbAddEpisodeObserver
Windows = observers.ReverbAddTrajectoryObserver
Sequences = observers.ReverbTrajectorySequenceObserver

# Per case: observer, its arguments, lengths of the episodes, expected observations of the items.
CASES = [
    # One item per episode, boundary step included.
    (Episode, dict(max_sequence_length=9), [1, 3], [(10, 11), (20, 21, 22, 23)]),
    (
        Episode,
        dict(max_sequence_length=4, bypass_partial_episodes=True),
        [3, 4, 2],
        [(10, 11, 12, 13), (30, 31, 32)],
    ),
    # Windows of one step.
    (Windows, dict(sequence_length=1), [1, 2], [(10,), (11,), (20,), (21,), (22,)]),
    # Pairs.
    (Windows, dict(sequence_length=2), [1], [(10, 11)]),
    (Windows, dict(sequence_length=2), [2], [(10, 11), (11, 12)]),
    (Windows, dict(sequence_length=2), [3, 1], [(10, 11), (11, 12), (12, 13), (20, 21)]),
    # Strides: what is left after the last full stride gives nothing.
    (Windows, dict(sequence_length=2, stride_length=2), [3], [(10, 11), (12, 13)]),
    (Windows, dict(sequence_length=3, stride_length=3), [3, 5], [
        (10, 11, 12), (20, 21, 22), (23, 24, 25),
    ]),
    (Windows, dict(sequence_length=3, stride_length=2), [5], [(10, 11, 12), (12, 13, 14)]),
    (Windows, dict(sequence_length=2, stride_length=3), [5], [(10, 11), (13, 14)]),
    # Episodes shorter than the window.
    (Windows, dict(sequence_length=5), [1, 2, 3], []),
    (Windows, dict(sequence_length=5), [3, 5], [(20, 21, 22, 23, 24), (21, 22, 23, 24, 25)]),
    # Padding.
    (Windows, dict(sequence_length=5, pad_end_of_episodes=True), [1, 3], [
        (10, 11, 0, 0, 0), (20, 21, 22, 23, 0),
    ]),
    (Windows, dict(sequence_length=3, pad_end_of_episodes=True), [1, 5], [
        (10, 11, 0), (20, 21, 22), (21, 22, 23), (22, 23, 24), (23, 24, 25),
    ]),
    # Padding and tiling.
    (
        Windows,
        dict(sequence_length=3, pad_end_of_episodes=True, tile_end_of_episodes=True),
        [3, 1],
        [(10, 11, 12), (11, 12, 13), (12, 13, 0), (13, 0, 0), (20, 21, 0), (21, 0, 0)],
    ),
    (
        Windows,
        dict(
            sequence_length=3,
            stride_length=2,
            pad_end_of_episodes=True,
            tile_end_of_episodes=True,
        ),
        [3],
        [(10, 11, 12), (12, 13, 0)],
    ),
    # Windows over boundaries.
    (Sequences, dict(sequence_length=2), [1, 2], [(10, 11), (11, 20), (20, 21), (21, 22)]),
    (Sequences, dict(sequence_length=2, stride_length=2), [1, 2, 1], [
        (10, 11), (20, 21), (22, 30),
    ]),
    (Sequences, dict(sequence_length=5), [1, 1, 1], [(10, 11, 20, 21, 30), (11, 20, 21, 30, 31)]),
]  # fmt: skip
IDS = [f"{case[0].__name__}-{case[1]}-{case[2]}" for case in CASES]


@pytest.fixture(scope="module")
def client():
    server = reverb.Server([tables.queue_table("queue", 10_000), tables.queue_table("other", 100)])
    yield server.localhost_client()
    server.stop()


@pytest.fixture(autouse=True)
def _empty_tables(client):
    client.reset("queue")
    client.reset("other")


@pytest.mark.parametrize("observer_class, arguments, lengths, expected", CASES, ids=IDS)
def test_one_lane_writes_the_items_of_the_case(
    client, observer_class, arguments, lengths, expected
):
    with observer_class(client, "queue", **arguments) as observer:
        for step in lane_steps.steps(lengths):
            observer(step)

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == expected


@pytest.mark.parametrize("observer_class", [Windows, Sequences])
def test_items_are_on_the_server_once_flush_seconds_have_passed(client, observer_class):
    # No time at all: every item is there as soon as its last step was observed.
    with observer_class(client, "queue", sequence_length=4, flush_seconds=0.0) as observer:
        for number, step in enumerate(
            lane_steps.batched([lane_steps.steps([60], lane=n) for n in (1, 2)])
        ):
            observer(step)
            assert client.server_info(5)["queue"].current_size == 2 * max(0, number - 2)


@pytest.mark.parametrize("observer_class, arguments, lengths, expected", CASES, ids=IDS)
def test_three_lanes_write_exactly_the_items_of_three_observers(
    client, observer_class, arguments, lengths, expected
):
    # Lanes of different episode lengths: the case, the case after an episode of 2, and ones of 1.
    lanes = [
        lane_steps.steps(lengths + [1] * 5, lane=1),
        lane_steps.steps([2] + lengths + [3], lane=2),
        lane_steps.steps([1] * 10, lane=3),
    ]
    shortest = min(map(len, lanes))
    lanes = [lane[:shortest] for lane in lanes]
    separate = {}
    for number, lane in enumerate(lanes, start=1):
        with observer_class(client, "queue", **arguments) as observer:
            for step in lane:
                observer(step)
        separate[number] = lane_steps.read_items(client, "queue")

    with observer_class(client, "queue", **arguments) as observer:
        for step in lane_steps.batched(lanes):
            observer(step)
    together = {1: [], 2: [], 3: []}
    for item in lane_steps.read_items(client, "queue"):
        together[int(item[1][0]) // 1000].append(item)

    assert sum(map(len, separate.values())) > 0 or not expected
    for number in separate:
        assert len(together[number]) == len(separate[number])
        for item, twin in zip(together[number], separate[number]):
            for column, twin_column in zip(item, twin):
                assert column.dtype == twin_column.dtype
                np.testing.assert_array_equal(column, twin_column)


def test_all_fields_of_an_item_keep_their_values_types_and_order(client):
    with Windows(client, "queue", 2) as observer:
        for step in lane_steps.steps([1]):
            observer(step)

    (item,) = lane_steps.read_items(client, "queue")
    step_type, count, picture, action, next_step_type, reward, discount = item
    np.testing.assert_array_equal(step_type, np.array([0, 2], np.int32))
    np.testing.assert_array_equal(count, np.array([10, 11], np.int64))
    np.testing.assert_array_equal(picture, np.array([[[0, 0]] * 2, [[1, 1]] * 2], np.uint8))
    np.testing.assert_array_equal(action, np.array([[0, 0], [1, -1]], np.float32))
    np.testing.assert_array_equal(next_step_type, np.array([2, 0], np.int32))
    np.testing.assert_array_equal(reward, np.array([0, 1], np.float32))
    np.testing.assert_array_equal(discount, np.array([0, 1], np.float32))
    assert [column.dtype for column in item] == [
        np.int32, np.int64, np.uint8, np.float32, np.int32, np.float32, np.float32,
    ]  # fmt: skip


def test_padding_is_a_boundary_step_of_zeros(client):
    with Windows(client, "queue", 3, pad_end_of_episodes=True) as observer:
        for step in lane_steps.steps([1]):
            observer(step)

    (item,) = lane_steps.read_items(client, "queue")
    assert item[0].tolist() == [lane_steps.FIRST, lane_steps.LAST, lane_steps.LAST]
    assert item[4].tolist() == [lane_steps.LAST, lane_steps.FIRST, lane_steps.FIRST]
    assert [float(np.sum(np.abs(column[2]))) for column in item[1:4] + item[5:]] == [0] * 5


def test_items_go_to_all_tables_with_their_priority(client):
    with Windows(client, ["queue", "other"], 2, priority=3) as observer:
        for step in lane_steps.steps([2]):
            observer(step)

    sampled = next(client.sample("other", emit_timesteps=False))
    assert sampled.info.priority == 3
    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11), (11, 12)]


def test_arrays_may_be_reused_by_the_caller(client):
    buffers = tree.map_structure(np.copy, lane_steps.batched([lane_steps.steps([1], 1)])[0])
    with Sequences(client, "queue", 3) as observer:
        for step in lane_steps.batched([lane_steps.steps([2], 1)]):
            tree.map_structure(np.copyto, buffers, step)
            observer(buffers)

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(1010, 1011, 1012)]


@pytest.mark.parametrize("observer_class", [Episode, Windows])
def test_a_foreign_reset_drops_the_unfinished_episode(client, observer_class):
    begun, other = lane_steps.steps([3, 2])[:2], lane_steps.steps([3, 2])[4:]
    with observer_class(client, "queue", 3) as observer:
        for step in begun + other:  # 10 11 | 20 21 22: no item may span the two.
            observer(step)

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(20, 21, 22)]


def test_sequences_drop_steps_at_a_foreign_reset_but_not_at_a_boundary(client):
    foreign, episodes = lane_steps.steps([3])[:1], lane_steps.steps([1, 1])
    with Sequences(client, "queue", 2) as observer:
        for step in foreign + episodes:
            observer(step)

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [
        (10, 11),
        (11, 20),
        (20, 21),
    ]


def test_sequences_take_flattened_trajectories(client):
    with Sequences(client, "queue", 2) as observer:
        for step in lane_steps.steps([1]):
            observer(tree.flatten(step))

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11)]


def test_windows_refuse_flattened_trajectories(client):
    with Windows(client, "queue", 2) as observer:
        with pytest.raises(errors.SpecMismatchError, match="step_type"):
            observer(tree.flatten(lane_steps.steps([1])[0]))


def test_reset_without_padding_refuses_to_lose_steps(client):
    with Windows(client, "queue", 3) as observer:
        for step in lane_steps.steps([5])[:2]:
            observer(step)
        with pytest.raises(ValueError, match="pad_end_of_episodes"):
            observer.reset()
        observer.reset(write_cached_steps=False)
        for step in lane_steps.steps([2]):
            observer(step)

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11, 12)]


def test_reset_does_not_write_a_window_twice(client):
    with Windows(client, "queue", 2) as observer:
        for step in lane_steps.steps([5])[:2]:
            observer(step)
        observer.reset()

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11)]


def test_reset_writes_an_unfinished_episode_of_every_lane(client):
    lanes = [lane_steps.steps([5], 1)[:2], lane_steps.steps([5], 2)[:2]]
    with Episode(client, "queue", 9) as observer:
        for step in lane_steps.batched(lanes):
            observer(step)
        observer.reset()

    items = lane_steps.counts(lane_steps.read_items(client, "queue"))
    assert sorted(items) == [(1010, 1011), (2010, 2011)]


def test_a_closed_observer_says_so_and_can_be_opened_again(client):
    observer = Windows(client, "queue", 2)
    observer.close()
    observer.close()
    with pytest.raises(errors.ReplayError, match="open"):
        observer(lane_steps.steps([1])[0])

    observer.open()
    for step in lane_steps.steps([1]):
        observer(step)
    observer.close()

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11)]


def test_a_step_that_changes_shape_is_refused_by_name(client):
    first, second = lane_steps.steps([1])
    with Windows(client, "queue", 2) as observer:
        observer(first)
        with pytest.raises(
            errors.SpecMismatchError, match=r"action: expected float32 \[2\], got float32 \[3\]"
        ):
            observer(second._replace(action=np.zeros(3, np.float32)))


def test_lanes_that_change_in_number_are_refused(client):
    two = lane_steps.batched([lane_steps.steps([1], 1), lane_steps.steps([1], 2)])
    with Windows(client, "queue", 2) as observer:
        observer(two[0])
        with pytest.raises(errors.SpecMismatchError, match="2 lanes"):
            observer(lane_steps.batched([lane_steps.steps([1], lane) for lane in (1, 2, 3)])[1])


@pytest.fixture
def signed():
    """A client of a server whose table has the signature of windows of two steps."""
    signature = signatures.window_signature(lane_steps.steps([1])[0], 2)
    server = reverb.Server([tables.uniform_table("signed", 10, signature=signature)])
    yield server.localhost_client()
    server.stop()


def test_fitting_trajectories_pass_the_signature(signed):
    with Windows(signed, "signed", 2) as observer:
        for step in lane_steps.batched([lane_steps.steps([1], 1), lane_steps.steps([1], 2)]):
            observer(step)

    assert signed.server_info(5)["signed"].current_size == 2


def test_a_wrong_dtype_names_table_field_expected_and_actual(signed):
    step = lane_steps.steps([1])[0]._replace(reward=np.array(0.0, np.float64))
    observer = Windows(signed, "signed", 2)
    with pytest.raises(errors.SpecMismatchError) as caught:
        observer(step)
    observer.close()

    assert "'signed'" in str(caught.value)
    assert "reward: expected float32 [], got float64 []" in str(caught.value)


def test_a_field_of_another_name_is_refused(signed):
    step = lane_steps.steps([1])[0]
    renamed = {"number": step.observation["count"], "picture": step.observation["picture"]}
    observer = Windows(signed, "signed", 2)
    with pytest.raises(errors.SpecMismatchError) as caught:
        observer(step._replace(observation=renamed))
    observer.close()

    assert "observation.count: expected int64 [], but there is no such field" in str(caught.value)
    assert "observation.number: not expected" in str(caught.value)
    assert signed.server_info(5)["signed"].current_size == 0


def test_another_window_length_than_the_tables_is_refused_at_once(signed):
    with pytest.raises(errors.SpecMismatchError, match="windows of 2 steps.*windows of 3"):
        Windows(signed, "signed", 3)


def test_an_episode_that_does_not_fit_the_table_is_refused_when_written(signed):
    with Episode(signed, "signed", 9) as observer:
        with pytest.raises(errors.SpecMismatchError, match="3 steps does not fit table 'signed'"):
            for step in lane_steps.steps([2]):
                observer(step)


def test_a_signature_without_time_dimension_is_explained():
    windows = signatures.window_signature(lane_steps.steps([1])[0], 2)
    signature = signatures.without_time(windows)
    server = reverb.Server([tables.uniform_table("signed", 10, signature=signature)])
    with pytest.raises(errors.SpecMismatchError, match="window_signature"):
        Windows(server.localhost_client(), "signed", 2)
    server.stop()


def test_an_unknown_table_is_named_with_those_there_are(client):
    with pytest.raises(errors.ReplayError, match="no table 'absent'; it has 'other', 'queue'"):
        Windows(client, "absent", 2)


def test_an_absent_server_is_an_error_in_our_words():
    with pytest.raises(errors.ReplayTimeoutError, match="no Reverb server answered at localhost:1"):
        Windows(reverb.Client("localhost:1"), "queue", 2, timeout_seconds=1)


def test_a_full_queue_stops_the_writer_and_the_error_says_who_waits_for_whom():
    server = reverb.Server([tables.queue_table("queue", 3)])
    client = server.localhost_client()
    observer = Windows(
        client, "queue", 1, max_in_flight_items=2, timeout_seconds=2.0, flush_seconds=3600.0
    )
    written = []
    with pytest.raises(errors.ReplayTimeoutError, match="inserting waits for samples: 3 inserts"):
        for step in lane_steps.steps([50]):
            written.append(step)
            observer(step)

    # Three items are in the table and two in flight.
    assert len(written) == 5
    assert client.server_info(5)["queue"].current_size == 3
    with pytest.raises(errors.ReplayTimeoutError):
        observer.close()
    server.stop()


def test_flush_waits_until_items_can_be_read(client):
    with Windows(client, "queue", 2) as observer:
        for step in lane_steps.steps([5])[:3]:
            observer(step)
        observer.flush()
        assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11), (11, 12)]


def test_close_after_the_servers_death_returns():
    server = reverb.Server([tables.queue_table("queue", 1)])
    observer = Windows(server.localhost_client(), "queue", 1, flush_seconds=3600.0)
    for step in lane_steps.steps([5])[:4]:  # More than the queue takes: some stay in flight.
        observer(step)
    server.stop()

    observer.close()

    with pytest.raises(errors.ReplayError, match="closed"):
        observer.flush()


def test_eager_tensors_are_written_like_arrays(client):
    with Windows(client, "queue", 2) as observer:
        for step in lane_steps.steps([1]):
            observer(tree.map_structure(tf.constant, step))

    assert lane_steps.counts(lane_steps.read_items(client, "queue")) == [(10, 11)]


@pytest.mark.parametrize(
    "arguments",
    [dict(sequence_length=0), dict(sequence_length=2, stride_length=0),
     dict(sequence_length=2, tile_end_of_episodes=True)],
)  # fmt: skip
def test_impossible_windows_are_refused(client, arguments):
    with pytest.raises(ValueError):
        Windows(client, "queue", **arguments)

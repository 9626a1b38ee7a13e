"""A table's name: chosen per stream, carried by both ends, and marked with the run's id."""

import pytest
import tensorflow as tf

from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import (
    highest_priority,
    lane_replay,
    mixed_replay,
    prioritized_replay,
    recorded_replay,
    recorded_sequences,
    sample_stream,
    seeded_replay,
    sequence_replay,
    unroll_queue,
    window_replay,
)
from actor_learner.support import errors
from tests.replay import lane_steps
from tests.replay.layouts import test_stored_bytes
from tests.replay.recording import test_recording

RUN, OTHER_RUN = "3f2a91c0" * 4, "77aa0011" * 4
LANES = test_stored_bytes.LANES


def sequences(table_name):
    return sequence_replay.SequenceReplay(sequence_length=4, period=2, table_name=table_name)


WRITTEN = {  # By kind: makes a stream whose table has the name.
    "lanes": lambda name: lane_replay.LaneReplay(1000, rows_per_item=2, table_name=name),
    "prioritized": lambda name: prioritized_replay.PrioritizedReplay(
        1000, train_step=tf.Variable(0, dtype=tf.int64), table_name=name
    ),
    "seeded": lambda name: seeded_replay.SeededReplay(seed=0, table_name=name),
    "sequences": sequences,
    "unrolls": lambda name: unroll_queue.UnrollQueue(3, max_queued_batches=8, table_name=name),
    "windows": lambda name: window_replay.WindowReplay(1000, table_name=name),
}


def experience_of(kind):
    spec = test_stored_bytes.data_spec(with_state=kind in ("sequences", "unrolls"))
    return sample_stream.Experience(spec, LANES, 1, 0.9)


@pytest.mark.parametrize("run_id", ["", RUN], ids=["no_run", "run"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_both_ends_of_two_streams_keep_to_their_own_tables_on_one_server(kind, run_id):
    experience = experience_of(kind)
    streams = [WRITTEN[kind](name) for name in ("left", "right")]
    expected = ["left", "right"]
    if run_id:
        streams = [stream.for_run(run_id) for stream in streams]
        expected = ["left@3f2a91c0", "right@3f2a91c0"]
    left, right = streams
    assert [left.table_name, right.table_name] == expected
    made = [table for stream in streams for table in stream.tables(experience)]
    assert all(("@3f2a91c0" in table.name) == bool(run_id) for table in made)
    for part in left.prioritized(8):
        assert part.table_name == expected[0]
    with server.ReplayServer(made) as replay:
        observer = left.observer(experience, replay.client())
        test_stored_bytes.write(observer, experience.data_spec)
        sizes = {name: table.size for name, table in replay.info().tables.items()}
        assert sizes[expected[0]] > 0 and sizes[expected[1]] == 0
        for stream, count in ((left, 1), (right, 0)):
            batches = stream.dataset(experience, replay.address, 4, 2.0 if count else 0.2)
            assert len(list(batches.take(1))) == count
        observer.close()


def test_the_highest_priority_is_kept_per_table_and_run():
    experience = experience_of("prioritized")
    stream = WRITTEN["prioritized"]("left").for_run(RUN)
    with server.ReplayServer(stream.tables(experience)) as replay:
        client = replay.client()
        table = highest_priority.table_for(stream.table_name)
        assert set(replay.info().tables) == {"left@3f2a91c0", table}
        highest_priority.publish(client, table, 7.0, 10.0)
        observer = stream.observer(experience, client)
        test_stored_bytes.write(observer, experience.data_spec)
        (sample,) = client.sample("left@3f2a91c0", 1, emit_timesteps=False)
        assert sample.info.priority == 7.0
        observer.close()
        other = WRITTEN["prioritized"]("left").for_run(OTHER_RUN)
        with pytest.raises(errors.OtherRunError):
            highest_priority.read(client, highest_priority.table_for(other.table_name), 10.0)


@pytest.mark.parametrize("kind", WRITTEN)
def test_an_observer_refuses_the_server_of_another_run(kind):
    experience = experience_of(kind)
    ours, theirs = (WRITTEN[kind]("left").for_run(run) for run in (RUN, OTHER_RUN))
    with server.ReplayServer(theirs.tables(experience)) as replay:
        with pytest.raises(errors.OtherRunError, match="no table 'left@3f2a91c0' of this run"):
            ours.observer(experience, replay.client())


def test_a_stream_bound_to_a_run_leaves_the_original_as_it_was():
    stream = lane_replay.LaneReplay(table_name="left")
    bound = stream.for_run(RUN)
    assert (stream.table_name, bound.table_name) == ("left", "left@3f2a91c0")
    assert bound.for_run(OTHER_RUN).table_name == "left@77aa0011"


def test_all_parts_of_a_mixture_carry_the_run(tmp_path):
    test_recording.record(tmp_path, [lane_steps.steps([3, 4, 5])])
    spec = test_recording.counted_spec()
    experience = sample_stream.Experience(spec, 1, 1, 0.9)
    recorded = recorded_replay.RecordedReplay(str(tmp_path), table_name="old")
    with_priorities = prioritized_replay.PrioritizedReplay(
        100, importance_start=1.0, importance_end=1.0, table_name="new"
    )
    mixture = mixed_replay.MixedReplay([with_priorities, recorded], [1, 1])
    assert mixture.table_name == "new" and recorded.table_name == "old"
    bound = mixture.for_run(RUN)
    names = [table.name for table in bound.tables(experience)]
    assert names == ["new@3f2a91c0", "new@3f2a91c0_highest_priority", "old@3f2a91c0"]
    assert bound.table_name == "new@3f2a91c0" and mixture.table_name == "new"
    assert [part.table_name for part in bound.prioritized(4)] == ["new@3f2a91c0"]
    with server.ReplayServer(bound.tables(experience)) as replay:
        assert bound.fill(experience, replay.client()) > 0
        sizes = {name: table.size for name, table in replay.info().tables.items()}
        assert sizes["old@3f2a91c0"] > 0 and sizes["new@3f2a91c0"] == 0
        with pytest.raises(errors.OtherRunError):
            mixture.for_run(OTHER_RUN).fill(experience, replay.client())


def test_recorded_sequences_carry_the_run(tmp_path):
    test_recording.record(tmp_path, [lane_steps.steps([3])])
    for stream in (
        recorded_sequences.RecordedSequences(str(tmp_path), table_name="old"),
        recorded_sequences.RecordedSequences(str(tmp_path), sequences=sequences("old")),
    ):
        bound = stream.for_run(RUN)
        assert (stream.table_name, bound.table_name) == ("old", "old@3f2a91c0")
        (table,) = bound.tables(experience_of("sequences"))
        assert table.name == "old@3f2a91c0"
        assert [part.table_name for part in bound.prioritized(4)] == ["old@3f2a91c0"]


@pytest.mark.parametrize("name", ["", "left@3f2a91c0", None])
def test_names_that_no_table_can_have_are_configuration_errors(name):
    with pytest.raises(errors.ConfigError, match="SeededReplay.table_name"):
        seeded_replay.SeededReplay(table_name=name)


@pytest.mark.parametrize(
    "stream", [lane_replay.LaneReplay, sequence_replay.SequenceReplay, window_replay.WindowReplay]
)
def test_a_name_instead_of_a_builder_of_tables_says_where_it_belongs(stream):
    with pytest.raises(errors.ConfigError, match=f"{stream.__name__}.table_name"):
        stream(table="left")


class OldStream(lane_replay.LaneReplay):
    """A stream of a user that names its table as the base class once did."""

    table_name = "mine"


def test_a_stream_that_names_its_table_by_itself_cannot_be_bound_to_a_run():
    stream = OldStream(1000)
    assert stream.tables(experience_of("lanes"))[0].name == "mine"
    with pytest.raises(TypeError, match="OldStream names its table by itself"):
        stream.for_run(RUN)


def test_rate_limited_tables_are_made_again_for_every_run():
    stream = prioritized_replay.PrioritizedReplay(10, rate_limiter=tables.min_size)
    experience = experience_of("prioritized")
    assert len({stream.for_run(run).tables(experience)[0].name for run in (RUN, OTHER_RUN)}) == 2

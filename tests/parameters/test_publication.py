"""The learner's policy on its way to actors: versions, announcements, wrong servers."""

import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf

from actor_learner.parameters import follower as follower_lib
from actor_learner.parameters import latest_bytes, packing, publication
from actor_learner.parameters import publisher as publisher_lib
from actor_learner.replay.server import server
from actor_learner.support import errors, reverb_calls

RUN = "a" * 32
NEVER = threading.Event()


def variables(value):
    return [tf.Variable(tf.fill([3, 2], float(value))), tf.Variable(value, dtype=tf.int64)]


def announcement(**changes):
    settings = dict(
        run_id=RUN,
        train_step=0,
        version=-1,
        environment_step=0,
        steps_allowed=0,
        done=False,
        time=1.5,
        counted={},
    )
    return publication.Announcement(**{**settings, **changes})


@pytest.fixture
def replay():
    with server.ReplayServer(publication.publication_tables(variables(0))) as made:
        yield made


@pytest.fixture
def publisher(replay):
    made = publisher_lib.Publisher(replay.address, variables(7), RUN, timeout_seconds=20.0)
    yield made
    made.close()


def follow(replay, values, run_id=RUN, **settings):
    return follower_lib.Follower(replay.address, values, run_id, timeout_seconds=5.0, **settings)


def test_a_follower_gets_whole_versions_and_assigns_them_only_when_told_to(replay, publisher):
    values = variables(0)
    follower = follow(replay, values)
    publisher.publish(5, with_next=True)
    publisher.announce(announcement(train_step=9, environment_step=40, steps_allowed=60))
    assert follower.wait_for(lambda: follower.pulled_version == 5, 30, NEVER)
    np.testing.assert_array_equal(values[0], 0.0)
    assert follower.version == -1 and follower.lag is None
    assert follower.apply()
    np.testing.assert_array_equal(values[0], 7.0)
    assert values[1].numpy() == 7
    assert follower.version == 5 and follower.lag == 4
    assert not follower.apply()
    heard = follower.announcement
    assert (heard.version, heard.environment_step, heard.steps_allowed) == (5, 40, 60)
    assert not heard.done and heard.time == 1.5
    follower.close()


def test_a_follower_knows_for_how_long_it_has_been_behind(replay, publisher):
    follower = follow(replay, variables(0))
    publisher.publish(5, with_next=True)
    publisher.announce(announcement(train_step=5))
    assert follower.wait_for(lambda: follower.pulled_version == 5, 30, NEVER)
    follower.apply()
    assert (follower.lag, follower.lag_seconds) == (0, 0.0)
    publisher.announce(announcement(train_step=8))
    assert follower.wait_for(lambda: follower.lag == 3, 30, NEVER)
    assert follower.lag_seconds > 0.0
    publisher.publish(8)
    publisher.announce(announcement(train_step=8))
    assert follower.wait_for(lambda: follower.pulled_version == 8, 30, NEVER)
    follower.apply()
    assert follower.lag_seconds == 0.0
    follower.close()


def test_a_follower_finds_a_server_that_was_restarted_empty(replay, publisher):
    follower = follow(replay, variables(0))
    publisher.publish(1)
    publisher.announce(announcement(train_step=1))
    assert follower.wait_for(lambda: follower.pulled_version == 1, 30, NEVER)
    replay.stop()
    with server.ReplayServer(publication.publication_tables(variables(0)), replay.port):
        heard = follower.announcement
        publisher.publish(2)
        publisher.announce(announcement(train_step=2))
        assert follower.wait_for(lambda: follower.pulled_version == 2, 60, NEVER)
        assert follower.announcement is not heard
        follower.close()
        publisher.close()


def test_nothing_is_sent_to_a_server_of_another_run_that_took_the_port(replay):
    looked = []

    def whose():
        looked.append(True)
        raise errors.OtherRunError("it belongs to another run")

    publisher = publisher_lib.Publisher(
        replay.address, variables(7), RUN, timeout_seconds=5.0, after_outage=whose
    )
    publisher.publish(1)
    publisher.flush(30)
    assert not looked and not publisher.is_failing
    replay.stop()
    publisher.publish(2)
    with pytest.raises(errors.OtherRunError):
        publisher.flush(60)
    assert len(looked) == 1 and publisher.is_failing
    with pytest.raises(errors.OtherRunError):
        publisher.raise_if_failed()
    publisher.close()


def test_variables_that_the_server_was_not_made_for_are_refused_at_once(replay):
    for end in (publisher_lib.Publisher, follower_lib.Follower):
        with pytest.raises(errors.SpecMismatchError, match="the networks of the jobs differ"):
            end(replay.address, [tf.Variable(tf.zeros([30, 20]))], RUN)


def test_what_trying_again_cannot_cure_reaches_the_learner_at_once(replay, publisher):
    publisher.announce(announcement(train_step="seven"))
    with pytest.raises(ValueError, match="seven"):
        publisher.flush(30)
    with pytest.raises(ValueError, match="seven"):
        publisher.raise_if_failed()


def test_a_publication_and_its_announcement_are_one_message(replay, publisher):
    publisher.publish(5, with_next=True)
    publisher.announce(announcement(train_step=9, steps_allowed=60))
    publisher.flush(30)
    tables = reverb_calls.fetch_tables(reverb.Client(replay.address), 10)
    sizes = {name: info.current_size for name, info in tables.items()}
    assert sizes == {publication.VARIABLES_TABLE: 1, publication.ANNOUNCEMENTS_TABLE: 0}
    follower = follow(replay, variables(0))
    assert follower.wait_for(lambda: follower.announcement is not None, 30, NEVER)
    heard = follower.announcement
    assert (heard.version, heard.train_step, heard.steps_allowed) == (5, 9, 60)
    assert follower.pulled_version == 5
    follower.close()


def test_variables_that_wait_for_an_announcement_are_flushed_without_one(replay, publisher):
    publisher.publish(5, with_next=True)
    publisher.flush(30)
    assert publisher.version == 5


@pytest.mark.parametrize("times", [(10.0, 20.0), (20.0, 10.0)])
def test_the_later_of_two_announcements_counts_wherever_it_stands(replay, publisher, times):
    publisher.publish(1, with_next=True)
    for said in times:
        publisher.announce(announcement(time=said))
        publisher.flush(30)
    follower = follow(replay, variables(0))  # It finds one in each table.
    assert follower.wait_for(lambda: follower.announcement is not None, 30, NEVER)
    assert follower.announcement.time == 20.0 and follower.pulled_version == 1
    follower.close()


def test_a_look_that_finds_nothing_new_reads_nothing(replay, publisher):
    publisher.publish(1)
    publisher.flush(30)
    publisher.announce(announcement())
    publisher.flush(30)
    tables = (publication.VARIABLES_TABLE, publication.ANNOUNCEMENTS_TABLE)
    sizes = publication.table_sizes(publication.pack_variables(variables(0)))
    reader = latest_bytes.Reader(replay.address, sizes, 10.0)
    assert reader.changed() == set(tables)
    for table in tables:
        reader.read(table)
    assert reader.changed() == set()
    publisher.announce(announcement(train_step=1))
    publisher.flush(30)
    assert reader.changed() == {publication.ANNOUNCEMENTS_TABLE}


def test_what_an_earlier_release_has_left_in_the_tables_is_passed_over(replay, publisher):
    client = reverb.Client(replay.address)
    for table in (publication.VARIABLES_TABLE, publication.ANNOUNCEMENTS_TABLE):
        with client.trajectory_writer(1, validate_items=False) as writer:
            writer.append([np.zeros([3, 2], np.float32), np.int64(5)])
            writer.create_item(table, 1.0, [column[-1:] for column in writer.history])
    follower = follow(replay, variables(0))
    publisher.publish(6, with_next=True)
    publisher.announce(announcement(train_step=6))
    assert follower.wait_for(lambda: follower.pulled_version == 6, 30, NEVER)
    assert follower.announcement.train_step == 6
    follower.close()


@pytest.mark.parametrize(("publications", "seconds"), [(1, 0.08), (4, 0.02)])
def test_a_follower_knows_how_often_there_is_something_new(
    replay, publisher, publications, seconds
):
    follower = follow(replay, variables(0))
    follower.close()  # It looks when it is told to, here.
    for version, time, number in ((1, 5.0, 1), (9, 5.08, publications)):
        for _ in range(number):
            publisher.publish(version, with_next=True)
            publisher.announce(announcement(time=time))
            publisher.flush(30)
        follower._look()
        assert follower.pulled_version == version
    assert follower._publication_seconds == pytest.approx(seconds)


def test_variables_of_all_kinds_pass_through_one_array():
    values = [
        np.float32([[1.5, -2.0], [3.0, 4.0]]),
        np.bool_([True, False, True]),
        np.int64(-7),
        np.zeros([0, 4], np.float32),
        tf.constant([0.5, 2.0], tf.bfloat16).numpy(),
    ]
    packed = packing.Packing([tf.Variable(value) for value in values], header_bytes=5).pack()
    assert not packed[:5].any()
    others = [tf.Variable(tf.zeros_like(value)) for value in values]
    packing.Packing(others, header_bytes=5).assign(packed)
    for other, value in zip(others, values):
        np.testing.assert_array_equal(other.numpy(), value)


def test_an_announcement_carries_what_was_counted_of_each_actor(replay, publisher):
    follower = follow(replay, variables(0))
    publisher.announce(announcement(counted={0: 300, 17: 42}, done=True))
    assert follower.wait_for(lambda: follower.announcement is not None, 30, NEVER)
    assert follower.announcement.counted == {0: 300, 17: 42}
    assert follower.announcement.done
    follower.close()


def test_values_are_those_of_the_moment_they_were_handed_over(replay):
    source = variables(1)
    publisher = publisher_lib.Publisher(replay.address, source, RUN)
    publisher.publish(1)
    source[0].assign(tf.fill([3, 2], 99.0))
    publisher.announce(announcement(train_step=1))
    publisher.flush(30)
    values = variables(0)
    follower = follow(replay, values)
    assert follower.wait_for(lambda: follower.pulled_version == 1, 30, NEVER)
    follower.apply()
    np.testing.assert_array_equal(values[0], 1.0)
    follower.close()
    publisher.close()


def test_a_learner_that_resumed_earlier_is_followed_back(replay, publisher):
    follower = follow(replay, variables(0))
    for version in (100, 40):
        publisher.publish(version)
        publisher.announce(announcement(train_step=version))
        publisher.flush(30)
        assert follower.wait_for(lambda v=version: follower.pulled_version == v, 30, NEVER)
    follower.close()


def test_a_server_of_another_run_is_refused(replay, publisher):
    publisher.announce(announcement())
    publisher.flush(30)
    follower = follow(replay, variables(0), run_id="b" * 32)
    with pytest.raises(errors.ReplayError, match="belongs to another run"):
        follower.wait_for(lambda: False, 30, NEVER)
    follower.close()


def test_a_silent_server_is_reported_after_the_patience(replay):
    follower = follow(replay, variables(0), patience_seconds=0.0)
    with pytest.raises(errors.ReplayTimeoutError, match="no replay server has answered"):
        follower.wait_for(lambda: False, 30, NEVER)
    follower.close()


def test_waiting_ends_when_the_job_is_asked_to_end(replay):
    stopping = threading.Event()
    stopping.set()
    follower = follow(replay, variables(0))
    assert not follower.wait_for(lambda: False, 30, stopping)
    follower.close()


def test_variables_that_are_not_finite_are_neither_published_nor_applied(replay):
    broken = variables(7)
    publisher = publisher_lib.Publisher(replay.address, broken, RUN, timeout_seconds=20.0)
    publisher.publish(5)
    publisher.flush()
    values = variables(0)
    follower = follow(replay, values)
    assert follower.wait_for(lambda: follower.pulled_version == 5, 30, NEVER)
    follower.apply()
    broken[0].assign(tf.fill([3, 2], np.nan))
    with pytest.raises(errors.NotFiniteError, match="6 of 6 NaN"):
        publisher.publish(6)
    # As an earlier release would have done.
    publisher._values = (publication.pack_variables(broken).pack(), 6)
    publisher.announce(announcement(train_step=6))
    publisher.flush()
    assert follower.wait_for(lambda: follower.announcement is not None, 30, NEVER)
    assert not follower.apply() and follower.version == 5
    broken[0].assign(tf.fill([3, 2], 8.0))
    publisher.publish(7)
    assert follower.wait_for(lambda: follower.pulled_version == 7, 30, NEVER)
    assert follower.apply()
    np.testing.assert_array_equal(values[0], np.full([3, 2], 8.0))
    follower.close()
    publisher.close()

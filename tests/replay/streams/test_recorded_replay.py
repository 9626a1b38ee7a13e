"""Recorded experience through a real Reverb server to batches, alone and mixed with new one."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.learning import priority_updater
from actor_learner.replay.recording import experience_recorder, segments
from actor_learner.replay.server import server
from actor_learner.replay.streams import (
    lane_replay,
    mixed_replay,
    prioritized_replay,
    recorded_replay,
    sample_stream,
    unroll_queue,
)
from actor_learner.support import errors
from tests.replay import lane_steps
from tests.replay.recording import test_recording
from tests.replay.streams import test_prioritized_replay

LAST = lane_steps.LAST


class Served:
    """A stream whose tables a server holds, filled."""

    def __init__(self, replay, n_step=1, gamma=0.5, lanes=1, spec=None):
        self.replay = replay
        spec = spec or test_recording.counted_spec()
        self.experience = sample_stream.Experience(spec, lanes, n_step, gamma)
        self.server = server.ReplayServer(replay.tables(self.experience))
        self.client = self.server.client()
        self.transitions = replay.fill(self.experience, self.client)

    def batches(self, batch_size, count):
        dataset = self.replay.dataset(self.experience, self.server.address, batch_size, 10.0)
        return list(dataset.take(count).as_numpy_iterator())

    def drawn(self, batch_size=50, count=40):
        """How often each (first count, return, discount, last count) was drawn."""
        found = collections.Counter()
        for steps, _ in self.batches(batch_size, count):
            assert steps.reward.shape == (batch_size, 2)
            found.update(
                (first, float(reward), float(discount), last)
                for (first, last), reward, discount in zip(
                    steps.observation["count"].tolist(), steps.reward[:, 0], steps.discount[:, 0]
                )
            )
        return found


@pytest.fixture
def serve():
    served = []

    def make(*args, **kwargs):
        served.append(Served(*args, **kwargs))
        return served[-1]

    yield make
    for each in served:
        each.server.stop()


LANES = [
    lane_steps.steps([3, 4, 9, 2, 3], lane=1),
    lane_steps.steps([1, 1, 5, 5, 9], lane=2),
    lane_steps.steps([9, 9, 4], lane=3),
]
LANES = [lane[:24] for lane in LANES]


def one_step_transitions(lanes):
    return test_prioritized_replay.reference_transitions(lanes, 1, 0.5)


@pytest.mark.parametrize("n", [1, 3])
def test_every_recorded_transition_comes_back_and_no_boundary_does(tmp_path, serve, monkeypatch, n):
    monkeypatch.setattr(
        recorded_replay, "_MAX_ROWS", 8
    )  # So that lanes are cut into several segments.
    test_recording.record(tmp_path, LANES, flush_every=7)
    served = serve(recorded_replay.RecordedReplay(str(tmp_path)), n_step=n)
    complete = test_prioritized_replay.reference_transitions(LANES, n, 0.5)
    found = set(served.drawn())
    assert found >= complete
    # Where the recording ends inside an episode, returns are shorter, and bootstrap sooner.
    shorter = set().union(
        *(test_prioritized_replay.reference_transitions([lane[-n:]], k, 0.5)
          for lane in LANES for k in range(1, n))
    )  # fmt: skip
    assert found - complete <= shorter
    assert served.transitions == len(found)


def test_every_recorded_transition_is_equally_likely(tmp_path, serve, monkeypatch):
    monkeypatch.setattr(recorded_replay, "_MAX_ROWS", 8)
    monkeypatch.setattr(
        recorded_replay, "_MAX_LANES", 2
    )  # Several items, of unequal numbers of episodes.
    test_recording.record(tmp_path, LANES)
    served = serve(recorded_replay.RecordedReplay(str(tmp_path), shuffle_items=4))
    assert served.server.info().tables["recorded"].size >= 4
    draws = 40_000
    drawn = served.drawn(batch_size=200, count=draws // 200)
    assert set(drawn) == one_step_transitions(LANES)
    # Each is drawn about 700 times, those of one item together: the standard deviation is 4 %.
    share = np.array(list(drawn.values())) * len(drawn) / draws
    assert np.abs(share - 1.0).max() < 0.25


def test_a_missing_shard_joins_nothing_that_did_not_follow(tmp_path, serve):
    test_recording.record(tmp_path, LANES, flush_every=5)
    paths = sorted(tmp_path.glob("shard-*.npz"))
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    served = serve(recorded_replay.RecordedReplay(str(tmp_path)))
    expected = one_step_transitions([lane[:5] for lane in LANES])
    expected |= one_step_transitions([lane[10:] for lane in LANES])
    assert set(served.drawn()) == expected


def test_a_shard_with_a_changed_byte_is_left_out_like_a_missing_one(tmp_path, serve):
    test_recording.record(tmp_path, LANES, flush_every=8, compress=False)
    path = sorted(tmp_path.glob("shard-*.npz"))[1]
    content = bytearray(path.read_bytes())
    place = bytes(content).index(b"observation/count.npy") + 300
    content[place] ^= 1
    path.write_bytes(bytes(content))
    served = serve(recorded_replay.RecordedReplay(str(tmp_path)))
    expected = one_step_transitions([lane[:8] for lane in LANES])
    expected |= one_step_transitions([lane[16:] for lane in LANES])
    assert set(served.drawn()) == expected


def test_only_episodes_that_are_good_enough_are_used(tmp_path, serve):
    # The rewards of an episode of n steps are 0 + 1 + ... + (n - 1).
    test_recording.record(tmp_path, LANES, flush_every=5)
    served = serve(recorded_replay.RecordedReplay(str(tmp_path), min_episode_return=36.0))
    expected = {
        transition
        for lane, episodes in ((1, [3]), (3, [1, 2]))
        for episode in episodes
        for transition in one_step_transitions([lane_steps.steps([9] * episode, lane=lane)[-10:]])
    }
    # Of the last episode of lane 2 only 8 of 9 steps are recorded.
    assert set(served.drawn()) == expected
    assert served.transitions == 27
    with pytest.raises(errors.ConfigError, match="return of at least 37"):
        serve(recorded_replay.RecordedReplay(str(tmp_path), min_episode_return=37.0))


def test_episode_returns_sum_the_rewards_between_first_and_last():
    step_type = np.array([[1, 0], [2, 1], [0, 1], [1, 2], [1, 0]])
    reward = np.array([[1, 10], [99, 20], [2, 30], [3, 99], [4, 40]], np.float32)
    expected = [[1, 60], [1, 60], [9, 60], [9, 60], [9, 40]]
    np.testing.assert_array_equal(segments.episode_returns(step_type, reward), expected)


def test_several_recordings_and_sessions_are_read_together(tmp_path, serve):
    test_recording.record(tmp_path / "a" / experience_recorder.DIRECTORY, LANES[:1])
    test_recording.record(tmp_path / "b", LANES[1:2])
    test_recording.record(tmp_path / "b", LANES[2:])
    served = serve(recorded_replay.RecordedReplay([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert set(served.drawn()) == one_step_transitions(LANES)


def test_a_table_that_is_filled_already_is_left_as_it_is(tmp_path, serve):
    test_recording.record(tmp_path, LANES)
    served = serve(recorded_replay.RecordedReplay(str(tmp_path)))
    size = served.server.info().tables["recorded"].size
    assert served.replay.num_transitions(served.experience, size) >= served.transitions
    assert served.replay.fill(served.experience, served.client) == 0
    assert served.server.info().tables["recorded"].size == size


def test_fields_that_the_agent_does_not_need_are_left_out_and_missing_ones_named(tmp_path, serve):
    test_recording.record(tmp_path, LANES)
    spec = test_recording.counted_spec()
    fewer = spec._replace(observation={"count": spec.observation["count"]})
    served = serve(recorded_replay.RecordedReplay(str(tmp_path)), spec=fewer)
    assert set(served.drawn()) == one_step_transitions(LANES)
    more = spec._replace(policy_info={"log_probability": tf.TensorSpec([], tf.float32)})
    with pytest.raises(errors.SpecMismatchError, match="policy_info/log_probability.*nothing"):
        serve(recorded_replay.RecordedReplay(str(tmp_path)), spec=more)


def test_recorded_replay_is_refused_where_there_is_nothing_or_something_is_to_be_written(tmp_path):
    with pytest.raises(errors.ConfigError, match="does not exist"):
        recorded_replay.RecordedReplay(str(tmp_path / "nowhere"))
    experience = sample_stream.Experience(test_recording.counted_spec(), 1, 1, 0.9)
    experience_recorder.ExperienceRecorder(tmp_path, experience.data_spec, 1).close()
    replay = recorded_replay.RecordedReplay(str(tmp_path))
    with pytest.raises(errors.ConfigError, match="no whole shard"):
        replay.tables(experience)
    with pytest.raises(errors.ConfigError, match="MixedReplay"):
        replay.observer(experience, None)


# Mixtures.


def test_a_mixture_has_exactly_its_shares_in_every_batch(tmp_path, serve):
    test_recording.record(tmp_path, LANES[:1])
    recorded = recorded_replay.RecordedReplay(str(tmp_path))
    replay = mixed_replay.MixedReplay([lane_replay.LaneReplay(1000), recorded], [3, 1])
    assert replay.collects
    served = serve(replay, lanes=2)
    observer = replay.observer(served.experience, served.client, version=lambda: 5)
    for row in lane_steps.batched(LANES[1:]):
        observer(row)
    observer.flush()
    found = set()
    for steps, info in served.batches(batch_size=10, count=400):
        lane = steps.observation["count"][:, 0] // 1000
        assert np.count_nonzero(lane == 1) == 2  # A quarter of 10, and the remainder is not larger.
        np.testing.assert_array_equal(info.version, np.where(lane == 1, -1, 5))
        found.update(steps.observation["count"][:, 0].tolist())
    assert found >= {first for first, *_ in one_step_transitions(LANES[:1])}
    observer.close()


def priorities_of(client, table):
    """Priority of each key; so many draws that none of the few items can be missed."""
    samples = client.sample(table, 3_000, emit_timesteps=False)
    return {int(sample.info.key): float(sample.info.priority) for sample in samples}


@pytest.fixture
def half_prioritized(tmp_path, serve):
    """New transitions with priorities of 1 to 4, and recorded ones, three to one in a batch."""
    test_recording.record(tmp_path, LANES[:1])
    online = test_prioritized_replay.make_replay(priority_exponent=2.0, priority_offset=0.25)
    replay = mixed_replay.MixedReplay(
        [online, recorded_replay.RecordedReplay(str(tmp_path))], [3, 1]
    )
    served = serve(replay, lanes=2)
    observer = replay.observer(served.experience, served.client, version=lambda: 5)
    for row in lane_steps.batched(LANES[1:]):
        observer(row)
    observer.close()
    keys = sorted(priorities_of(served.client, online.table_name))
    assert len(keys) == len(one_step_transitions(LANES[1:]))
    priorities = {key: 1.0 + index % 4 for index, key in enumerate(keys)}
    served.client.mutate_priorities(online.table_name, priorities)
    return served, priorities


def test_a_mixture_with_priorities_weighs_rows_by_how_much_likelier_they_were_than_uniform(
    half_prioritized,
):
    served, priorities = half_prioritized
    assert served.replay.weighted
    total = sum(priority**2.0 for priority in priorities.values())
    for batch, info in served.batches(batch_size=12, count=30):
        lane = batch["experience"].observation["count"][:, 0] // 1000
        assert (lane[:9] != 1).all() and (lane[9:] == 1).all()
        np.testing.assert_array_equal(info.version, [5] * 9 + [-1] * 3)
        drawn = np.array([priorities[key] for key in info.key[:9].tolist()])
        likelier = len(priorities) * drawn**2.0 / total
        expected = np.concatenate([likelier**-0.5, np.ones(3)])
        np.testing.assert_allclose(batch["weights"], expected / expected.max(), rtol=1e-5)
        assert batch["weights"].dtype == np.float32


def test_a_mixture_updates_the_priorities_of_the_prioritized_table_and_nothing_else(
    half_prioritized,
):
    served, before = half_prioritized
    (part,) = served.replay.prioritized(12)
    assert part == (prioritized_replay.TABLE, slice(0, 9), 0.25)
    recorded_before = priorities_of(served.client, "recorded")
    updater = priority_updater.PriorityUpdater(
        served.server.address,
        part.table_name,
        lambda loss_info: loss_info.extra,
        rows=part.rows,
        offset=part.offset,
    )
    (element,) = served.batches(batch_size=12, count=1)
    tensors = tf.nest.map_structure(tf.constant, element)
    updater.after_train(tensors, tf_agent.LossInfo(0.0, tf.range(100.0, 112.0)))
    updater.flush(20.0)
    updater.close()
    sent = {key: 100.25 + row for row, key in enumerate(element[1].key[:9].tolist())}
    after = priorities_of(served.client, part.table_name)
    # What is left of the old ones is now too unlikely to be drawn for certain.
    assert sent.items() <= after.items() <= {**before, **sent}.items()
    assert updater.updates == len(sent)
    assert priorities_of(served.client, "recorded") == recorded_before


def test_recordings_are_mixed_without_any_actor(tmp_path, serve):
    for number, lane in enumerate(LANES):
        test_recording.record(tmp_path / str(number), [lane])
    replay = mixed_replay.MixedReplay(
        [
            recorded_replay.RecordedReplay(
                str(tmp_path / str(number)), table_name=f"recorded_{number}"
            )
            for number in range(3)
        ],
        [1.0, 2.0, 5.0],
    )
    assert not replay.collects
    assert replay.specs()[1].shape == (2,)
    served = serve(replay)
    assert served.transitions == len(one_step_transitions(LANES))
    for steps, _ in served.batches(batch_size=16, count=10):
        lanes = collections.Counter((steps.observation["count"][:, 0] // 1000).tolist())
        assert lanes == {1: 2, 2: 4, 3: 10}


@pytest.mark.parametrize(
    "weights, total, expected",
    [
        ([1, 1], 64, [32, 32]),
        ([0.1, 0.2, 0.7], 10, [1, 2, 7]),
        ([1, 1, 1], 64, [22, 21, 21]),
        ([1, 2], 64, [21, 43]),
    ],
)
def test_shares_follow_the_weights_and_add_up(weights, total, expected):
    assert mixed_replay.shares(weights, total) == expected


class WithoutInfo(lane_replay.LaneReplay):
    """A stream of somebody else's, whose batches come with nothing."""

    def dataset(self, *args):
        return super().dataset(*args).map(lambda trajectory, info: (trajectory, ()))


def test_mixtures_that_cannot_work_are_configuration_errors(tmp_path):
    test_recording.record(tmp_path, LANES[:1])
    recorded, lanes = recorded_replay.RecordedReplay(str(tmp_path)), lane_replay.LaneReplay(100)
    experience = sample_stream.Experience(test_recording.counted_spec(), 1, 1, 0.9)
    mixed = mixed_replay.MixedReplay
    for streams_, weights, match in (
        ([recorded], [1], "two streams"),
        ([lanes, recorded], [1], "a weight for each"),
        ([lanes, recorded], [1, 0], "above 0"),
        ([recorded, lanes], [1, 1], "in the first place"),
        ([unroll_queue.UnrollQueue(), recorded], [1, 1], "hands each unroll on once"),
    ):
        with pytest.raises(errors.ConfigError, match=match):
            mixed(streams_, weights)
    with pytest.raises(errors.ConfigError, match="table_name"):
        mixed([recorded, recorded], [1, 1]).tables(experience)
    with pytest.raises(errors.ConfigError, match="without a row"):
        mixed([lanes, recorded], [1, 1000]).dataset(experience, "localhost:1", 8, 1.0)
    with pytest.raises(errors.ConfigError, match="built differently"):
        mixed([WithoutInfo(10), recorded], [1, 1]).dataset(experience, "localhost:1", 8, 1.0)

"""Sequences, from actor through a real Reverb server to batches."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.acting import actor
from actor_learner.agents.losses import sequence_td
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.inference import protocol
from actor_learner.replay.layouts import sequence_layout
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import sample_stream, sequence_replay
from actor_learner.replay.writing import sequence_observer
from actor_learner.support import errors
from tests import counting_environment

FIRST, MID, LAST = 0, 1, 2
INFO_SPEC = {
    experience.STATE: (tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.float32)),
    "echo": tf.TensorSpec([2], tf.float32),
}


class EchoStream:
    """Acts at random; its state and info repeat the observation, so that both can be checked."""

    def __init__(self, lanes):
        self._random = np.random.default_rng(0)
        self._lanes = lanes

    def reset(self):
        pass

    def act(self, time_step):
        seen = time_step.observation
        info = {experience.STATE: (seen, seen[:, 0] * 100 + seen[:, 1]), "echo": seen * 2}
        return protocol.Response(self._random.integers(2, size=self._lanes), info)


class Stream:
    """Lanes of counting environments, each with episodes of its own, and a replay server."""

    def __init__(self, replay, episode_lengths, endings=("terminated",), priorities=None):
        lanes = len(episode_lengths)
        lengths = itertools.cycle(episode_lengths)  # One environment per lane, made in order.
        self.env = gymnasium_environment.GymnasiumEnvironment(
            lambda: counting_environment.CountingEnv(next(lengths), endings), lanes
        )
        time_step_spec = tensor_spec.from_spec(self.env.time_step_spec())
        data_spec = trajectory_lib.Trajectory(
            time_step_spec.step_type,
            time_step_spec.observation,
            tensor_spec.from_spec(self.env.action_spec()),
            INFO_SPEC,
            time_step_spec.step_type,
            time_step_spec.reward,
            time_step_spec.discount,
        )
        self.replay = replay
        self.experience = sample_stream.Experience(data_spec, lanes, 1, 0.9, priorities)
        self.server = server.ReplayServer(replay.tables(self.experience))
        self.version = 0
        self.observer = replay.observer(
            self.experience, self.server.client(), version=lambda: self.version
        )
        self.actor = actor.Actor(
            self.env,
            EchoStream(lanes),
            tf.Variable(0, dtype=tf.int64),
            group_steps_per_run=1,
            observers=[self.observer],
        )

    def collect(self, group_steps):
        for _ in range(group_steps):
            self.version += 1
            self.actor.run()
        self.observer.flush()

    def sequences(self, batch_size=32, count=20):
        """Every stored item, by key, as `(Sequence of one row, version)`."""
        found = {}
        dataset = self.replay.dataset(self.experience, self.server.address, batch_size, 10.0)
        for batch, info in dataset.take(count).as_numpy_iterator():
            for index, key in enumerate(info.key):
                sequence = tf.nest.map_structure(lambda leaf: leaf[index], batch["experience"])  # noqa: B023
                found[key] = sequence, int(info.version[index])
        assert len(found) == self.size()
        return list(found.values())

    def size(self):
        return self.server.info().tables[sequence_replay.TABLE].size

    def close(self):
        self.observer.close()
        self.server.stop()
        self.env.close()


@pytest.fixture
def make_stream():
    streams = []

    def make(*args, **kwargs):
        streams.append(Stream(*args, **kwargs))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


def uniform(sequence_length, period):
    return sequence_replay.SequenceReplay(
        1000, sequence_length=sequence_length, period=period, table=tables.uniform_table
    )


def rows_of(sequence):
    """(episode, step) of the real rows, once everything in them is found to be aligned."""
    trajectory, mask = sequence.trajectory, sequence.mask
    num_rows = int(mask.sum())
    np.testing.assert_array_equal(mask, np.arange(len(mask)) < num_rows)
    observation = trajectory.observation[:num_rows]
    np.testing.assert_array_equal(trajectory.policy_info["echo"][:num_rows], observation * 2)
    np.testing.assert_array_equal(sequence.state[0], observation[0])
    assert sequence.state[1] == observation[0, 0] * 100 + observation[0, 1]
    assert set(trajectory.policy_info) == {"echo"}
    rows = [(int(episode), int(step)) for episode, step in observation]
    for (episode, step), (next_episode, next_step) in zip(rows, rows[1:]):
        assert next_episode == episode and next_step == step + 1
    left = trajectory.step_type[:num_rows] != LAST
    np.testing.assert_array_equal(trajectory.reward[:num_rows][left], observation[:, 1][left] + 1)
    assert (trajectory.step_type[:num_rows] == FIRST).tolist() == [step == 0 for _, step in rows]
    assert left[:-1].all()  # Only the last row may end the episode,
    assert num_rows == len(mask) or not left[-1]  # and only then is the sequence filled up.
    return rows


CASES = {
    "no overlap": (4, 4, [(7, 2), (3, 12)]),
    "half": (6, 3, [(1, 8), (5, 6), (20,)]),
    "three quarters": (8, 2, [(3, 9), (16, 7, 1)]),
    "one lane": (6, 3, [(5, 2, 12)]),
    "blocks of two": (6, 4, [(1, 11), (7, 4), (9,)]),
    "single rows": (5, 3, [(2, 8), (6, 7), (20,), (4, 3)]),
    "one row of overlap": (5, 4, [(3, 9), (16, 7, 1)]),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_sequences_cover_every_step_of_every_episode_and_cross_none(make_stream, case):
    length, period, episode_lengths = CASES[case]
    stream = make_stream(uniform(length, period), episode_lengths)
    group_steps = 60
    stream.collect(group_steps)
    found = sorted(rows_of(sequence) for sequence, _ in stream.sequences())

    expected, whole = [], []
    for lengths in episode_lengths:
        taken = 0
        for episode, steps in enumerate(itertools.cycle(lengths)):
            if taken >= group_steps:
                break
            seen = min(steps + 1, group_steps - taken)  # Rows, the LAST one included.
            over = seen == steps + 1
            rows = [(episode, step) for step in range(seen)]
            starts = range(0, max(seen, length) - length + 1, period)
            starts = [s for s in starts if over or s + length <= seen]
            if over and (seen - length) % period and seen > length:
                starts.append(starts[-1] + period)  # The rest, filled up.
            expected += [rows[start : start + length] for start in starts]
            whole += rows if over else []
            taken += steps + 1
    assert found == sorted(expected)
    assert set(whole) <= {row for rows in found for row in rows}


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("length, period", [(12, 4), (12, 12), (13, 4)])
def test_items_are_whole_episodes(make_stream, padded, length, period):
    lengths = [(3, 9, 11), (7, 1)]
    stream = make_stream(uniform(length, period).with_whole_episodes(padded), lengths)
    group_steps = 60
    stream.collect(group_steps)
    sequences = [sequence for sequence, _ in stream.sequences()]
    assert {len(sequence.mask) for sequence in sequences} == {length}
    expected = []
    for of_lane in lengths:
        taken = 0
        for episode, steps in enumerate(itertools.cycle(of_lane)):
            taken += steps + 1
            if taken > group_steps:
                break
            expected.append([(episode, step) for step in range(steps + 1)])
    assert sorted(map(rows_of, sequences)) == sorted(expected)
    # In the table an item has as many cells as it needs, unless it is filled up there.
    block = math.gcd(length, period)
    sizes = {
        len(sample.data[0])
        for sample in stream.server.client().sample(
            stream.replay.table_name, 2_000, emit_timesteps=False
        )
    }
    needed = {-(-len(rows) // block) for rows in expected}
    assert sizes == ({length // block} if padded else needed)


@pytest.mark.parametrize("padded", [True, False])
def test_the_priority_of_a_whole_episode_is_that_of_its_own_steps(make_stream, padded):
    seen = []

    def priorities(sequences):
        real = sequences.mask * (sequences.trajectory.step_type != LAST)
        seen.extend(np.sum(sequences.trajectory.reward * real, axis=1).tolist())
        return np.ones(len(real))

    replay = uniform(12, 4).with_whole_episodes(padded)
    stream = make_stream(replay, [(3, 9, 11, 1)], priorities=priorities)
    stream.collect(60)
    # The reward of step k is k + 1.
    assert seen[:4] == [6.0, 45.0, 66.0, 1.0]


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("steps", [12, 30])
def test_an_episode_that_is_longer_than_an_item_is_refused(make_stream, padded, steps):
    stream = make_stream(uniform(12, 4).with_whole_episodes(padded), [(11, steps)])
    with pytest.raises(errors.ConfigError, match="more than 12 rows"):
        stream.collect(50)


@pytest.mark.parametrize("ending, discount", [("terminated", 0.0), ("truncated", 1.0)])
def test_the_last_row_of_an_episode_has_its_true_final_observation(make_stream, ending, discount):
    stream = make_stream(uniform(6, 3), [(4,), (2, 7)], endings=(ending,))
    stream.collect(30)
    ends = 0
    for sequence, _ in stream.sequences():
        rows = rows_of(sequence)
        last = len(rows) - 1
        if sequence.trajectory.step_type[last] == LAST:
            ends += 1
            assert sequence.trajectory.discount[last - 1] == discount
            assert sequence.trajectory.next_step_type[last - 1] == LAST
            assert rows[last][1] in (4, 2, 7)
    assert ends > 5


def test_items_carry_the_version_of_their_first_row(make_stream):
    stream = make_stream(uniform(4, 2), [(9,)])
    stream.collect(10)
    versions = {rows_of(sequence)[0][1]: version for sequence, version in stream.sequences()}
    assert versions == {0: 1, 2: 3, 4: 5, 6: 7}


def test_overlapping_sequences_share_their_data(make_stream):
    stream = make_stream(uniform(8, 2), [(39,)])
    stream.collect(40)
    assert stream.size() == 17  # Blocks 0-3, 1-4, ..., 16-19,
    assert len(stream.observer._writers[0].columns["record"]) == 20  # each of which was sent once.


def test_the_probability_of_an_item_is_what_its_weight_makes_up_for(make_stream):
    replay = sequence_replay.SequenceReplay(
        100, sequence_length=4, period=2, priority_exponent=0.7, importance_exponent=0.6
    )
    stream = make_stream(replay, [(12,), (5,)])
    stream.collect(30)
    client = stream.server.client()
    keys = set()
    for sample in client.sample(sequence_replay.TABLE, 400, emit_timesteps=False):
        keys.add(sample.info.key)
    assert len(keys) == stream.size()
    random = np.random.default_rng(0)
    priorities = {key: float(random.uniform(0.1, 5.0)) for key in keys}
    client.mutate_priorities(sequence_replay.TABLE, priorities)

    dataset = replay.dataset(stream.experience, stream.server.address, 16, 10.0)
    total = sum(priority**0.7 for priority in priorities.values())
    for batch, info in dataset.take(5).as_numpy_iterator():
        expected = np.array([priorities[key] ** 0.7 / total for key in info.key])
        np.testing.assert_allclose(info.probability, expected, rtol=1e-5)
        np.testing.assert_allclose(info.priority, [priorities[key] for key in info.key])
        assert set(info.table_size) == {len(keys)}
        weights = (1.0 / (len(keys) * expected)) ** 0.6
        np.testing.assert_allclose(batch["weights"], weights / weights.max(), rtol=1e-5)
        assert batch["weights"].dtype == np.float32


def test_an_importance_exponent_of_zero_weighs_all_alike(make_stream):
    replay = sequence_replay.SequenceReplay(
        100, sequence_length=4, period=2, importance_exponent=0.0
    )
    stream = make_stream(replay, [(12,)], priorities=lambda sequence: sequence.mask.sum(axis=1))
    stream.collect(30)
    (batch, _) = next(
        replay.dataset(stream.experience, stream.server.address, 8, 10.0).as_numpy_iterator()
    )
    np.testing.assert_array_equal(batch["weights"], np.ones(8))


def test_new_items_get_the_priorities_that_the_algorithm_computes(make_stream):
    calls = []

    def priorities(sequence):
        calls.append(sequence)
        echo = sequence.trajectory.policy_info["echo"]  # [n, 6, 2]
        return echo[:, 0, 1] + sequence.mask.sum(axis=1) / 10.0

    replay = sequence_replay.SequenceReplay(100, sequence_length=6, period=3, priority_offset=0.25)
    assert replay.priority_offset == 0.25  # Which the learner adds to its own.
    stream = make_stream(replay, [(10,), (4,)], priorities=priorities)
    stream.collect(22)
    samples = list(
        stream.server.client().sample(sequence_replay.TABLE, 2_000, emit_timesteps=False)
    )
    found = {sample.info.key: sample.info.priority for sample in samples}
    # Lane 0, rows 0-10 twice: items at rows 0, 3, 6 (five rows left). Lane 1, rows 0-4: one item.
    expected = [0.6, 6.6, 12.5] * 2 + [0.5] * 4
    np.testing.assert_allclose(sorted(found.values()), sorted(e + 0.25 for e in expected))
    for sequence in calls:
        assert sequence.trajectory.observation == () and sequence.state == ()
        assert sequence.trajectory.reward.shape == sequence.mask.shape == (len(sequence.mask), 6)


def test_an_episode_that_is_cut_off_from_outside_leaves_no_mixed_sequence(make_stream):
    stream = make_stream(uniform(6, 3), [(20,), (4,)])
    stream.collect(11)
    stream.actor.reset()
    stream.collect(21)
    episodes = set()
    for sequence, _ in stream.sequences():
        episodes.add(rows_of(sequence)[0][0])
    assert {0, 1} <= episodes


def test_large_observations_keep_a_column_of_their_own_and_arrive_whole():
    image = np.arange(2 * 30 * 30, dtype=np.float32).reshape(2, 30, 30)
    spec = trajectory_lib.Trajectory(
        tf.TensorSpec([], tf.int32), tf.TensorSpec([30, 30], tf.float32),
        tf.TensorSpec([], tf.int64), (), tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.float32),
    )  # fmt: skip
    replay = uniform(4, 2)
    flow = sample_stream.Experience(spec, 2, 1, 0.9)
    with server.ReplayServer(replay.tables(flow)) as replay_server:
        observer = replay.observer(flow, replay_server.client())
        for step in range(6):  # Lane 1 ends at its third row, and begins anew.
            types = np.array([step > 0, (0, 1, 2)[step % 3]], np.int32)
            observer(
                trajectory_lib.Trajectory(
                    types,
                    image + step,
                    np.array([step, step]),
                    (),
                    np.ones(2, np.int32),
                    np.full(2, step, np.float32),
                    np.ones(2, np.float32),
                )  # fmt: skip
            )
        observer.flush()
        batches = replay.dataset(flow, replay_server.address, 32, 10.0).take(3)
        found = set()
        for batch, _ in batches.as_numpy_iterator():
            for sequence, mask, action in zip(
                batch["experience"].trajectory.observation,
                batch["experience"].mask,
                batch["experience"].trajectory.action,
            ):
                rows = int(mask.sum())
                lane = 0 if rows == 4 else 1
                for row in range(rows):
                    np.testing.assert_array_equal(sequence[row], image[lane] + action[row])
                assert not sequence[rows:].any()
                found.add((lane, *action[:rows]))
            assert batch["experience"].state == ()
        assert found == {(0, 0, 1, 2, 3), (0, 2, 3, 4, 5), (1, 0, 1, 2), (1, 3, 4, 5)}
        observer.close()


def test_lengths_that_leave_out_steps_between_two_sequences_are_refused():
    with pytest.raises(errors.ConfigError, match="sequence_length is 80 and period is 90"):
        sequence_replay.SequenceReplay(sequence_length=80, period=90)


def learned_steps(length, period, burn_in, episode_length):
    """Steps of an episode that are learned from in one of its sequences at least."""
    td = sequence_td.SequenceTd(burn_in=burn_in)
    types = np.array([FIRST] + [MID] * (episode_length - 1) + [LAST] * (length + 1))
    found = set()
    for start in range(0, max(1, episode_length + 1 - length + period), period):
        rows = types[np.newaxis, start : start + length]
        mask = (np.arange(start, start + length) <= episode_length).astype(np.float32)
        found |= {start + row for row in np.flatnonzero(td.learned(np, rows, mask[np.newaxis]))}
    return found


@pytest.mark.parametrize("length, period", [(4, 2), (6, 2), (6, 3), (8, 4), (5, 1)])
def test_burn_in_is_refused_just_where_steps_would_never_be_learned_from(length, period):
    replay = sequence_replay.SequenceReplay(10, sequence_length=length, period=period)
    episode = 3 * length + 1
    for burn_in in range(length):
        flow = sample_stream.Experience(None, 1, 1, 0.9, burn_in=burn_in)
        lost = set(range(episode)) - learned_steps(length, period, burn_in, episode)
        if lost:
            with pytest.raises(errors.ConfigError, match=f"burn_in is {burn_in}.*never be learned"):
                replay.check(flow)
        else:
            replay.check(flow)


def test_sequences_without_overlap_need_no_burn_in_and_say_when_an_episode_is_too_long(
    make_stream, monkeypatch
):
    replay = uniform(4, 4)
    replay.check(sample_stream.Experience(None, 1, 1, 0.9, burn_in=0))
    with pytest.raises(errors.ConfigError, match="set burn_in to 0"):
        replay.check(sample_stream.Experience(None, 1, 1, 0.9, burn_in=1))
    said = []  # Not by the log itself, which has said it already if another test made it so.
    monkeypatch.setattr(
        sequence_observer.logging, "log_first_n", lambda level, text, n, *_: said.append(text)
    )
    make_stream(uniform(4, 4), [(3,)]).collect(12)
    make_stream(uniform(6, 3), [(9,)]).collect(12)
    assert not said
    make_stream(uniform(4, 4), [(4,)]).collect(12)
    assert "longer than a sequence" in said[0]


def test_a_negative_offset_is_refused():
    with pytest.raises(errors.ConfigError, match="SequenceReplay.priority_offset must be 0"):
        sequence_replay.SequenceReplay(priority_offset=-1.0)


def test_a_table_of_other_sequences_is_refused(make_stream):
    stream = make_stream(uniform(6, 3), [(4,)])
    with pytest.raises(errors.SpecMismatchError, match="sequence_length or period differ"):
        layout = sequence_layout.SequenceLayout(stream.experience.data_spec, 1, 8, 4)
        sequence_observer.SequenceObserver(stream.server.client(), sequence_replay.TABLE, layout)


def test_a_step_that_does_not_follow_the_spec_is_refused(make_stream):
    stream = make_stream(uniform(6, 3), [(4,)])
    wrong = ts.restart(np.zeros((1, 3), np.float32), batch_size=1)
    response = EchoStream(1).act(wrong)
    with pytest.raises(errors.SpecMismatchError, match="observation"):
        stream.observer(
            trajectory_lib.Trajectory(
                np.zeros(1, np.int32),
                np.zeros((1, 3), np.float32),
                response.action,
                {**response.policy_info, "echo": np.zeros((1, 2), np.float32)},
                np.ones(1, np.int32),
                np.zeros(1, np.float32),
                np.ones(1, np.float32),
            )  # fmt: skip
        )


def test_transitions_are_counted_by_the_steps_that_an_item_adds():
    replay = sequence_replay.SequenceReplay(sequence_length=80, period=40)
    assert replay.num_transitions(None, 10) == 400

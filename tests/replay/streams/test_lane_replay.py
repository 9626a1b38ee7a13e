"""The lane-batched stream, from actor through a real Reverb server to batches."""

import collections
import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import random_py_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.acting import actor
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.server import server
from actor_learner.replay.streams import lane_replay, sample_stream, window_replay
from actor_learner.replay.writing import block_observer, window_observer
from actor_learner.support import errors
from tests import counting_environment
from tests.replay.writing import test_block_observer

FIRST, MID, LAST = 0, 1, 2


class Stream:
    """An actor in counting environments, writing through a stream into a server."""

    def __init__(self, replay, lanes, n_step=1, gamma=0.9, checkpoint_dir=None, **env_kwargs):
        self.env = gymnasium_environment.GymnasiumEnvironment(
            counting_environment.ENV_ID, lanes, vectorization="sync", make_kwargs=env_kwargs
        )
        time_step_spec = tensor_spec.from_spec(self.env.time_step_spec())
        data_spec = trajectory_lib.Trajectory(
            time_step_spec.step_type,
            time_step_spec.observation,
            tensor_spec.from_spec(self.env.action_spec()),
            (),
            time_step_spec.step_type,
            time_step_spec.reward,
            time_step_spec.discount,
        )
        self.replay = replay
        self.experience = sample_stream.Experience(data_spec, lanes, n_step, gamma)
        self.server = server.ReplayServer(
            replay.tables(self.experience), checkpoint_dir=checkpoint_dir
        )
        self.version = 0
        self.observer = replay.observer(
            self.experience, self.server.client(), version=lambda: self.version
        )

    def collect(self, steps, complete=True):
        policy = random_py_policy.RandomPyPolicy(
            self.env.time_step_spec(), self.env.action_spec(), seed=0
        )
        collector = actor.Actor(
            self.env,
            policy,
            tf.Variable(0, dtype=tf.int64),
            steps_per_run=steps,
            observers=[self.observer],
        )
        collector.run()
        self.observer.flush()
        if complete and isinstance(self.observer, block_observer.BlockObserver):
            self.observer.reset()  # Writes rows that would wait for more of them.

    def batches(self, batch_size, count):
        dataset = self.replay.dataset(self.experience, self.server.address, batch_size, 10.0)
        return list(dataset.take(count).as_numpy_iterator())

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


def transitions(batches):
    """(lane-independent) (episode, step, reward, discount, next step, next type) of each row."""
    found = []
    for trajectory, _ in batches:
        for b in range(trajectory.reward.shape[0]):
            found.append(
                (
                    int(trajectory.observation[b, 0, 0]),
                    int(trajectory.observation[b, 0, 1]),
                    float(trajectory.reward[b, 0]),
                    float(trajectory.discount[b, 0]),
                    int(trajectory.observation[b, 1, 1]),
                    int(trajectory.next_step_type[b, 0]),
                )
            )
    return found


REPLAYS = {
    "lanes": lambda: lane_replay.LaneReplay(1000),
    "windows": lambda: window_replay.WindowReplay(1000),
}


@pytest.mark.parametrize("kind", sorted(REPLAYS))
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("ending", ["terminated", "truncated", "both"])
def test_every_transition_is_aligned_from_environment_to_batch(make_stream, kind, lanes, ending):
    stream = make_stream(REPLAYS[kind](), lanes, episode_lengths=(2, 3), endings=(ending,))
    stream.collect(12 * lanes)
    end_discount = 1.0 if ending == "truncated" else 0.0
    expected = set()
    for episode in range(5):
        length = (2, 3)[episode % 2]
        for step in range(length):
            last = step == length - 1
            expected.add(
                (
                    episode,
                    step,
                    float(step + 1),
                    end_discount if last else 1.0,
                    step + 1,
                    LAST if last else MID,
                )
            )
    found = set(transitions(stream.batches(batch_size=8, count=60)))
    assert found <= expected
    # The last step taken has no successor row yet.
    assert len(expected - found) <= 1


def test_batches_have_exactly_the_size_and_shape_agents_expect(make_stream):
    stream = make_stream(lane_replay.LaneReplay(1000), 3, episode_lengths=(4,))
    stream.version = 11
    stream.collect(60)
    for trajectory, info in stream.batches(batch_size=7, count=10):
        assert trajectory.observation.shape == (7, 2, 2)
        assert trajectory.reward.shape == (7, 2)
        assert (trajectory.step_type[:, 0] != LAST).all()
        assert info.version.tolist() == [11] * 7


# Transitions of an item are drawn together, `lanes` of them for each of its valid rows: a sum of
# squares over transitions is so many times a chi-square variable over items. The bounds are above
# the 99.99 % quantiles for 59 and 15 degrees of freedom.
@pytest.mark.parametrize("rows_per_item, valid_rows, bound", [(1, 1, 110), (5, 4, 44.3)])
def test_every_stored_transition_is_equally_likely_and_boundaries_never_come(
    make_stream, rows_per_item, valid_rows, bound
):
    lanes = 4
    replay = lane_replay.LaneReplay(10_000, rows_per_item=rows_per_item, shuffle_items=16)
    stream = make_stream(replay, lanes, episode_lengths=(3,))
    stream.collect(60 * lanes)
    draws = 40_000
    counts = collections.Counter(transitions(stream.batches(batch_size=200, count=draws // 200)))
    assert all(next_type != FIRST for *_, next_type in counts)
    # Lanes are alike, so each (episode, step) stands for `lanes` stored transitions.
    assert len(counts) in (59, 60)
    expected = draws / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square / (lanes * valid_rows) < bound


def draws_by_step(stream, batches, batch_size=256):
    """How often each (episode, step) was drawn."""
    counts = collections.Counter()
    for trajectory, _ in stream.batches(batch_size, batches):
        counts.update(map(tuple, trajectory.observation[:, 0].astype(int).tolist()))
    return counts


def test_every_transition_is_equally_likely_with_the_sizes_that_are_chosen_by_default(make_stream):
    lanes, rows, items = 4, 32, 20
    replay = lane_replay.LaneReplay(flush_seconds=3600.0)  # No short items, however slow this is.
    stream = make_stream(replay, lanes, episode_lengths=(3,))
    assert stream.replay.layout(stream.experience).rows_per_item == rows
    stream.collect((items * rows + 1) * lanes * 3 // 4)  # Boundary steps do not count.
    assert stream.server.info().tables["experience"].size == items
    counts = draws_by_step(stream, batches=400)
    assert len(counts) == items * rows * 3 // 4
    expected = 400 * 256 / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    # As above; the 99.99 % quantile for 19 degrees of freedom is 50.8.
    assert chi_square / (lanes * rows * 3 / 4) < 50.8


class Slow:
    """An observer to which, every now and then, no step comes for a while."""

    def __init__(self, observer, clock):
        self._observer = observer
        self._clock = clock
        self._seen = 0

    def __call__(self, trajectory):
        self._seen += 1
        self._clock.now += 2.0 if self._seen % 50 in (40, 43) else 0.0
        self._observer(trajectory)

    def __getattr__(self, name):
        return getattr(self._observer, name)


def test_transitions_of_items_that_were_not_full_are_as_likely_as_others(make_stream, monkeypatch):
    lanes, rows = 4, 32
    clock = test_block_observer.Clock(monkeypatch)
    stream = make_stream(lane_replay.LaneReplay(), lanes, episode_lengths=(1000,))
    stream.observer = Slow(stream.observer, clock)
    stream.collect(lanes * 500)
    stream.observer.reset()
    items = stream.server.info().tables["experience"].size
    assert items > 25  # Full ones would be 16.
    counts = draws_by_step(stream, batches=400)
    assert len(counts) == 499
    expected = 400 * 256 / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    # No item holds more than 32 rows; the 99.99 % quantile for 40 degrees of freedom is 82.1.
    assert items <= 41 and chi_square / (lanes * rows) < 82.1


@pytest.mark.parametrize("kind", sorted(REPLAYS))
def test_n_step_returns_stop_at_the_end_of_the_episode(make_stream, kind):
    stream = make_stream(
        REPLAYS[kind](), 2, n_step=3, gamma=0.5, episode_lengths=(4,), endings=("truncated",)
    )
    stream.collect(2 * 24)
    found = {t[1:] for t in transitions(stream.batches(batch_size=8, count=60))}
    # (step, return, discount, bootstrap step, its type): rewards are 1, 2, 3, 4.
    assert found == {
        (0, 1 + 0.5 * 2 + 0.25 * 3, 0.25, 3, MID),
        (1, 2 + 0.5 * 3 + 0.25 * 4, 0.25, 4, LAST),
        (2, 3 + 0.5 * 4, 0.5, 4, LAST),
        (3, 4, 1.0, 4, LAST),
    }


def test_an_environment_reset_from_outside_makes_no_transition(make_stream):
    stream = make_stream(lane_replay.LaneReplay(1000), 2, episode_lengths=(10,))
    stream.collect(2 * 4, complete=False)
    stream.collect(2 * 4)  # A second actor on the same environment and observer resets it.
    found = {t[:2] for t in transitions(stream.batches(batch_size=8, count=40))}
    assert found <= {(episode, step) for episode in (0, 1) for step in range(4)}
    for trajectory, _ in stream.batches(batch_size=8, count=20):
        np.testing.assert_array_equal(
            trajectory.observation[:, 0, 0], trajectory.observation[:, 1, 0]
        )


def test_capacity_is_counted_in_transitions(make_stream):
    stream = make_stream(lane_replay.LaneReplay(40), 4, episode_lengths=(1000,))
    stream.collect(400)
    state = stream.server.info().tables["experience"]
    assert stream.replay.num_transitions(stream.experience, state.size) == 40


@pytest.mark.parametrize("lanes", [1, 64])
def test_the_server_holds_little_more_than_the_steps_themselves(make_stream, tmp_path, lanes):
    stream = make_stream(lane_replay.LaneReplay(100_000), lanes, checkpoint_dir=str(tmp_path))
    random = np.random.default_rng(0)
    steps = 8_192
    for _ in range(steps // lanes):
        stream.observer(
            trajectory_lib.Trajectory(
                np.ones(lanes, np.int32),
                random.normal(size=(lanes, 2)).astype(np.float32),
                random.integers(0, 2, lanes),
                (),
                np.ones(lanes, np.int32),
                random.normal(size=lanes).astype(np.float32),
                np.ones(lanes, np.float32),
            )
        )
    stream.observer.reset()
    path = pathlib.Path(stream.server.checkpoint())
    stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    # Everything the server needs to know: chunks, items and tables. Twelve bytes of a step are
    # random here, out of 36; were observations kept twice, there would be 20.
    assert 12 * steps < stored < 1.5 * 12 * steps


def test_few_lanes_share_an_item_among_several_steps(make_stream):
    stream = make_stream(lane_replay.LaneReplay(100_000), 1)
    layout = stream.replay.layout(stream.experience)
    assert layout.rows_per_item == -(-4096 // 32)  # Two floats, an action, types, reward, discount.
    assert stream.replay.num_transitions(stream.experience, 3) == 3 * 128
    stream = make_stream(lane_replay.LaneReplay(1_000), 1)
    assert stream.replay.layout(stream.experience).rows_per_item == 1_000 // 64
    stream = make_stream(lane_replay.LaneReplay(100_000, rows_per_item=1), 1)
    assert stream.replay.layout(stream.experience).rows_per_item == 1


@pytest.mark.parametrize("lanes, expected", [(32, 4), (64, 4), (128, 2), (256, 1)])
def test_items_of_many_lanes_are_larger(make_stream, lanes, expected):
    stream = make_stream(lane_replay.LaneReplay(100_000), lanes)
    assert stream.replay.layout(stream.experience).rows_per_item == expected


def test_the_first_flush_makes_what_there_is_available(make_stream):
    stream = make_stream(lane_replay.LaneReplay(100_000), 1, episode_lengths=(50,))
    stream.collect(5, complete=False)
    found = {t[:2] for t in transitions(stream.batches(batch_size=2, count=20))}
    assert found == {(0, step) for step in range(4)}


def test_a_table_for_other_data_is_refused_before_anything_is_written(make_stream):
    stream = make_stream(lane_replay.LaneReplay(1000), 2)
    client = stream.server.client()
    spec = stream.experience.data_spec._replace(
        observation=tensor_spec.BoundedTensorSpec([5], tf.float32, 0, 1)
    )
    layout = stream.replay.layout(dataclasses.replace(stream.experience, data_spec=spec))
    with pytest.raises(errors.SpecMismatchError, match="holds other data"):
        block_observer.BlockObserver(client, "experience", layout)
    with pytest.raises(errors.SpecMismatchError, match="holds other data"):
        window_observer.LaneObserver(client, "experience", stream.experience.data_spec, 2)
    with pytest.raises(errors.ReplayError, match="no table 'elsewhere'; it has 'experience'"):
        block_observer.BlockObserver(client, "elsewhere", layout)


def test_wrong_options_are_refused(make_stream):
    with pytest.raises(errors.ConfigError, match="rows_per_item must be a whole number, 1 or more"):
        lane_replay.LaneReplay(rows_per_item=0)
    experience = make_stream(lane_replay.LaneReplay(), 2).experience
    with pytest.raises(errors.ConfigError, match="'observation' \\(2,\\)"):
        lane_replay.LaneReplay(frame_stack=2).tables(experience)
    with pytest.raises(errors.ConfigError, match="at least 2 frames"):
        lane_replay.LaneReplay(frame_stack=1).tables(experience)


def test_a_step_that_breaks_its_spec_is_refused_naming_the_field(make_stream):
    stream = make_stream(lane_replay.LaneReplay(1000), 2)
    step = trajectory_lib.Trajectory(
        np.zeros(2, np.int32),
        np.zeros((2, 3), np.float32),
        np.zeros(2, np.int64),
        (),
        np.zeros(2, np.int32),
        np.zeros(2, np.float32),
        np.zeros(2, np.float32),
    )
    with pytest.raises(errors.SpecMismatchError, match="field 'observation': expected \\(2, 2\\)"):
        stream.observer(step)


def test_a_dataset_without_samples_ends_instead_of_hanging(make_stream):
    stream = make_stream(lane_replay.LaneReplay(1000), 2)
    dataset = stream.replay.dataset(stream.experience, stream.server.address, 4, 0.2)
    assert list(dataset.take(1)) == []

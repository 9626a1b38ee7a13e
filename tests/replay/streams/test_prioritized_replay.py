"""Prioritized replay, from counted steps through a real Reverb server to weighted batches."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import parts
from actor_learner.replay.reading import importance
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import (
    highest_priority,
    prioritized_replay,
    sample_stream,
    window_replay,
)
from actor_learner.support import errors
from tests.replay import lane_steps

LAST = lane_steps.LAST
TABLE = prioritized_replay.TABLE


def data_spec(picture=(2, 2)):
    step = ts.time_step_spec(
        {
            "count": tf.TensorSpec([], tf.int64),
            "picture": tensor_spec.BoundedTensorSpec(picture, tf.uint8, 0, 255),
        }
    )
    return trajectory_lib.Trajectory(
        step.step_type, step.observation, tf.TensorSpec([2], tf.float32), (),
        step.step_type, step.reward, step.discount,
    )  # fmt: skip


class Stream:
    """A server with the tables of a stream, and an observer that writes to them."""

    def __init__(self, replay, lanes, n_step=1, gamma=0.5, spec=None):
        self.replay = replay
        self.experience = sample_stream.Experience(spec or data_spec(), lanes, n_step, gamma)
        self.server = server.ReplayServer(replay.tables(self.experience))
        self.client = self.server.client()
        self.observer = replay.observer(self.experience, self.client, version=lambda: 7)

    def write(self, lanes):
        """Writes one stream of steps per lane."""
        for row in lane_steps.batched(lanes):
            self.observer(row)
        self.observer.flush()

    def batches(self, batch_size, count):
        dataset = self.replay.dataset(self.experience, self.server.address, batch_size, 10.0)
        return list(dataset.take(count).as_numpy_iterator())

    def priorities(self):
        """Priority of each item, by the count of its first observation."""
        found = {}
        for batch, info in self.batches(batch_size=50, count=20):
            counts = batch["experience"].observation["count"][:, 0]
            found.update(zip(counts.tolist(), info.priority.tolist()))
        return found

    def set_priorities(self, priorities):
        """Gives items new priorities, by the count of their first observation."""
        keys = {}
        for batch, info in self.batches(batch_size=50, count=20):
            counts = batch["experience"].observation["count"][:, 0]
            keys.update(zip(counts.tolist(), info.key.tolist()))
        self.client.mutate_priorities(TABLE, {keys[c]: p for c, p in priorities.items()})

    def close(self):
        self.observer.close()
        self.server.stop()


def make_replay(capacity=1000, **options):
    """A stream whose importance weights do not change with the train step."""
    options = {"importance_start": 0.5, "importance_end": 0.5, **options}
    return prioritized_replay.PrioritizedReplay(capacity, **options)


@pytest.fixture
def make_stream():
    made = []

    def make(*args, **kwargs):
        made.append(Stream(*args, **kwargs))
        return made[-1]

    yield make
    for stream in made:
        stream.close()


def reference_transitions(lanes, n, gamma):
    """(first count, return, discount, last count) of every n-step window, in plain Python."""
    found = set()
    for lane in lanes:
        for start in range(len(lane) - n):
            if lane[start].step_type == LAST:
                continue
            total, product, end = 0.0, 1.0, start
            for k in range(n):
                step = lane[start + k]
                if k and step.step_type == LAST:
                    break
                total += gamma**k * product * float(step.reward)
                product *= float(step.discount)
                end = start + k + 1
            discount = gamma ** (end - start - 1) * product
            first, last = (int(lane[t].observation["count"]) for t in (start, end))
            found.add((first, total, discount, last))
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_every_transition_is_an_item_and_no_boundary_is(make_stream, n):
    lanes = [
        lane_steps.steps([3, 4, 2, 3], lane=1),
        lane_steps.steps([1, 1, 5, 5], lane=2),
        lane_steps.steps([9, 9], lane=3),
    ]
    lanes = [lane[:16] for lane in lanes]
    stream = make_stream(make_replay(), lanes=3, n_step=n)
    stream.write(lanes)
    expected = reference_transitions(lanes, n, gamma=0.5)
    size = stream.server.info().tables[TABLE].size
    assert stream.replay.num_transitions(stream.experience, size) == len(expected)
    found = set()
    for batch, info in stream.batches(batch_size=8, count=100):
        steps = batch["experience"]
        assert steps.reward.shape == (8, 2) and batch["weights"].shape == (8,)
        assert (steps.step_type[:, 0] != LAST).all()
        np.testing.assert_array_equal(steps.next_step_type[:, 0], steps.step_type[:, 1])
        # The other fields belong to the same steps.
        np.testing.assert_array_equal(
            steps.observation["picture"][:, 1, 0, 0], steps.observation["count"][:, 1] % 10
        )
        assert info.version.tolist() == [7] * 8
        for b in range(8):
            first, last = steps.observation["count"][b].tolist()
            found.add((first, float(steps.reward[b, 0]), float(steps.discount[b, 0]), last))
    assert found == expected


def test_large_fields_travel_in_columns_of_their_own(make_stream):
    stream = make_stream(make_replay(), lanes=2, spec=data_spec(picture=(40, 40)))
    lanes = [lane_steps.steps([8], lane=1), lane_steps.steps([8], lane=2)]
    for row in lane_steps.batched(lanes):
        picture = np.zeros((2, 40, 40), np.uint8) + row.observation["picture"][:, :1, :1]
        stream.observer(row._replace(observation={**row.observation, "picture": picture}))
    stream.observer.flush()
    ((batch, _),) = stream.batches(batch_size=64, count=1)
    observation = batch["experience"].observation
    assert observation["picture"].shape == (64, 2, 40, 40)
    expected = np.broadcast_to((observation["count"] % 10)[..., None, None], (64, 2, 40, 40))
    np.testing.assert_array_equal(observation["picture"], expected)


def test_a_reset_observer_makes_no_window_across_the_gap(make_stream):
    stream = make_stream(make_replay(), lanes=1)
    first, second = lane_steps.steps([9])[:4], lane_steps.steps([9])[6:9]
    stream.write([first])
    stream.observer.reset()
    stream.write([second])
    assert set(stream.priorities()) == {10, 11, 12, 16, 17}


def test_an_environment_reset_from_outside_makes_no_transition(make_stream):
    stream = make_stream(make_replay(), lanes=1)
    stream.write([lane_steps.steps([9])[:3] + lane_steps.steps([9])[:3]])
    found = set()
    for batch, _ in stream.batches(batch_size=20, count=5):
        found.update(map(tuple, batch["experience"].observation["count"].tolist()))
    assert found == {(10, 11), (11, 12)}


def test_items_are_drawn_in_proportion_to_their_priority_to_the_exponent(make_stream):
    stream = make_stream(make_replay(priority_exponent=0.6), lanes=1)
    stream.write([lane_steps.steps([9])[:9]])
    priorities = {10 + t: 4.0 ** (t - 3) for t in range(8)}
    stream.set_priorities(priorities)
    draws = 20_000
    drawn = collections.Counter()
    for batch, info in stream.batches(batch_size=200, count=draws // 200 + 2)[2:]:
        counts = batch["experience"].observation["count"][:, 0].tolist()
        drawn.update(counts)
        np.testing.assert_allclose(info.priority, [priorities[c] for c in counts])
    powers = {count: priority**0.6 for count, priority in priorities.items()}
    expected = {count: draws * power / sum(powers.values()) for count, power in powers.items()}
    chi_square = sum((drawn[c] - expected[c]) ** 2 / expected[c] for c in expected)
    assert chi_square < 35  # 7 degrees of freedom: exceeded once in 100,000 times.


def test_weights_make_up_for_the_probabilities_like_a_numpy_reference(make_stream):
    stream = make_stream(make_replay(priority_exponent=1.0), lanes=1)
    stream.write([lane_steps.steps([9])[:9]])
    priorities = {10 + t: float(t + 1) for t in range(8)}
    stream.set_priorities(priorities)
    total = sum(priorities.values())
    for batch, info in stream.batches(batch_size=16, count=20)[2:]:
        counts = batch["experience"].observation["count"][:, 0].tolist()
        probability = np.array([priorities[c] / total for c in counts])
        np.testing.assert_allclose(info.probability, probability, rtol=1e-6)
        assert info.table_size.tolist() == [8] * 16
        weights = (8 * probability) ** -0.5
        np.testing.assert_allclose(batch["weights"], weights / weights.max(), atol=1e-5)


@pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0])
def test_importance_weights_equal_a_numpy_reference(exponent):
    probability = np.random.default_rng(0).uniform(1e-9, 1e-2, size=1000)
    expected = (1.0 / (1000 * probability)) ** exponent
    weights = importance.importance_weights(tf.constant(probability), exponent)
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(weights, expected / expected.max(), atol=1e-5)


def test_the_importance_exponent_follows_the_train_step_without_another_dataset(make_stream):
    train_step = tf.Variable(0, dtype=tf.int64)
    replay = prioritized_replay.PrioritizedReplay(
        100,
        priority_exponent=1.0,
        importance_start=0.4,
        importance_end=1.0,
        importance_anneal_steps=100,
        train_step=train_step,
    )
    stream = make_stream(replay, lanes=1)
    stream.write([lane_steps.steps([9])[:3]])
    stream.set_priorities({10: 0.25, 11: 1.0})
    batches = iter(replay.dataset(stream.experience, stream.server.address, 128, 10.0))
    for at, exponent in ((0, 0.4), (50, 0.7), (100, 1.0), (5000, 1.0)):
        train_step.assign(at)
        for _ in range(8):  # Those that were on their way.
            batch, _ = next(batches)
        likely = batch["experience"].observation["count"][:, 0].numpy() == 11
        assert likely.any() and not likely.all()
        np.testing.assert_allclose(
            batch["weights"].numpy(), np.where(likely, 0.25**exponent, 1.0), atol=1e-5
        )


def test_the_train_step_of_the_running_experiment_is_found_and_its_absence_explained(make_stream):
    stream = make_stream(prioritized_replay.PrioritizedReplay(100), lanes=1)
    with pytest.raises(errors.ConfigError, match="train_step=..."):
        stream.batches(batch_size=2, count=1)
    stream.write([lane_steps.steps([9])[:5]])
    with parts.scope():
        parts.publish(train_step=tf.Variable(0, dtype=tf.int64))
        ((batch, _),) = stream.batches(batch_size=2, count=1)
    assert batch["weights"].tolist() == [1.0, 1.0]


def test_new_items_get_the_highest_priority_published_so_far(make_stream):
    stream = make_stream(make_replay(initial_priority=2.0), lanes=1)
    table = highest_priority.table_for(TABLE)
    stream.write([lane_steps.steps([9])[:3]])
    assert stream.priorities() == {10: 2.0, 11: 2.0}
    highest = highest_priority.HighestPriority(stream.client, TABLE, 2.0, refresh_seconds=0.0)
    values = []
    for published in (1.5, 8.0, 5.0):
        highest_priority.publish(stream.client, table, published, 10.0)
        values.append(highest())
    assert values == [2.0, 8.0, 8.0]
    other_actor = stream.replay.observer(stream.experience, stream.client)
    highest_priority.publish(stream.client, table, 8.0, 10.0)
    for step in lane_steps.batched([lane_steps.steps([9], lane=5)[:2]]):
        other_actor(step)
    other_actor.close()
    assert stream.priorities()[5010] == 8.0


@pytest.mark.parametrize(
    "options, match",
    [
        ({"capacity": 0}, "capacity"),
        ({"initial_priority": 0.0}, "never be drawn"),
        ({"importance_start": -0.1}, "0 or more"),
        ({"importance_anneal_steps": 0}, "at least one step"),
    ],
)
def test_values_that_cannot_work_are_configuration_errors(options, match):
    with pytest.raises(errors.ConfigError, match=match):
        prioritized_replay.PrioritizedReplay(**options)


def test_a_dataset_without_samples_ends_instead_of_hanging(make_stream):
    stream = make_stream(make_replay(), lanes=2)
    dataset = stream.replay.dataset(stream.experience, stream.server.address, 4, 0.2)
    assert list(dataset.take(1)) == []


def test_window_replay_refuses_priorities_that_nothing_would_update():
    replay = window_replay.WindowReplay(table=tables.prioritized_table)
    with pytest.raises(errors.ConfigError, match="@PrioritizedReplay"):
        replay.tables(sample_stream.Experience(data_spec(), 1, 1, 0.99))


def test_the_default_of_items_in_flight_draws_no_warning_of_reverb(make_stream, capfd):
    lanes = [lane_steps.steps([5] * 20, lane=lane) for lane in range(16)]
    stream = make_stream(make_replay(), lanes=len(lanes), n_step=1)
    stream.write(lanes)
    assert "alarmingly high" not in capfd.readouterr().err

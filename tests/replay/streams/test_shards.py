"""Experience spread over several replay servers: written once, and drawn as from a single table."""

import collections
import threading
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.trajectories import policy_step as policy_step_lib
from tf_agents.trajectories import time_step as ts

from actor_learner import plan as plan_lib
from actor_learner.jobs.workers import replay as replay_job
from actor_learner.learning import priority_updater, sample_sources
from actor_learner.replay.reading import datasets
from actor_learner.replay.server import server, shards, shares, tables
from actor_learner.replay.streams import (
    lane_replay,
    prioritized_replay,
    sample_stream,
    sequence_replay,
    unroll_queue,
    window_replay,
)
from actor_learner.runs import table_checks
from actor_learner.support import errors
from tests.replay import lane_steps
from tests.replay.streams import test_prioritized_replay

LAST = lane_steps.LAST
CONSTANT = {"importance_start": 1.0, "importance_end": 1.0}


class Spread:
    """Servers that hold the shares of a stream, and an observer that writes to all of them."""

    def __init__(self, stream, lanes, n_step=1, num_servers=2):
        self.stream = stream
        spec = test_prioritized_replay.data_spec()
        self.experience = sample_stream.Experience(spec, lanes, n_step, 0.5)
        self.servers = [
            server.ReplayServer(stream.tables_of_share(self.experience, num_servers))
            for _ in range(num_servers)
        ]
        self.shards = shards.Shards([one.address for one in self.servers])
        self.clients = list(self.shards.clients)
        self.observer = stream.observer(self.experience, self.clients)

    def write(self, lanes):
        for row in lane_steps.batched(lanes):
            self.observer(row)
        self.observer.flush()

    def sizes(self):
        return [one.info().tables[self.stream.table_name].size for one in self.servers]

    def items(self, number):
        """Columns of every item of one server, by key."""
        table = self.stream.table_name
        found = {}
        while len(found) < self.sizes()[number]:
            for sample in self.clients[number].sample(table, 100, emit_timesteps=False):
                found[sample.info.key] = sample.data
        return found

    def close(self):
        self.shards.close()
        self.observer.close()
        for one in self.servers:
            one.stop()


@pytest.fixture
def spread():
    made = []

    def make(*arguments, **more):
        made.append(Spread(*arguments, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def transitions(lanes, n_step=1):
    """First and last observation of every transition, counted by hand."""
    found = collections.Counter()
    for lane in lanes:
        for start, step in enumerate(lane):
            if step.step_type == LAST or start + 1 >= len(lane):
                continue
            if start + n_step >= len(lane):
                continue  # Its window is not complete.
            end = start + 1
            while end - start < n_step and lane[end].step_type != LAST:
                end += 1
            first, last = lane[start].observation["count"], lane[end].observation["count"]
            found[int(first), int(last)] += 1
    return found


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("rows", [1, 4])
def test_lane_replay_writes_each_transition_once_over_all_servers(spread, rows, n_step):
    replay = lane_replay.LaneReplay(100_000, rows_per_item=rows)
    one = spread(replay, lanes=2, n_step=n_step)
    lanes = [lane_steps.steps([7, 5, 9] * 30, lane) for lane in range(2)]
    one.write(lanes)
    one.observer.reset()  # Writes the rows that are still in its memory.
    layout = replay.layout(one.experience)
    found = collections.Counter()
    for number in range(2):
        items = list(one.items(number).values())
        assert len(items) > 50  # Both have a good part.
        names = list(layout.signature())
        columns = {
            name: tf.stack([tree.flatten(item)[k] for item in items])
            for k, name in enumerate(sorted(names))
        }
        batch, _ = datasets.transitions(columns, layout, 0.5)
        counts = batch.observation["count"].numpy()
        found.update(map(tuple, counts.tolist()))
    assert found == transitions(lanes, n_step)


@pytest.mark.parametrize("n_step", [1, 3])
def test_prioritized_replay_writes_each_transition_once_over_all_servers(spread, n_step):
    one = spread(prioritized_replay.PrioritizedReplay(**CONSTANT), lanes=2, n_step=n_step)
    lanes = [lane_steps.steps([7, 5, 9] * 20, lane) for lane in range(2)]
    one.write(lanes)
    expected = transitions(lanes, n_step)
    assert sum(one.sizes()) == sum(expected.values())
    assert min(one.sizes()) > 50
    found = set()
    dataset = one.stream.dataset(one.experience, one.shards, 100, 30.0)
    for batch, _ in dataset.take(500).as_numpy_iterator():
        found.update(map(tuple, batch["experience"].observation["count"].tolist()))
        if len(found) == len(expected):
            break
    assert found == set(expected)


def test_sequences_of_an_episode_that_does_not_end_are_spread_and_whole(spread):
    replay = sequence_replay.SequenceReplay(1_000, sequence_length=8, period=4)
    one = spread(replay, lanes=1)
    one.write([lane_steps.steps([800])])
    # Of 801 rows, LAST included, a sequence begins every 4 rows, the last one at row 796.
    assert sum(one.sizes()) == 200
    assert min(one.sizes()) > 60
    starts = set()
    dataset = replay.dataset(one.experience, one.shards, 50, 30.0)
    for batch, info in dataset.take(200).as_numpy_iterator():
        counts = batch["experience"].trajectory.observation["count"]
        mask = batch["experience"].mask
        steps = counts - counts[:, :1]
        np.testing.assert_array_equal(steps[mask > 0], np.tile(np.arange(8), (50, 1))[mask > 0])
        starts.update((counts[:, 0] - 10).tolist())
        assert set(info.shard) <= {0, 1}
        if len(starts) == 200:
            break
    assert starts == {4 * k for k in range(200)}


def test_uniform_draws_are_in_proportion_to_what_servers_hold(spread):
    tf.random.set_seed(1)
    one = spread(lane_replay.LaneReplay(10_000, rows_per_item=1), lanes=1)
    for number, count in enumerate((30, 10)):  # Three quarters are on one server.
        observer = one.stream.observer(one.experience, one.clients[number])
        for step in lane_steps.steps([count], lane=number):
            observer(tree.map_structure(lambda leaf: np.asarray(leaf)[None], step))
        observer.close()
    dataset = one.stream.dataset(one.experience, one.shards, 100, 30.0)
    counts = collections.Counter()
    for batch, _ in dataset.take(100).as_numpy_iterator():
        counts.update(batch.observation["count"][:, 0].tolist())
    assert len(counts) == 40
    assert_drawn_as(list(counts.values()), np.full(40, 100 * 100 / 40))


def assert_drawn_as(observed, expected):
    """A χ² test, by the normal approximation: fails one time in 10,000 by chance."""
    observed, expected = np.array(observed, float), np.array(expected, float)
    statistic = np.sum((observed - expected) ** 2 / expected)
    freedom = len(observed) - 1
    assert abs(statistic - freedom) / np.sqrt(2 * freedom) < 3.9


def keys_by_count(one, number):
    """Keys of the items of one server, by the count of their first observation."""
    layout = one.stream._layout(one.experience)
    names, keys = sorted(layout.signature()), {}
    for key, columns in one.items(number).items():
        tensors = {n: tf.constant(c)[None] for n, c in zip(names, tree.flatten(columns))}
        step, _ = layout.unpack(tensors)
        keys[int(step.observation["count"][0, 0])] = key
    return keys


def test_prioritized_draws_are_in_proportion_to_priorities_over_all_servers(spread):
    tf.random.set_seed(2)
    one = spread(prioritized_replay.PrioritizedReplay(priority_exponent=0.5, **CONSTANT), lanes=1)
    one.write([lane_steps.steps([60])])
    assert min(one.sizes()) > 20
    generator = np.random.default_rng(3)
    # Those of one server are 25 times as high: their items must be drawn five times as often.
    on_first = set(keys_by_count(one, 0))
    priorities = {
        10 + k: float(generator.uniform(0.5, 2.0) * (25.0 if 10 + k in on_first else 1.0))
        for k in range(60)
    }
    for number, client in enumerate(one.clients):
        keys = keys_by_count(one, number)
        client.mutate_priorities(one.stream.table_name, {k: priorities[c] for c, k in keys.items()})
    roots = {count: priority**0.5 for count, priority in priorities.items()}
    total = sum(roots.values())
    dataset = one.stream.dataset(one.experience, one.shards, 20, 30.0)
    iterator = iter(dataset)
    expected = {count: root / total for count, root in roots.items()}
    for _ in range(20):  # What the servers hold is known from what was drawn from them.
        batch, info = next(iterator)
    one.shards.table_state(one.stream.table_name)
    for _ in range(5):  # Batches that were drawn before.
        next(iterator)
    counts = collections.Counter()
    for _ in range(300):
        batch, info = next(iterator)
        drawn = batch["experience"].observation["count"][:, 0].numpy().tolist()
        counts.update(drawn)
        np.testing.assert_allclose(info.probability, [expected[c] for c in drawn], rtol=1e-6)
        np.testing.assert_array_equal(info.table_size, 60)
        weights = 1.0 / np.array([expected[c] for c in drawn])
        np.testing.assert_allclose(batch["weights"], weights / weights.max(), rtol=1e-5)
    observed = [counts[c] for c in priorities]
    wanted = [expected[c] * sum(observed) for c in priorities]
    assert_drawn_as(observed, wanted)


def test_masses_are_sums_of_priorities_to_the_exponent():
    sizes, exponent = np.array([3, 2]), 0.5
    priorities = [np.array([1.0, 4.0, 9.0]), np.array([16.0, 25.0])]
    sums = [np.sum(p**exponent) for p in priorities]
    latest = np.array([[p[0], p[0] ** exponent / s, len(p)] for p, s in zip(priorities, sums)])
    both = np.array([True, True])
    np.testing.assert_allclose(shards.masses(sizes, both, latest, [exponent] * 2), [6.0, 9.0])
    # One that was never drawn from is taken to be like the others.
    unknown = np.array([latest[0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(shards.masses(sizes, both, unknown, [exponent] * 2), [6.0, 4.0])
    # One that cannot be sampled is left alone; if none can, all are waited for alike.
    first = np.array([True, False])
    np.testing.assert_allclose(shards.masses(sizes, first, latest, [exponent] * 2), [6.0, 0.0])
    np.testing.assert_allclose(shards.masses(sizes, ~both, latest, [exponent] * 2), [1.0, 1.0])
    # Sampled uniformly, items count alike.
    np.testing.assert_allclose(shards.masses(sizes, both, 0 * latest, [None] * 2), [3.0, 2.0])


def test_new_priorities_go_to_the_server_that_an_item_came_from(spread):
    one = spread(prioritized_replay.PrioritizedReplay(**CONSTANT), lanes=1)
    one.write([lane_steps.steps([100])])
    table = one.stream.table_name
    loss = collections.namedtuple("Loss", ["loss", "extra"])
    updaters = [
        priority_updater.PriorityUpdater(
            address, table, lambda info: info.extra, offset=0.0, shard=number
        )
        for number, address in enumerate(one.shards.addresses)
    ]
    expected = [{}, {}]
    for batch, info in one.stream.dataset(one.experience, one.shards, 16, 30.0).take(10):
        priorities = tf.cast(batch["experience"].observation["count"][:, 0], tf.float64)
        for updater in updaters:
            updater.after_train((None, info), loss(None, priorities))
        for key, number, value in zip(info.key.numpy(), info.shard.numpy(), priorities.numpy()):
            expected[number][int(key)] = float(value)
    for number, updater in enumerate(updaters):
        updater.flush()
        found = {}
        while len(found) < one.sizes()[number]:
            for sample in one.clients[number].sample(table, 100, emit_timesteps=False):
                found[sample.info.key] = sample.info.priority
        assert expected[number]
        assert {key: found[key] for key in expected[number]} == expected[number]
        others = set(found) - set(expected[number])
        assert all(found[key] == 1.0 for key in others)
        assert updater.updates >= len(expected[number])
        updater.close()


class Unrolls(Spread):
    def __init__(self, queue, **more):
        super().__init__(queue, **more)

    def write_steps(self, count, begin=0):
        for k in range(begin, begin + count):
            now, then = (
                ts.TimeStep(
                    np.full([1], 0 if t == 0 else 1, np.int32),
                    np.zeros([1], np.float32),
                    np.ones([1], np.float32),
                    {
                        "count": np.full([1], t, np.int64),
                        "picture": np.zeros([1, 2, 2], np.uint8),
                    },
                )
                for t in (k, k + 1)
            )
            action = policy_step_lib.PolicyStep(np.zeros([1, 2], np.float32), (), ())
            self.observer((now, action, then))


def test_unrolls_are_spread_and_learned_from_once_each():
    queue = unroll_queue.UnrollQueue(4, unrolls_per_batch=2, max_queued_batches=30)
    one = Unrolls(queue, lanes=1)
    one.write_steps(4 * 40)
    one.observer.flush()
    assert one.sizes() == [20, 20]  # By turns, exactly.
    dataset = queue.dataset(one.experience, one.shards, 0, 60.0)
    starts = []
    for unroll, _ in dataset.take(20).as_numpy_iterator():
        counts = unroll.trajectory.observation["count"]
        np.testing.assert_array_equal(counts - counts[:, :1], np.tile(np.arange(5), (2, 1)))
        starts += counts[:, 0].tolist()
    assert sorted(starts) == [4 * k for k in range(40)]
    one.close()


def test_a_server_that_is_gone_does_not_keep_unrolls_of_others_back():
    queue = unroll_queue.UnrollQueue(4, unrolls_per_batch=1, max_queued_batches=30)
    one = Unrolls(queue, lanes=1)
    one.write_steps(4 * 2)
    one.observer.flush()
    iterator = iter(queue.dataset(one.experience, one.shards, 0, 60.0))
    starts = {int(next(iterator)[0].trajectory.observation["count"][0, 0]) for _ in range(2)}
    assert starts == {0, 4}
    one.servers[1].stop()
    alone = queue.observer(one.experience, one.clients[0])
    one.observer.abandon()
    one.observer = alone
    one.write_steps(4 * 5, begin=8)
    alone.flush()
    starts = [int(next(iterator)[0].trajectory.observation["count"][0, 0]) for _ in range(5)]
    assert starts == [8, 12, 16, 20, 24]
    del iterator
    one.close()


def test_an_actor_waits_for_room_only_while_the_learner_has_a_batch(spread):
    queue = unroll_queue.UnrollQueue(4, unrolls_per_batch=6, max_queued_batches=2)
    one = Unrolls(queue, lanes=1, num_servers=3)
    sizes = [each.info().tables[queue.table_name].max_size for each in one.servers]
    assert sizes == [6, 6, 6]
    writing = threading.Thread(target=one.write_steps, args=(4 * 60,))
    writing.start()
    starts = []
    for unroll, _ in queue.dataset(one.experience, one.shards, 0, 60.0).take(10):
        starts += unroll.trajectory.observation["count"][:, 0].numpy().tolist()
    writing.join(60.0)
    assert not writing.is_alive()
    assert sorted(starts) == [4 * k for k in range(60)]
    one.close()


def test_the_sources_of_spread_datasets_are_found(spread):
    one = spread(lane_replay.LaneReplay(1_000), lanes=1)
    dataset = one.stream.dataset(one.experience, one.shards, 8, 30.0)
    found = sample_sources.find(dataset)
    assert [source.address for source in found] == list(one.shards.addresses)
    queue = Unrolls(unroll_queue.UnrollQueue(4), lanes=1)
    found = sample_sources.find(queue.stream.dataset(queue.experience, queue.shards, 0, 30.0))
    assert [source.address for source in found] == list(queue.shards.addresses)
    queue.close()


def test_shares_hold_as_much_as_the_table_together():
    table = tables.uniform_table("t", 1_001, rate_limiter=tables.min_size(50))
    info = shares.share_of(table, 3).info
    assert info.max_size == 334
    assert info.rate_limiter_info.min_size_to_sample == 17
    with pytest.raises(errors.ConfigError, match="in an order that 2 replay servers"):
        shares.share_of(tables.lifo_table("t", 10), 2)


def test_streams_that_cannot_be_spread_say_so():
    replay = window_replay.WindowReplay()
    experience = sample_stream.Experience(test_prioritized_replay.data_spec(), 1, 1, 0.5)
    with pytest.raises(errors.ConfigError, match="WindowReplay cannot be spread over 2 replay"):
        replay.tables_of_share(experience, 2)


def test_states_of_servers_add_up_and_tell_of_restarts(spread):
    replay = lane_replay.LaneReplay(
        table=lambda **more: tables.uniform_table(rate_limiter=tables.min_size(40), **more),
        rows_per_item=1,
    )
    one = spread(replay, lanes=1)
    before = one.shards.table_state(replay.table_name)
    assert (before.size, before.blocked) == (0, "sampling")
    assert "0 of the 40 items that 2 servers need" in before.why
    one.write([lane_steps.steps([100])])
    now = one.shards.table_state(replay.table_name)
    assert now.size == now.inserts == sum(one.sizes()) == 100
    assert (now.blocked, now.restarts) == (None, 0)
    port = one.servers[1].port
    one.servers[1].stop()
    one.servers[1] = server.ReplayServer(replay.tables_of_share(one.experience, 2), port)
    again = one.shards.table_state(replay.table_name, 60.0)
    assert again.restarts == 1
    assert again.size == one.sizes()[0]
    assert one.shards.table_state(replay.table_name).restarts == 1


def test_learners_that_would_share_the_queues_of_several_servers_are_refused():
    queue = unroll_queue.UnrollQueue(2, unrolls_per_batch=4)
    flowing = sample_stream.Experience(None, 2, n_step=1, gamma=0.9)
    servers = shards.Shards(["localhost:1", "localhost:2"])
    with pytest.raises(errors.ConfigError, match="2 learners cannot share .*--replays=1"):
        queue.for_learners(2, flowing).dataset(flowing, servers, 1, 1.0)
    servers.close()


@pytest.mark.parametrize("further", [{"copies": ("watch",)}, {"episode_table": "episodes"}])
def test_further_tables_are_refused_where_several_servers_share_the_others(further):
    table = tables.uniform_table("experience", 10)
    plan = mock.Mock(spec=plan_lib.Plan, copies=(), episode_table=None, experience=None)
    plan.tables.return_value = [table]
    plan.stream = mock.Mock()
    plan.stream.tables_of_share.return_value = ["share"]
    with mock.patch.object(table_checks, "refuse_unfit"):
        assert replay_job.ReplayJob()._tables_of(plan) == [table]
        assert replay_job.ReplayJob(num_servers=2)._tables_of(plan) == ["share"]
        for name, value in further.items():
            setattr(plan, name, value)
        assert replay_job.ReplayJob()._tables_of(plan) == [table]
        with pytest.raises(errors.ConfigError, match="cannot be spread over 2 replay servers"):
            replay_job.ReplayJob(num_servers=2)._tables_of(plan)

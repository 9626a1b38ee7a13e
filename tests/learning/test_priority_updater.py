"""Priorities on their way from train steps to the table, with a real learner and server."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.agents import algorithm, c51, ddpg, dqn, sac, td3
from actor_learner.learning import learner, priority_ring, priority_updater
from actor_learner.replay.server import server
from actor_learner.replay.streams import highest_priority, prioritized_replay, sample_stream
from actor_learner.support import errors

TABLE = prioritized_replay.TABLE
B = tensor_spec.BoundedTensorSpec
BUILDERS = {
    "dqn": (dqn.dqn, ("fc_layer_params",)),
    "c51": (c51.c51, ("fc_layer_params",)),
    "sac": (sac.sac, ("actor_fc_layer_params", "critic_fc_layer_params")),
    "td3": (td3.td3, ("actor_fc_layer_params", "critic_fc_layer_params")),
    "ddpg": (ddpg.ddpg, ("actor_fc_layer_params", "critic_fc_layer_params")),
}


class Training:
    """An agent, a server with transitions of random steps for it, and what a learner needs."""

    def __init__(self, name="dqn", n_step=1, lanes=2, rows=12, batch_size=4):
        discrete = name in ("dqn", "c51")
        self.train_step = tf.Variable(0, dtype=tf.int64)
        world = algorithm.World(
            ts.time_step_spec(B([3], tf.float32, -1, 1)),
            B([], tf.int64, 0, 2) if discrete else B([2], tf.float32, -1.0, 1.0),
            self.train_step,
            tf.Variable(0, dtype=tf.int64),
        )
        builder, layers = BUILDERS[name]
        self.algorithm = builder(world, n_step=n_step, **dict.fromkeys(layers, (8,)))
        self.agent = self.algorithm.agent
        self.agent.initialize()
        spec = self.agent.collect_data_spec
        self.experience = sample_stream.Experience(spec, lanes, n_step, 0.99)
        self.replay = prioritized_replay.PrioritizedReplay(100, train_step=self.train_step)
        self.server = server.ReplayServer(self.replay.tables(self.experience))
        self.client = self.server.client()
        self.batch_size = batch_size
        observer = self.replay.observer(self.experience, self.client)
        steps = tensor_spec.sample_spec_nest(spec, seed=0, outer_dims=(rows, lanes))
        steps = tf.nest.map_structure(lambda leaf: leaf.numpy(), steps)
        steps = steps._replace(
            step_type=np.ones((rows, lanes), np.int32),
            next_step_type=np.ones((rows, lanes), np.int32),
            reward=np.arange(rows * lanes, dtype=np.float32).reshape(rows, lanes),
        )
        for row in range(rows):
            observer(tf.nest.map_structure(lambda leaf, row=row: leaf[row], steps))
        observer.close()

    def dataset(self):
        return self.replay.dataset(self.experience, self.server.address, self.batch_size, 10.0)

    def table(self):
        """Priority of each key, now."""
        # So many that none of the few items can be missed.
        samples = self.client.sample(TABLE, 3_000, emit_timesteps=False)
        return {int(s.info.key): float(s.info.priority) for s in samples}

    def updater(self, **options):
        options = {"timeout_seconds": 20.0, **options}
        return priority_updater.PriorityUpdater(
            self.server.address, TABLE, self.algorithm.priorities, **options
        )


@pytest.fixture
def make_training():
    made = []

    def make(*args, **kwargs):
        made.append(Training(*args, **kwargs))
        return made[-1]

    yield make
    for training in made:
        training.server.stop()


def hand_over(updater, keys, priorities):
    """What the learner's graph does after a train step."""
    info = experience.SampleInfo(tf.constant(keys, tf.uint64), (), (), (), ())
    loss_info = tf_agent.LossInfo(tf.constant(0.0), tf.constant(priorities, tf.float32))
    updater.after_train((None, info), loss_info)


def test_a_learner_changes_the_priorities_of_exactly_the_items_it_trained_on(
    make_training, tmp_path
):
    training = make_training()
    before = training.table()
    assert set(before.values()) == {1.0}
    updater = training.updater(offset=0.5)
    seen = []

    def after_train(experience, loss_info):
        tf.py_function(
            lambda keys, errors: seen.append((keys.numpy(), errors.numpy())),
            [experience[1].key, training.algorithm.priorities(loss_info)],
            [],
        )
        updater.after_train(experience, loss_info)

    with learner.Learner(
        str(tmp_path),
        training.train_step,
        training.agent,
        training.dataset,
        after_train_strategy_step_fn=after_train,
        use_kwargs_in_agent_train=True,
        summary_interval=0,
    ) as trained:
        trained.run(iterations=3)
        updater.raise_if_failed()
        updater.flush(20.0)
    expected = dict(before)
    for keys, td_errors in seen:
        expected.update(zip(keys.tolist(), (td_errors.astype(np.float64) + 0.5).tolist()))
    after = training.table()
    assert len(seen) == 3
    assert after == expected
    assert len(set(after.values())) > 4
    assert updater.updates >= training.batch_size and updater.dropped == 0
    highest = highest_priority.read(training.client, highest_priority.table_for(TABLE), 10.0)
    assert highest == max(td_errors.max() for _, td_errors in seen) + 0.5
    updater.close()


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_agent_trains_on_weighted_n_step_transitions_and_says_their_priorities(
    make_training, name
):
    training = make_training(name, n_step=3)
    updater = training.updater(offset=0.5)
    batch, info = next(iter(training.dataset()))
    assert batch["experience"].reward.shape == (4, 2)
    loss_info = training.agent.train(**batch)
    updater.after_train((batch, info), loss_info)
    updater.flush(20.0)
    updater.close()
    expected = training.algorithm.priorities(loss_info).numpy() + 0.5
    assert (expected > 0.5).all()
    table = training.table()
    # An item drawn twice keeps the later of its two errors, which random actions make differ.
    for key, priority in dict(zip(info.key.numpy().tolist(), expected)).items():
        np.testing.assert_allclose(table[key], priority, rtol=1e-6)


def test_the_newest_priority_of_each_key_wins():
    keys, priorities = priority_updater.newest_per_key(
        np.array([5, 3, 5, 9, 3], np.uint64), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    )
    assert keys.tolist() == [3, 5, 9]
    assert priorities.tolist() == [5.0, 3.0, 4.0]


@pytest.fixture(scope="module")
def shared():
    training = Training()
    yield training
    training.server.stop()


def make_updater(training, **options):
    options = {"timeout_seconds": 20.0, "offset": 0.0, **options}
    return priority_updater.PriorityUpdater(
        training.server.address, TABLE, lambda loss_info: loss_info.extra, **options
    )


def test_many_batches_arrive_as_if_they_were_sent_one_by_one(shared):
    keys = np.array(sorted(shared.table()), np.uint64)
    updater = make_updater(shared, capacity=1000)
    generator = np.random.default_rng(0)
    expected = {}
    for _ in range(50):
        chosen = generator.choice(keys, size=4)
        priorities = generator.uniform(1.0, 2.0, size=4).astype(np.float32)
        hand_over(updater, chosen, priorities)
        expected.update(zip(chosen.tolist(), priorities.astype(np.float64).tolist()))
    updater.flush(20.0)
    table = shared.table()
    assert {key: table[key] for key in expected} == expected
    assert updater.dropped == 0
    updater.close()


def test_keys_that_have_left_the_table_are_passed_over(shared):
    keys = sorted(shared.table())
    updater = make_updater(shared)
    hand_over(updater, [keys[0], 12345], [7.0, 7.0])
    updater.flush(20.0)
    updater.close()
    assert shared.table()[keys[0]] == 7.0


def test_a_priority_that_is_no_number_is_an_error_for_the_trainer(shared):
    updater = make_updater(shared)
    hand_over(updater, [1, 2], [1.0, np.nan])
    with pytest.raises(errors.ReplayError, match="diverged"):
        updater.flush(20.0)
    with pytest.raises(errors.ReplayError, match="diverged"):
        updater.raise_if_failed()
    updater.close()


def test_a_table_that_does_not_exist_is_refused_with_those_that_do(shared):
    with pytest.raises(errors.ReplayError, match="no table 'elsewhere'.*'experience'"):
        priority_updater.PriorityUpdater(shared.server.address, "elsewhere", lambda info: info)


def test_a_dead_server_neither_holds_up_the_train_step_nor_goes_unnoticed(make_training):
    training = make_training()
    updater = make_updater(training, timeout_seconds=1.0, capacity=8)
    training.server.stop()
    for _ in range(40):  # Five times as many as the ring holds.
        hand_over(updater, [1, 2], [1.0, 1.0])
    with pytest.raises(errors.ReplayTimeoutError, match="has not taken new priorities"):
        updater.flush(30.0)
    with pytest.raises(errors.ReplayTimeoutError):
        updater.raise_if_failed()
    hand_over(updater, [1, 2], [1.0, 1.0])
    updater.close()


# The ring between the graph and the thread.


def test_a_ring_gives_back_what_was_written_and_counts_what_was_overwritten():
    ring = priority_ring.PriorityRing(capacity=4)
    write = tf.function(ring.write)
    big = 2**63 + 5  # Keys use all 64 bits.
    assert ring.read_after(0) is None
    for number in range(1, 4):
        write(tf.constant([big + number, number], tf.uint64), tf.constant([0.5, -1.0], tf.float64))
    written = ring.read_after(0)
    assert written.keys.tolist() == [big + 1, 1, big + 2, 2, big + 3, 3]
    assert written.priorities.tolist() == [0.5, -1.0] * 3
    assert (written.last, written.dropped) == (3, 0)
    assert ring.read_after(3) is None
    for number in range(4, 14):
        write(tf.constant([number, number], tf.uint64), tf.constant([0.5, -1.0], tf.float64))
    written = ring.read_after(3)
    assert written.keys.tolist() == [10, 10, 11, 11, 12, 12, 13, 13]
    assert (written.last, written.dropped) == (13, 6)


def test_a_reader_never_sees_half_a_batch():
    ring = priority_ring.PriorityRing(capacity=8)
    batches, size = 2_000, 64

    @tf.function
    def run():
        for number in tf.range(1, batches + 1):
            keys = tf.fill([size], tf.cast(number, tf.uint64))
            ring.write(keys, tf.fill([size], tf.cast(number, tf.float64)))

    writer = threading.Thread(target=run)
    writer.start()
    last, dropped, read = 0, 0, 0
    while last < batches:
        written = ring.read_after(last)
        if written is None:
            continue
        keys = written.keys.reshape(-1, size)
        assert (keys == keys[:, :1]).all()
        np.testing.assert_array_equal(written.priorities, written.keys.astype(np.float64))
        assert (np.diff(keys[:, 0].astype(np.int64)) > 0).all()
        last, dropped, read = written.last, dropped + written.dropped, read + len(keys)
    writer.join()
    assert dropped + read == batches

"""Tests of `actor_learner.support.counters`."""

import gc

import tensorflow as tf

from actor_learner.support import counters
from tests import heap
from tests.learning import tiny_agent, tiny_learner


class Writer:
    def __init__(self, counter, step):
        self.counter, self.step = counter, step

    def step_now(self):
        return self.step


def test_the_latest_value_is_what_the_writer_says_as_long_as_it_lives():
    counter, other = tf.Variable(3, dtype=tf.int64), tf.Variable(4, dtype=tf.int64)
    assert counters.latest(counter) == 3
    writer = Writer(counter, 7)
    counters.note_writer(writer)
    assert counters.latest(counter) == 7
    assert counters.latest(other) == 4
    del writer
    gc.collect()
    assert counters.latest(counter) == 3


def test_a_learner_says_where_its_train_step_stands_after_each_run(tmp_path):
    step = tiny_agent.train_step(5)
    with tiny_learner.make(tmp_path, step=step) as trained:
        assert counters.latest(step) == 5
        step.assign(8)  # Before the first run nothing is taken for known.
        assert counters.latest(step) == 8
        for expected in (9, 10, 11):
            trained.run(1)
            assert counters.latest(step) == expected
        trained.run(4)
        assert counters.latest(step) == 15


@heap.needed
def test_a_counter_is_given_values_without_losing_memory():
    counter = tf.Variable(0, dtype=tf.int64)
    # TensorFlow keeps a tensor of every Python number: if it does not, `assign` is not needed.
    assert heap.lost_per_call(counter.assign) > 300
    assert heap.lost_per_call(lambda number: counters.assign(counter, number)) < 30
    assert counter.numpy() == 11_999

"""Where a learner's time goes, with train steps on batches that were taken beforehand."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.learning import taken_batches, train_timing
from tests.learning import tiny_learner


class Learner:
    """Has a clock, takes a second to train on a batch, and three to get one."""

    def __init__(self):
        self.now = self.train_seconds = 0.0
        self.last_step = self.taken = 0

    def clock(self):
        return self.now

    def run(self, iterations, iterator=None):
        seconds = iterations * (4.0 if iterator is None else 1.0)
        self.now += seconds
        self.train_seconds += seconds
        self.last_step += iterations
        return self.last_step

    def take_batches(self, count):
        self.taken += count
        self.now += 3.0 * count
        return object()


def test_training_and_sampling_are_told_apart():
    learner = Learner()
    timing = train_timing.TrainTiming(learner, measures=True, clock=learner.clock)
    learner.now += 61.0
    assert timing.run(10) == 10 and learner.taken == 4  # A graph is built: it does not count.
    assert "sampling" not in timing.shares()
    assert timing.run(2) == 12 and learner.taken == 6
    timing.shares()
    assert timing.run(10) == 22 and learner.taken == 6  # Not due so soon.
    learner.now += 40.0
    assert timing.shares() == pytest.approx({"training": 0.125, "sampling": 0.375, "waiting": 0.5})
    learner.now += 0.5
    assert timing.shares()["waiting"] == 0.5  # Of the last second or more.


def test_a_run_that_must_repeat_is_never_measured():
    learner = Learner()
    timing = train_timing.TrainTiming(learner, measures=False, clock=learner.clock)
    learner.now += 1_000.0
    timing.run(10)
    assert learner.taken == 0
    assert set(timing.shares()) == {"training", "waiting"}


def test_batches_taken_beforehand_are_trained_on_without_tracing_again(tmp_path):
    learner = tiny_learner.make(tmp_path)
    learner.run(iterations=3)
    traced = learner._calls.quiet_loop.trace_count
    taken = learner.take_batches(4)
    before, seconds = learner.last_step, learner.train_seconds
    learner.run(iterations=4, iterator=taken)
    assert learner.last_step == before + 4 and learner.train_seconds > seconds
    assert learner._calls.quiet_loop.trace_count == traced
    learner.run(iterations=2)
    assert learner.last_step == before + 6
    learner.close()


def test_taken_batches_have_the_type_of_the_dataset():
    dataset = tf.data.Dataset.from_tensor_slices(({"a": np.arange(6.0)}, np.arange(6))).batch(4)
    batches = list(dataset)
    iterator = taken_batches.iterator_over(batches, dataset.element_spec)
    assert iterator.element_spec == dataset.element_spec
    for taken, batch in zip(iterator, batches):
        tf.nest.map_structure(np.testing.assert_array_equal, taken, batch)

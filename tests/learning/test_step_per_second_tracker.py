"""Tests of `actor_learner.learning.step_per_second_tracker`."""

import tensorflow as tf

from actor_learner.learning import step_per_second_tracker


def test_measures_steps_since_the_last_restart():
    now = [10.0]
    step = tf.Variable(5, dtype=tf.int64)
    tracker = step_per_second_tracker.StepPerSecondTracker(step, clock=lambda: now[0])
    step.assign(25)
    now[0] = 14.0
    assert tracker.steps_per_second() == 5.0
    tracker.restart()
    step.assign(26)
    now[0] = 14.5
    assert tracker.steps_per_second() == 2.0


def test_no_time_has_passed_is_no_division_by_zero():
    step = tf.Variable(0, dtype=tf.int64)
    tracker = step_per_second_tracker.StepPerSecondTracker(step, clock=lambda: 1.0)
    step.assign(3)
    assert tracker.steps_per_second() == 0.0

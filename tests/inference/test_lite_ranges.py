"""Which clips of integers a converted policy does without, and which it keeps."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.inference import lite_ranges

LANES = 5


def choice(size, dtype=tf.int64):
    scores = tf.compat.v1.placeholder(tf.float32, [LANES, size])
    return tf.argmax(scores, axis=-1, output_type=dtype)


def unclipped(clip, inputs_of, known=None):
    """Whether an operation on a tensor and something else is left out."""
    with tf.Graph().as_default():
        value = tf.compat.v1.placeholder(tf.int64, [LANES])
        ranges = lite_ranges.IntegerRanges()
        if known is not None:
            ranges.note(value, *known)
        pair = inputs_of(value)
        op = clip(*pair).op
        found = ranges.unclipped(op, pair)
        return found is value


def test_a_clip_to_bounds_that_hold_anyway_is_left_out():
    at_most, at_least = np.asarray(1, np.int64), np.asarray(0, np.int64)
    assert unclipped(tf.minimum, lambda value: [value, at_most], known=(0, 1))
    assert unclipped(tf.maximum, lambda value: [value, at_least], known=(0, 1))
    assert unclipped(tf.maximum, lambda value: [at_least, value], known=(0, 1))


@pytest.mark.parametrize(
    "clip, bound, known",
    [
        (tf.minimum, np.asarray(1, np.int64), (0, 2)),  # 2 would be clipped.
        (tf.maximum, np.asarray(1, np.int64), (0, 2)),  # 0 would be clipped.
        (tf.minimum, np.array([1, 1, 0, 1, 1]), (0, 1)),  # In one lane it would.
        (tf.minimum, np.ones((2, LANES), np.int64), (0, 1)),  # The result is larger.
        (tf.minimum, np.asarray(1, np.int64), None),  # Nobody knows.
    ],
)
def test_a_clip_that_may_change_something_stays(clip, bound, known):
    assert not unclipped(clip, lambda value: [value, bound], known)


def test_two_tensors_of_the_same_range_are_still_compared():
    with tf.Graph().as_default():
        pair = [tf.compat.v1.placeholder(tf.int64, [LANES]) for _ in range(2)]
        ranges = lite_ranges.IntegerRanges()
        for value in pair:
            ranges.note(value, 0, 5)
        assert ranges.unclipped(tf.minimum(*pair).op, pair) is None


def test_ranges_are_followed_through_choices_casts_and_selections():
    with tf.Graph().as_default():
        ranges = lite_ranges.IntegerRanges()

        def followed(tensor, *inputs):
            ranges.follow(tensor.op, list(inputs), [tensor])
            return tensor

        best = followed(choice(3))
        narrow = followed(tf.cast(best, tf.int32), best)
        moved = followed(tf.reshape(narrow, [LANES, 1]), narrow)
        drawn = tf.compat.v1.placeholder(tf.int32, [LANES, 1])
        ranges.note(drawn, -1, 1)
        chance = tf.compat.v1.placeholder(tf.bool, [LANES, 1])
        chosen = followed(tf.where(chance, moved, drawn), chance, moved, drawn)
        within, beyond = np.asarray(2, np.int32), np.asarray(1, np.int32)
        assert ranges.unclipped(tf.minimum(chosen, within).op, [chosen, within]) is chosen
        assert ranges.unclipped(tf.minimum(chosen, beyond).op, [chosen, beyond]) is None
        below = np.asarray(-1, np.int32)
        assert ranges.unclipped(tf.maximum(chosen, below).op, [chosen, below]) is chosen
        assert ranges.unclipped(tf.maximum(chosen, beyond).op, [chosen, beyond]) is None

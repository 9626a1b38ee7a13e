"""Every item exactly once per epoch, whatever the sizes."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner import minibatches


def all_minibatches(items, epochs, size):
    """Minibatches by epoch, computed in a graph that does not know the number of items."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int32)])
    def parts(items):
        order = minibatches.shuffled_epochs(items, epochs)
        num_items = tf.size(items)
        count = minibatches.count(num_items, size)
        ragged = tf.map_fn(
            lambda number: minibatches.select(order, number, num_items, count),
            tf.range(epochs * count),
            fn_output_signature=tf.RaggedTensorSpec([None], tf.int32, 0),
        )
        return ragged.flat_values, ragged.row_lengths(), count

    values, lengths, count = parts(tf.constant(items, tf.int32))
    split = np.split(values.numpy(), np.cumsum(lengths.numpy())[:-1])
    count = int(count)
    return [split[epoch * count : (epoch + 1) * count] for epoch in range(epochs)]


@pytest.mark.parametrize(
    "num_items, size, expected",
    [
        (64, 16, [16] * 4),
        (65, 16, [13] * 5),
        (63, 16, [16, 16, 16, 15]),
        (10, 100, [10]),
        (7, 1, [1] * 7),
        (50, 49, [25, 25]),
    ],
)
def test_each_epoch_holds_every_item_once_in_near_equal_parts(num_items, size, expected):
    items = np.arange(num_items) * 3 + 1
    epochs = all_minibatches(items, epochs=3, size=size)
    for epoch in epochs:
        assert [len(part) for part in epoch] == expected
        np.testing.assert_array_equal(np.sort(np.concatenate(epoch)), items)
    if num_items > 10:
        assert not np.array_equal(np.concatenate(epochs[0]), np.concatenate(epochs[1]))


def test_no_items_make_no_minibatches():
    assert int(minibatches.count(tf.constant(0), 4)) == 0

"""The fused LSTM against Keras', values and gradients."""

import numpy as np
import tensorflow as tf

from actor_learner.agents.networks import lstm

BATCH, LENGTH, FEATURES, UNITS = 3, 6, 4, 5


def run(layer, inputs, state):
    with tf.GradientTape() as tape:
        tape.watch([inputs, *state])
        outputs, final = layer(inputs, state)
        loss = tf.reduce_sum(outputs**2) + tf.reduce_sum(final[0] * final[1])
    return outputs, final, tape.gradient(loss, [inputs, *state, *layer.trainable_variables])


class KerasLstm(tf.keras.layers.Layer):
    """Keras' LSTM behind the same interface."""

    def __init__(self):
        super().__init__()
        self.lstm = tf.keras.layers.LSTM(UNITS, return_sequences=True, return_state=True)

    def call(self, inputs, state):
        outputs, output, cell = self.lstm(inputs, initial_state=list(state))
        return outputs, (output, cell)


def test_outputs_states_and_gradients_are_those_of_keras():
    random = np.random.default_rng(0)

    def draw(*shape):
        return tf.constant(random.normal(size=shape), tf.float32)

    inputs, state = draw(BATCH, LENGTH, FEATURES), (draw(BATCH, UNITS), draw(BATCH, UNITS))
    ours, theirs = lstm.Lstm(UNITS), KerasLstm()
    ours(inputs, state), theirs(inputs, state)
    kernel, recurrent, bias = draw(FEATURES, 4 * UNITS), draw(UNITS, 4 * UNITS), draw(4 * UNITS)
    ours.set_weights([kernel, recurrent, bias])

    def reordered(array):  # From our order of gates (i, c, f, o) to Keras' (i, f, c, o).
        i, c, f, o = np.split(np.asarray(array), 4, axis=-1)
        return np.concatenate([i, f, c, o], axis=-1)

    keras_bias = np.asarray(bias).copy()
    keras_bias[2 * UNITS : 3 * UNITS] += 1.0  # The constant that is added to forget gates.
    theirs.set_weights([reordered(kernel), reordered(recurrent), reordered(keras_bias)])

    found, expected = run(ours, inputs, state), run(theirs, inputs, state)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for ours_state, theirs_state in zip(found[1], expected[1]):
        np.testing.assert_allclose(ours_state, theirs_state, atol=1e-5)
    for index, (gradient, reference) in enumerate(zip(found[2], expected[2])):
        gradient = gradient if index < 3 else reordered(gradient)
        np.testing.assert_allclose(gradient, reference, rtol=1e-4, atol=1e-5)
    assert len(found[2]) == 6

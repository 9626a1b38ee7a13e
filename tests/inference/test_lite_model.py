"""Conversion to TFLite: what it says on standard error, which is nothing."""

import os

import numpy as np
import tensorflow as tf

from actor_learner.inference import lite_model


def test_a_conversion_is_silent_and_drops_no_line_of_others(capfd, monkeypatch):
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1, 2], "x")
        y = 2.0 * x
    convert = tf.compat.v1.lite.TFLiteConverter.convert

    def talking(converter):
        os.write(2, b"a line of another thread\n")
        return convert(converter)

    monkeypatch.setattr(tf.compat.v1.lite.TFLiteConverter, "convert", talking)
    _, interpreter = lite_model.converted(graph, [x], [y])
    said = capfd.readouterr().err
    assert "a line of another thread\n" in said
    assert "non-converted" not in said and "delegate" not in said
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.ones((1, 2), np.float32))
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    assert interpreter.get_tensor(output["index"]).tolist() == [[2.0, 2.0]]

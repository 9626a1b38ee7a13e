"""Tests of `actor_learner.support.graph_call`."""

from typing import NamedTuple

import pytest
import tensorflow as tf

from actor_learner.support import graph_call


def test_outputs_are_nested_and_numbered_as_the_function_returns_them():
    factor = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.float32)])
    def fn(x, y):
        return {"b": factor * x, "a": (y, None)}

    call = graph_call.GraphCall(fn.get_concrete_function())
    found = call(tf.constant(2.0), tf.constant([5.0, 6.0]))
    assert found["b"].numpy() == 6.0
    assert found["a"][0].numpy().tolist() == [5.0, 6.0]
    assert found["a"][1] is None
    factor.assign(4.0)
    assert call(tf.constant(2.0), tf.constant([5.0, 6.0]))["b"].numpy() == 8.0


class Loss(NamedTuple):
    total: tf.Tensor
    parts: dict


def test_tensors_alone_are_nested_as_the_function_returns_them():
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def fn(x):
        return Loss(x, {"second": x + 1.0, "first": [x + 2.0, (x, ())]}), x * 2.0

    function = fn.get_concrete_function()
    found = graph_call.GraphCall(function)(tf.constant(1.0))
    wanted = function(tf.constant(1.0))
    tf.nest.assert_same_structure(found, wanted)
    assert tf.nest.map_structure(float, found) == (
        Loss(1.0, {"second": 2.0, "first": [3.0, (1.0, ())]}),
        2.0,
    )


def test_a_graph_without_outputs_is_run():
    counter = tf.Variable(0)

    @tf.function
    def raise_counter():
        counter.assign_add(1)

    call = graph_call.GraphCall(raise_counter.get_concrete_function())
    call()
    call()
    assert counter.numpy() == 2


def test_an_error_names_the_code_that_the_failed_operation_comes_from():
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def check(x):
        return tf.debugging.check_numerics(x, "the loss")

    function = check.get_concrete_function()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Tensor had NaN") as direct:
        graph_call.GraphCall(function)(tf.constant(float("nan")))
    with pytest.raises(tf.errors.InvalidArgumentError) as usual:
        function(tf.constant(float("nan")))
    assert "test_graph_call.py" in str(direct.value)
    assert str(direct.value) == str(usual.value)

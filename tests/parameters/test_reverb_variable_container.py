"""Variables through a real server: values, mismatches and deadlines."""

import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.experimental.distributed import reverb_variable_container as theirs

from actor_learner import errors
from actor_learner.parameters import reverb_variable_container as container_lib


def _variables(value=0.0):
    return {
        container_lib.POLICY_KEY: (tf.Variable([value, value]), tf.Variable([[value]])),
        container_lib.TRAIN_STEP_KEY: tf.Variable(int(value), dtype=tf.int64),
    }


def _values(variables):
    return [variable.numpy().tolist() for variable in tf.nest.flatten(variables)]


@pytest.fixture
def address():
    server = reverb.Server([container_lib.variable_table(_variables())])
    yield f"localhost:{server.port}"
    server.stop()


def test_what_is_pushed_is_pulled_and_only_the_latest(address):
    container = container_lib.ReverbVariableContainer(address)
    for value in (1.0, 2.0, 3.0):
        container.push(_variables(value))
    variables = _variables()
    container.update(variables)

    assert _values(variables) == [[3.0, 3.0], [[3.0]], 3]
    assert _values(container.pull()) == [[3.0, 3.0], [[3.0]], 3]


def test_tf_agents_container_reads_ours_and_ours_reads_theirs(address):
    ours = container_lib.ReverbVariableContainer(address)
    other = theirs.ReverbVariableContainer(address)

    ours.push(_variables(4.0))
    assert _values(other.pull()) == [[4.0, 4.0], [[4.0]], 4]
    other.push(_variables(5.0))
    assert _values(ours.pull()) == [[5.0, 5.0], [[5.0]], 5]


def test_pull_waits_for_the_first_push(address):
    container = container_lib.ReverbVariableContainer(address)
    pulled = []
    started = threading.Event()

    def pull():
        started.set()
        pulled.append(container.pull())

    thread = threading.Thread(target=pull)
    thread.start()
    started.wait(10)
    container_lib.ReverbVariableContainer(address).push(_variables(6.0))
    thread.join(20)

    assert _values(pulled[0]) == [[6.0, 6.0], [[6.0]], 6]


def test_an_empty_table_is_a_timeout_that_says_so(address):
    container = container_lib.ReverbVariableContainer(address, timeout_seconds=0.2)
    with pytest.raises(errors.ReplayTimeoutError, match="no variables were pushed yet"):
        container.pull()


def test_a_mismatch_names_the_variable_and_assigns_nothing(address):
    container = container_lib.ReverbVariableContainer(address)
    container.push(_variables(1.0))
    wrong = _variables(7.0)
    wrong[container_lib.TRAIN_STEP_KEY] = tf.Variable(7, dtype=tf.int32)

    with pytest.raises(errors.SpecMismatchError, match="train_step: expected int64 .*, got int32"):
        container.update(wrong)
    with pytest.raises(errors.SpecMismatchError, match="train_step: expected int64"):
        container.push(wrong)
    with pytest.raises(errors.SpecMismatchError, match="train_step: missing"):
        container.push({container_lib.POLICY_KEY: _variables()[container_lib.POLICY_KEY]})

    assert _values(wrong)[0] == [7.0, 7.0]
    assert _values(container.pull()) == [[1.0, 1.0], [[1.0]], 1]


def test_arrays_can_be_pushed(address):
    container = container_lib.ReverbVariableContainer(address)
    container.push(
        {
            container_lib.POLICY_KEY: (np.ones(2, np.float32), np.ones([1, 1], np.float32)),
            container_lib.TRAIN_STEP_KEY: np.int64(8),
        }
    )
    assert _values(container.pull()) == [[1.0, 1.0], [[1.0]], 8]


def test_an_absent_server_is_an_error_in_our_words():
    with pytest.raises(errors.ReplayTimeoutError, match="no Reverb server answered at localhost:1"):
        container_lib.ReverbVariableContainer("localhost:1", timeout_seconds=1)


def test_push_and_pull_end_after_the_servers_death():
    server = reverb.Server([container_lib.variable_table(_variables())])
    container = container_lib.ReverbVariableContainer(f"localhost:{server.port}", timeout_seconds=1)
    container.push(_variables(1.0))
    server.stop()

    with pytest.raises(errors.ReplayTimeoutError):
        container.push(_variables(2.0))
    with pytest.raises(errors.ReplayTimeoutError):
        container.pull()

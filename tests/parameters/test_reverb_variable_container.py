"""Variables through a real server: values, mismatches and deadlines."""

import logging
import socket
import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf
from absl import logging as absl_logging
from tf_agents.experimental.distributed import reverb_variable_container as theirs

from actor_learner.parameters import reverb_variable_container as container_lib
from actor_learner.support import errors


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


class _Words(logging.Handler):
    """Tells a waiting test that the log has said something."""

    def __init__(self, words):
        super().__init__()
        self._words = words
        self.said = threading.Event()

    def emit(self, record):
        if self._words in record.getMessage():
            self.said.set()


@pytest.fixture
def said(monkeypatch):
    """Makes an event for when the log has said some words, at once instead of in ten seconds."""
    monkeypatch.setattr(container_lib, "_FIRST_WORD_SECONDS", 0.2)
    handlers = []

    def event_of(words):
        handlers.append(_Words(words))
        absl_logging.get_absl_logger().addHandler(handlers[-1])
        return handlers[-1].said

    yield event_of
    for handler in handlers:
        absl_logging.get_absl_logger().removeHandler(handler)


def _in_thread(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def test_pull_waits_for_ever_by_default_and_says_so(address, said):
    container = container_lib.ReverbVariableContainer(address)
    waits = said("without a deadline: no variables were pushed yet to table 'variables'")
    thread, pulled = _in_thread(container.pull)
    assert waits.wait(20)
    assert thread.is_alive()
    container_lib.ReverbVariableContainer(address).push(_variables(6.0))
    thread.join(20)
    assert _values(pulled[0]) == [[6.0, 6.0], [[6.0]], 6]


def test_a_container_waits_for_its_server_and_says_so(said):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    waits = said(f"without a deadline: no Reverb server answered at localhost:{port}")
    thread, made = _in_thread(lambda: container_lib.ReverbVariableContainer(f"localhost:{port}"))
    assert waits.wait(20)
    server = reverb.Server([container_lib.variable_table(_variables())], port=port)
    try:
        thread.join(60)
        made[0].push(_variables(2.0))
        assert _values(made[0].pull()) == [[2.0, 2.0], [[2.0]], 2]
    finally:
        server.stop()


def test_variables_that_are_not_finite_are_neither_pushed_nor_assigned(address):
    container = container_lib.ReverbVariableContainer(address)
    container.push(_variables(1.0))
    broken = _variables(2.0)
    broken[container_lib.POLICY_KEY][1].assign([[np.inf]])
    with pytest.raises(errors.NotFiniteError, match="policy_variables/1"):
        container.push(broken)
    assert _values(container.pull()) == [[1.0, 1.0], [[1.0]], 1]
    theirs.ReverbVariableContainer(address).push(broken)
    variables = _variables()
    with pytest.raises(errors.NotFiniteError, match="policy_variables/1"):
        container.update(variables)
    assert _values(variables) == [[0.0, 0.0], [[0.0]], 0]

"""A learner that waits for experience says so, and does not wait for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf
from absl import logging

from actor_learner.learning import sample_sources, sample_watch
from actor_learner.replay import reverb_replay_buffer
from actor_learner.support import errors
from tests.learning import tiny_agent, tiny_learner

pytestmark = pytest.mark.timeout(300)

TABLE = "trajectories"
SERVER = """
import reverb, sys
from tests.learning import test_sample_watch
server = test_sample_watch.serve()
print(server.port, flush=True)
sys.stdin.read()
"""


def spec():
    return tiny_agent.TinyAgent(tiny_agent.train_step()).collect_data_spec


def serve():
    table = reverb.Table(
        TABLE,
        reverb.selectors.Uniform(),
        reverb.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverb.rate_limiters.MinSize(4),
    )
    return reverb.Server([table])


def dataset_fn(port, **options):
    """As TF-Agents scripts make it: it waits for ever."""
    buffer = reverb_replay_buffer.ReverbReplayBuffer(
        spec(), TABLE, 2, server_address=f"localhost:{port}", timeout_seconds=60.0, **options
    )
    return lambda: buffer.as_dataset(sample_batch_size=3, num_steps=2).prefetch(2)


def fill(port):
    steps = tf.nest.map_structure(lambda leaf: leaf[0].numpy(), tiny_agent.experience())
    with reverb.Client(f"localhost:{port}").trajectory_writer(2) as writer:
        for step in range(6):
            writer.append(tf.nest.map_structure(lambda leaf: leaf[0], steps))
            if step:
                writer.create_item(
                    TABLE, 1.0, tf.nest.map_structure(lambda column: column[-2:], writer.history)
                )
        writer.flush()


@pytest.fixture
def warnings(monkeypatch):
    """What is logged as a warning, and an event that is set by the first."""

    class Warnings(list):
        came = threading.Event()

        def note(self, text, *values):
            self.append(text % values)
            self.came.set()

    noted = Warnings()
    monkeypatch.setattr(logging, "warning", noted.note)
    monkeypatch.setattr(sample_watch, "FIRST_WARNING_SECONDS", 0.5)
    monkeypatch.setattr(sample_sources, "_LOOK_SECONDS", 5.0)
    return noted


def test_an_empty_table_is_waited_for_and_named(tmp_path, warnings):
    server = serve()
    with tiny_learner.make(tmp_path, dataset_fn=dataset_fn(server.port)) as trained:
        warnings.clear()
        writer = threading.Thread(target=lambda: warnings.came.wait(120.0) and fill(server.port))
        writer.start()
        trained.run(iterations=2)
        writer.join()
        assert trained.train_step_numpy == 2
    assert "has taken no train step for" in warnings[0]
    assert f"table '{TABLE}': 0 of 100 items" in warnings[0]
    assert "sampling waits: 0 of the 4 items needed before the first sample" in warnings[0]
    assert f"at localhost:{server.port}, which answers" in warnings[0]


def test_a_table_that_stays_empty_is_an_error_after_the_deadline(tmp_path, warnings):
    server = serve()
    made = tiny_learner.make(
        tmp_path, dataset_fn=dataset_fn(server.port), sample_timeout_seconds=1.0
    )
    with made as trained:
        with pytest.raises(errors.ReplayTimeoutError, match="of the 4 items needed.* for 1 s at"):
            trained.run(iterations=2)
        fill(server.port)
        trained.run(iterations=3)  # A new iterator.
        assert trained.train_step_numpy == 3


def test_a_killed_server_is_an_error_after_the_deadline(tmp_path, warnings):
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(server.stdout.readline())
        fill(port)
        made = tiny_learner.make(tmp_path, dataset_fn=dataset_fn(port), sample_timeout_seconds=2.0)
        with made as trained:
            trained.run(iterations=3)
            os.kill(server.pid, signal.SIGKILL)
            server.wait(60.0)
            with pytest.raises(
                errors.ReplayTimeoutError,
                match=f"table '{TABLE}' at localhost:{port}: no Reverb server answered",
            ):
                trained.run(iterations=1_000_000)
    finally:
        server.kill()
        server.communicate()


def test_a_dataset_with_a_timeout_of_its_own_ends_by_it(tmp_path, warnings):
    server = serve()
    made = tiny_learner.make(
        tmp_path,
        dataset_fn=dataset_fn(server.port, rate_limiter_timeout_ms=3_000),
        sample_timeout_seconds=0.5,
    )
    with made as trained, pytest.raises(errors.ReplayTimeoutError, match="dataset ended"):
        warnings.clear()
        trained.run()
    assert "it waits for a sample" in warnings[0]


def test_what_is_not_known_is_waited_for_without_a_deadline(tmp_path, warnings):
    def batches():
        while True:
            assert warnings.came.wait(120.0)
            yield np.int64(0)

    def from_python():
        made = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([], tf.int64))
        return made.map(lambda _: (tiny_agent.experience(), ()))

    with tiny_learner.make(tmp_path, dataset_fn=from_python, sample_timeout_seconds=0.5) as trained:
        warnings.clear()
        warnings.came.clear()
        trained.run()
        assert trained.train_step_numpy == 1
    assert "it waits for its dataset, or the train step itself takes long" in warnings[0]


def test_a_timeout_must_be_above_zero(tmp_path):
    with pytest.raises(ValueError, match="sample_timeout_seconds must be above 0, got 0"):
        tiny_learner.make(tmp_path, sample_timeout_seconds=0)


def test_the_thread_ends_with_its_learner(tmp_path):
    trained = tiny_learner.make(tmp_path)
    trained.run()
    thread = trained._watch._thread
    assert thread.is_alive()
    trained.close()
    thread.join(60.0)
    assert not thread.is_alive()


def test_tables_are_found_wherever_a_dataset_has_them():
    def sampled(table, timeout_ms=-1):
        return reverb.TrajectoryDataset(
            "localhost:1",
            table,
            tf.float32,
            tf.TensorShape([2]),
            10,
            rate_limiter_timeout_ms=timeout_ms,
        )

    def source(table, ends=False):
        return sample_sources.Source("localhost:1", table, ends)

    count = tf.data.Dataset.range(2)
    a, b = sampled("a"), sampled("b", timeout_ms=0)
    both = tf.data.Dataset.zip((a.batch(3).prefetch(1), b.map(lambda *sample: sample)))
    assert sample_sources.find(both) == [source("a"), source("b", ends=True)]
    inner = count.interleave(lambda _: sampled("c", timeout_ms=5), num_parallel_calls=2)
    assert sample_sources.find(inner.with_options(tf.data.Options())) == [source("c", ends=True)]
    nested = count.flat_map(lambda _: count.interleave(lambda _: sampled("d")))
    assert sample_sources.find(nested) == [source("d")]
    assert sample_sources.find(count) == sample_sources.find(None) == []

"""Tables and rate limiters, bound as gin binds them, sampled on a real server."""

import gin
import numpy as np
import pytest
import reverb

from actor_learner.replay.server import state, tables
from actor_learner.support import errors


@pytest.fixture(autouse=True)
def _clear_gin():
    yield
    gin.clear_config()


def _insert(client, table, count):
    for i in range(count):
        client.insert([np.int64(i)], {table: float(i)})


def _sample(client, table, count):
    return [int(sample[0].data[0]) for sample in client.sample(table, count)]


def test_a_uniform_table_is_built_from_gin():
    gin.parse_config(
        """
        uniform_table.name = 'experience'
        uniform_table.max_size = 1e6
        uniform_table.rate_limiter = @min_size()
        min_size.min_size = 10
        """
    )
    info = tables.uniform_table().info

    assert (info.name, info.max_size, info.max_times_sampled) == ("experience", 1_000_000, 0)
    assert info.rate_limiter_info.min_size_to_sample == 10
    assert info.sampler_options.uniform and info.remover_options.fifo


def test_a_queue_gives_each_item_once_in_order():
    server = reverb.Server([tables.queue_table("queue", 10)])
    client = server.localhost_client()
    _insert(client, "queue", 4)

    assert _sample(client, "queue", 4) == [0, 1, 2, 3]
    assert client.server_info(5)["queue"].current_size == 0
    server.stop()


def test_a_lifo_table_gives_the_newest_and_drops_the_oldest():
    server = reverb.Server([tables.lifo_table("stack", 3, max_times_sampled=1)])
    client = server.localhost_client()
    _insert(client, "stack", 5)

    assert _sample(client, "stack", 3) == [4, 3, 2]
    server.stop()


def test_a_prioritized_table_never_gives_an_item_of_priority_zero():
    server = reverb.Server([tables.prioritized_table("replay", 10, priority_exponent=1.0)])
    client = server.localhost_client()
    _insert(client, "replay", 2)

    assert set(_sample(client, "replay", 50)) == {1}
    options = client.server_info(5)["replay"].sampler_options
    assert options.prioritized.priority_exponent == 1.0
    server.stop()


def test_a_ratio_lets_neither_side_run_ahead():
    limiter = tables.sample_to_insert_ratio(2.0, min_size=1, error_buffer=2.0)
    server = reverb.Server([tables.uniform_table("replay", 10, rate_limiter=limiter)])
    client = server.localhost_client()
    _insert(client, "replay", 2)
    full = state.table_state(client, "replay")
    _sample(client, "replay", 4)
    drained = state.table_state(client, "replay")
    server.stop()

    assert full.blocked == "inserting"
    assert full.why.startswith("inserting waits for samples: 2 inserts for 0 samples")
    assert drained.blocked == "sampling"
    assert drained.why.startswith("sampling waits for inserts: 4 samples of 2 inserts")
    assert drained.samples_per_insert == 2.0


def test_the_default_error_buffer_is_never_too_small():
    for ratio in (0.1, 1.0, 32.0):
        tables.sample_to_insert_ratio(ratio, min_size=1)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: tables.sample_to_insert_ratio(8.0, 100, 4.0), "error_buffer is 4, below 8"),
        (lambda: tables.sample_to_insert_ratio(0.5, 100, 0.5), "error_buffer is 0.5, below 1"),
        (lambda: tables.sample_to_insert_ratio(0.0, 100), "must be above 0"),
        (lambda: tables.min_size(0), "min_size is 0"),
        (
            lambda: tables.uniform_table("t", 10, rate_limiter=tables.min_size(11)),
            "'t' can never be sampled.*11 items.*max_size is 10",
        ),
        (
            lambda: tables.uniform_table(
                "t",
                10,
                max_times_sampled=1,
                rate_limiter=tables.sample_to_insert_ratio(4.0, 1),
            ),
            "'t' would come to a halt",
        ),
        (lambda: tables.uniform_table("t", 0), "max_size is 0"),
        (lambda: tables.uniform_table("t", 10.5), "max_size is 10.5"),
        (lambda: tables.queue_table("t", "10"), "max_size is '10'"),
        (lambda: tables.uniform_table("", 10), "name is ''"),
        (lambda: tables.prioritized_table("t", 10, priority_exponent=-1), "exponent is -1"),
    ],
)
def test_what_would_deadlock_or_cannot_be_is_refused_with_the_reason(build, message):
    with pytest.raises(errors.ConfigError, match=message):
        build()

"""The one writer: every wait ends, every error is in the user's words, nothing hangs."""

import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import reverb
import tensorflow as tf

from actor_learner.replay.server import server, tables
from actor_learner.replay.writing import item_writer
from actor_learner.support import errors, reverb_calls

RUN, OTHER_RUN = "3f2a91c0" * 4, "77aa0011" * 4
TABLE = tables.of_run("experience", RUN)
SIGNATURE = {"x": tf.TensorSpec([2, 3], tf.float32, "x")}


def queue(name=TABLE, max_size=100):
    return tables.queue_table(name, max_size, signature=SIGNATURE)


def make_writer(client, pattern, **options):
    columns = ["x"] if pattern else None
    return item_writer.ItemWriter(client, [TABLE], window=2, pattern=columns, **options)


def write(writer, pattern, count):
    """Appends rows; from the second one on each completes an item."""
    for number in range(count):
        writer.append({"x": np.full(3, number, np.float32)})
        if not pattern and len(writer.columns["x"]) > 1:
            writer.create_item({"x": writer.columns["x"][-2:]}, 1.0)
        writer.make_room()


both_kinds = pytest.mark.parametrize("pattern", [True, False], ids=["pattern", "items"])


@both_kinds
def test_items_arrive_and_none_spans_a_clear(pattern):
    with server.ReplayServer([queue()]) as replay:
        writer = make_writer(replay.client(), pattern)
        write(writer, pattern, 3)
        writer.clear()
        write(writer, pattern, 2)
        writer.close()
        assert not writer.is_open
        samples = replay.client().sample(TABLE, 3, emit_timesteps=False)
        windows = [sample.data[0][:, 0].tolist() for sample in samples]
        assert windows == [[0, 1], [1, 2], [0, 1]]
        write(writer, pattern, 2)  # Opened again by the first row.
        writer.close()
        writer.close()
        assert replay.info().tables[TABLE].inserts == 4


@both_kinds
def test_a_flush_asks_the_server_only_about_items_that_are_not_confirmed(pattern, monkeypatch):
    with server.ReplayServer([queue()]) as replay:
        writer = make_writer(replay.client(), pattern)
        waits = []
        wait = writer._wait
        monkeypatch.setattr(writer, "_wait", lambda call: waits.append(1) or wait(call))
        write(writer, pattern, 1)
        writer.flush()
        assert waits == []  # A single row makes no item.
        write(writer, pattern, 2)
        writer.flush(left_in_flight=1)
        writer.flush()
        assert len(waits) == 2  # One may have been left.
        assert replay.info().tables[TABLE].inserts == 2
        writer.flush()
        assert len(waits) == 2
        write(writer, pattern, 1)
        writer.flush()
        assert len(waits) == 3
        assert replay.info().tables[TABLE].inserts == 3
        writer.close()


@both_kinds
def test_no_more_items_are_in_flight_than_allowed(pattern):
    with server.ReplayServer([queue(max_size=1)]) as replay:
        writer = make_writer(replay.client(), pattern, max_in_flight_items=4, timeout_seconds=0.3)
        write(writer, pattern, 2)
        writer.flush()
        with pytest.raises(errors.ReplayTimeoutError, match="an actor has waited 0.3 s") as error:
            write(writer, pattern, 4)
        assert "inserting waits for samples" in str(error.value)
        assert "The learner takes them out" in str(error.value)
        writer.abandon()


@both_kinds
def test_a_wait_ends_once_it_is_given_up(pattern):
    with server.ReplayServer([queue(max_size=1)]) as replay:
        writer = make_writer(replay.client(), pattern, timeout_seconds=600.0)
        write(writer, pattern, 5)
        begun = time.monotonic()
        with reverb_calls.giving_up_when(lambda: True):
            with pytest.raises(errors.ReplayTimeoutError):
                writer.flush()
        assert time.monotonic() - begun < 60.0
        writer.abandon()


@both_kinds
def test_the_server_of_another_run_on_the_same_port_is_recognized(pattern):
    ours = server.ReplayServer([queue()])
    writer = make_writer(ours.client(), pattern, timeout_seconds=60.0)
    write(writer, pattern, 2)
    writer.flush()
    ours.stop()
    with server.ReplayServer([queue(tables.of_run("experience", OTHER_RUN))], ours.port) as other:
        with pytest.raises(errors.OtherRunError) as error:
            write(writer, pattern, 2)
            writer.flush()
        assert str(error.value) == (
            f"the server at {ours.address} has no table '{TABLE}' of this run: another run's "
            "server has taken its port, or the address is wrong"
        )
        assert not writer.is_open
        writer.close()
        assert [table.inserts for table in other.info().tables.values()] == [0]


def test_a_table_is_checked_before_anything_is_written():
    unsigned = tables.uniform_table("unsigned", 10)
    with server.ReplayServer([queue(), unsigned]) as replay:
        client = replay.client()
        item_writer.check_table(client, TABLE, SIGNATURE, 10.0)
        with pytest.raises(errors.SpecMismatchError, match=r"x: expected float32 \[2, 3\]"):
            item_writer.check_table(client, TABLE, {"x": tf.TensorSpec([2, 4], tf.float32)}, 10.0)
        with pytest.raises(errors.SpecMismatchError, match="the same bytes, but of other fields"):
            other = {"x": tf.TensorSpec([2, 3], tf.float32, "y")}
            item_writer.check_table(client, TABLE, other, 10.0)
        with pytest.raises(errors.SpecMismatchError, match="has no signature"):
            item_writer.check_table(client, "unsigned", SIGNATURE, 10.0)
        with pytest.raises(reverb_calls.UnknownTableError, match="no table 'absent'; it has"):
            item_writer.check_table(client, "absent", SIGNATURE, 10.0)
        absent = tables.of_run("experience", OTHER_RUN)
        with pytest.raises(errors.OtherRunError, match=f"no table '{absent}' of this run"):
            item_writer.check_table(client, absent, SIGNATURE, 10.0)


@both_kinds
def test_a_row_unlike_the_first_is_refused(pattern):
    with server.ReplayServer([queue()]) as replay:
        writer = make_writer(replay.client(), pattern)
        write(writer, pattern, 1)
        with pytest.raises(errors.SpecMismatchError, match="does not look like the first one"):
            writer.append({"x": np.zeros(4, np.float32)})
        writer.abandon()


def test_an_item_that_does_not_fit_its_table_is_refused():
    with server.ReplayServer([queue()]) as replay:
        writer = make_writer(replay.client(), pattern=False)
        write(writer, False, 1)
        with pytest.raises(errors.SpecMismatchError, match="an item of 1 steps does not fit table"):
            writer.create_item({"x": writer.columns["x"][-1:]}, 1.0)
        writer.abandon()


@pytest.mark.parametrize("options", [{"max_in_flight_items": 0}, {"timeout_seconds": 0.0}])
def test_limits_that_cannot_work_are_configuration_errors(options):
    (name,) = options
    with pytest.raises(errors.ConfigError, match=name):
        make_writer(reverb.Client("localhost:1"), False, **options)


def test_closing_without_a_server_warns_and_returns(caplog):
    replay = server.ReplayServer([queue()])
    client = replay.client()
    writers = [make_writer(client, pattern) for pattern in (True, False)]
    for writer, pattern in zip(writers, (True, False)):
        write(writer, pattern, 2)
        writer.flush()
        write(writer, pattern, 2)
    replay.stop()
    item_writer.close_all(writers, client, 1.0)
    assert not any(writer.is_open for writer in writers)
    assert "Items that are not confirmed are lost" in caplog.text


@both_kinds
def test_a_writer_that_is_dropped_with_items_under_way_does_not_hang_the_process(pattern):
    script = f"""
        import gc
        from actor_learner.replay.server import server
        from tests.replay.writing import test_item_writer as this

        replay = server.ReplayServer([this.queue(max_size=1)])
        writer = this.make_writer(replay.client(), {pattern})
        this.write(writer, {pattern}, 6)
        del writer
        gc.collect()
        print("went on", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert "went on" in done.stdout and done.returncode == 0, done.stderr[-2000:]


def test_run_ids_must_tell_runs_apart():
    assert TABLE == "experience@3f2a91c0" and tables.carries_run(TABLE)
    assert not tables.carries_run("experience")
    for bad in ("", "3f2a", "run-of-today", "2026-11-18"):
        with pytest.raises(ValueError, match="hexadecimal"):
            tables.of_run("experience", bad)

"""The replay server: ports, state, checkpoints that are damaged in every way, and its end."""

import pathlib
import shutil

import numpy as np
import pytest
import reverb
import tensorflow as tf

from actor_learner.replay.server import server as server_lib
from actor_learner.replay.server import signatures, tables
from actor_learner.support import errors


def _tables(max_size=100, minimum=1, signature=None):
    limiter = tables.min_size(minimum)
    return [
        tables.uniform_table("replay", max_size, rate_limiter=limiter, signature=signature),
        tables.queue_table("queue", 50),
    ]


def _insert(server, count, table="replay"):
    for i in range(count):
        server.client().insert([np.int64(i)], {table: 1.0})


def _sizes(server):
    return {name: table.size for name, table in server.info().tables.items()}


def _names(directory):
    return sorted(path.name for path in pathlib.Path(directory).iterdir())


def test_a_taken_port_is_an_error_that_names_it():
    with server_lib.ReplayServer(_tables()) as server:
        with pytest.raises(errors.ReplayError, match=f"port {server.port} .*port = None"):
            server_lib.ReplayServer(_tables(), server.port)


def test_a_port_is_free_again_after_stop():
    with server_lib.ReplayServer(_tables()) as server:
        _insert(server, 1)
        port = server.port
    with server_lib.ReplayServer(_tables(), port) as server:
        assert server.address == f"localhost:{port}"
        assert _sizes(server) == {"queue": 0, "replay": 0}


@pytest.mark.parametrize("port", [0, 70000])
def test_an_impossible_port_is_refused(port):
    with pytest.raises(errors.ConfigError, match=str(port)):
        server_lib.ReplayServer(_tables(), port)


@pytest.mark.parametrize("build", [lambda: [], lambda: _tables() + _tables()])
def test_impossible_sets_of_tables_are_refused(build):
    with pytest.raises(errors.ConfigError, match="ReplayServer.tables"):
        server_lib.ReplayServer(build())


def test_info_says_who_waits_for_what():
    with server_lib.ReplayServer(_tables(minimum=10)) as server:
        _insert(server, 3)
        replay, queue = (server.info().tables[name] for name in ("replay", "queue"))
        text = server.describe()

    assert (replay.size, replay.max_size, replay.inserts, replay.samples) == (3, 100, 3, 0)
    assert replay.blocked == "sampling"
    assert replay.why == "sampling waits: 3 of the 10 items needed before the first sample"
    assert queue.blocked == "sampling"
    assert server.address in text and replay.why in text


def test_info_counts_samples():
    with server_lib.ReplayServer(_tables()) as server:
        _insert(server, 2)
        list(server.client().sample("replay", 6))
        replay = server.info().tables["replay"]

    assert (replay.blocked, replay.why) == (None, "")
    assert (replay.inserts, replay.samples, replay.samples_per_insert) == (2, 6, 3.0)
    assert replay.unique_samples in (1, 2)


def test_stop_may_be_called_twice_and_later_calls_say_so():
    server = server_lib.ReplayServer(_tables())
    server.stop()
    server.stop()

    with pytest.raises(errors.ReplayError, match="was stopped"):
        server.info()


def test_table_state_of_an_absent_server_is_an_error_in_our_words():
    with pytest.raises(errors.ReplayTimeoutError, match="localhost:1 within 1 s"):
        server_lib.table_state(reverb.Client("localhost:1"), "replay", 1)


def test_a_server_without_a_directory_cannot_save():
    with server_lib.ReplayServer(_tables()) as server:
        with pytest.raises(errors.ReplayError, match="checkpoint_dir"):
            server.checkpoint()


def test_contents_come_back_from_the_newest_checkpoint(tmp_path):
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        assert server.restored_from is None
        for _ in range(3):
            _insert(server, 2)
            path = server.checkpoint()
        _insert(server, 1)  # Not saved.
    assert _names(tmp_path) == ["checkpoint-00000002", "checkpoint-00000003", "incoming"]

    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        assert str(server.restored_from) == path == str(tmp_path / "checkpoint-00000003")
        assert _sizes(server) == {"queue": 0, "replay": 6}
        values = {int(sample[0].data[0]) for sample in server.client().sample("replay", 50)}
        assert values == {0, 1}
        assert server.checkpoint() == str(tmp_path / "checkpoint-00000004")


def test_restore_false_starts_empty_and_keeps_the_checkpoints(tmp_path):
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        _insert(server, 2)
        server.checkpoint()
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path, restore=False) as server:
        assert _sizes(server) == {"queue": 0, "replay": 0}
    assert _names(tmp_path) == ["checkpoint-00000001", "incoming"]


@pytest.fixture
def two_checkpoints(tmp_path):
    """A directory whose older checkpoint has 3 items and whose newer one has 40."""
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        _insert(server, 3)
        server.checkpoint()
        _insert(server, 37)
        server.checkpoint()
    return tmp_path


def _truncate(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_truncate, _flip, pathlib.Path.unlink])
@pytest.mark.parametrize("name", ["tables.tfrecord", "items.tfrecord", "chunks.tfrecord"])
def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(two_checkpoints, name, damage):
    damage(two_checkpoints / "checkpoint-00000002" / name)

    with server_lib.ReplayServer(_tables(), checkpoint_dir=two_checkpoints) as server:
        assert _sizes(server) == {"queue": 0, "replay": 3}
        assert server.restored_from.name == "checkpoint-00000001"
        assert "checkpoint-00000002.corrupt" in _names(two_checkpoints)
        assert server.checkpoint() == str(two_checkpoints / "checkpoint-00000003")


def test_without_a_readable_checkpoint_the_server_does_not_start_empty(two_checkpoints):
    for number in (1, 2):
        _truncate(two_checkpoints / f"checkpoint-0000000{number}" / "items.tfrecord")

    for _ in range(2):  # The second start finds only what was set aside, and must not forget.
        with pytest.raises(errors.CheckpointError, match="checkpoint-00000001.corrupt"):
            server_lib.ReplayServer(_tables(), checkpoint_dir=two_checkpoints)
    with server_lib.ReplayServer(
        _tables(), checkpoint_dir=two_checkpoints, restore=False
    ) as server:
        assert _sizes(server)["replay"] == 0


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            lambda: _tables(max_size=50),
            "max_size is 50 in the configuration, 100 in the checkpoint",
        ),
        (lambda: _tables(minimum=7), "rate limiter min_size_to_sample is 7 .* 1 in the checkpoint"),
        (lambda: _tables()[1:], "table 'replay' is gone"),
        (
            lambda: _tables(signature=[tf.TensorSpec([1], tf.int64)]),
            "only the configuration has a signature",
        ),
        (
            lambda: [tables.prioritized_table("replay", 100), _tables()[1]],
            "sampler is prioritized",
        ),
    ],
)
def test_a_checkpoint_of_other_tables_is_refused_and_kept(two_checkpoints, changed, message):
    with pytest.raises(errors.ReplayError, match=message):
        server_lib.ReplayServer(changed(), checkpoint_dir=two_checkpoints)

    assert _names(two_checkpoints) == ["checkpoint-00000001", "checkpoint-00000002", "incoming"]


def test_a_changed_signature_is_named_by_field(tmp_path):
    was = signatures.window_signature({"x": tf.TensorSpec([], tf.int64)}, 1)
    now = signatures.window_signature({"x": tf.TensorSpec([], tf.int32)}, 1)
    with server_lib.ReplayServer(_tables(signature=was), checkpoint_dir=tmp_path) as server:
        _insert(server, 1)
        server.checkpoint()

    with pytest.raises(errors.ReplayError, match=r"x: expected int32 \[1\], got int64 \[1\]"):
        server_lib.ReplayServer(_tables(signature=now), checkpoint_dir=tmp_path)


def test_a_new_table_starts_empty_beside_restored_ones(two_checkpoints):
    more = _tables() + [tables.uniform_table("more", 10)]
    with server_lib.ReplayServer(more, checkpoint_dir=two_checkpoints) as server:
        assert _sizes(server) == {"more": 0, "queue": 0, "replay": 40}


def test_a_checkpoint_that_any_client_asked_for_is_found_at_the_next_start(tmp_path):
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        _insert(server, 2)
        server.checkpoint()
        _insert(server, 3)
        server.client().checkpoint()

    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        assert _sizes(server)["replay"] == 5
        assert server.restored_from.name == "checkpoint-00000002"


def test_a_checkpoint_dated_in_the_future_does_not_make_the_next_save_delete_itself(tmp_path):
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        _insert(server, 1)
        early = server.checkpoint()
        shutil.copytree(early, tmp_path / "incoming" / "2099-01-01T00:00:00.0+00:00")
        _insert(server, 1)
        late = pathlib.Path(server.checkpoint())

        assert (late / "items.tfrecord").exists()
    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        assert _sizes(server)["replay"] == 2


def test_an_unfinished_checkpoint_is_removed_at_start(tmp_path):
    unfinished = tmp_path / "incoming" / "2020-01-01T00:00:00.0+00:00"
    unfinished.mkdir(parents=True)
    (unfinished / "items.tfrecord").write_bytes(b"")

    with server_lib.ReplayServer(_tables(), checkpoint_dir=tmp_path) as server:
        assert _sizes(server)["replay"] == 0
    assert _names(tmp_path / "incoming") == []

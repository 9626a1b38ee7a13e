"""Writers that are killed, readers and collectors beside them: nobody ever sees half a version."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np

from actor_learner.parameters import store as store_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLS = 4


@contextlib.contextmanager
def pusher(directory, first):
    process = subprocess.Popen(
        [sys.executable, str(pathlib.Path(__file__).with_name("pusher.py")), directory, str(first)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Background(threading.Thread):
    """Does something again and again until stopped; keeps the first exception."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self._act = act
        self._stopping = threading.Event()
        self.times = 0
        self.failure = None
        self.start()

    def run(self):
        try:
            while not self._stopping.is_set():
                self._act()
                self.times += 1
        except BaseException as error:
            self.failure = error

    def stop(self):
        self._stopping.set()
        self.join(60)
        if self.failure is not None:
            raise self.failure


def check(parameters):
    """Every number of a version says which one it is."""
    assert parameters.metadata == {"version": parameters.version}
    assert len(parameters.values) == 4
    for array in parameters.values.values():
        np.testing.assert_array_equal(array, np.full([10_000], parameters.version))


def test_a_writer_killed_at_any_moment_never_shows_half_a_version(tmp_path):
    store = store_lib.ParameterStore(tmp_path)
    directory = tmp_path / "policy"

    def read_one():
        if not store.names():
            return
        for identifier in ("best", *(stored.version for stored in store.list("policy"))):
            # A version may be collected meanwhile; `latest` would pass over a damaged one.
            with contextlib.suppress(store_lib.ParametersNotFoundError):
                check(store.get("policy", identifier))
        check(store.get("policy"))
        time.sleep(0.002)  # Some time for the writer, where cores are few.

    def collect():
        if store.names():
            store.gc("policy", keep=3)
        time.sleep(0.01)

    reader, collector = Background(read_one), Background(collect)
    seed = random.Random(0)
    last = -1
    for _ in range(KILLS):
        with pusher(str(tmp_path), last + 1) as process:
            for _ in range(seed.randrange(1, 6)):
                last = int(process.stdout.readline())
            time.sleep(seed.uniform(0, 0.01))  # Anywhere within the next push.
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            last = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
        assert store.get("policy").version >= last
        last = store.get("policy").version
    collector.stop()
    reader.stop()

    assert reader.times > KILLS
    check(store.get("policy"))
    check(store.get("policy", "best"))
    store.gc("policy", keep=1)
    assert {path.name for path in directory.iterdir()} <= {
        "lock",
        "tags.json",
        ".tags.json",
        *(stored.path.name for stored in store.list("policy")),
    }
    assert len(store.list("policy")) <= 2


def test_what_a_killed_writer_left_is_collected_and_what_a_living_one_writes_is_not(
    tmp_path, monkeypatch
):
    store = store_lib.ParameterStore(tmp_path)
    store.push("policy", {"a": 1.0}, 1)
    directory = tmp_path / "policy"
    (directory / ".incoming-dead").write_bytes(b"half")
    begun, go_on = threading.Event(), threading.Event()
    write_array = np.lib.format.write_array

    def slow(*arguments, **options):
        begun.set()
        assert go_on.wait(30)
        write_array(*arguments, **options)

    monkeypatch.setattr(np.lib.format, "write_array", slow)
    writer = threading.Thread(target=store.push, args=("policy", {"a": 2.0}, 2))
    writer.start()
    assert begun.wait(30)
    store.gc("policy", keep=1)
    assert not (directory / ".incoming-dead").exists()
    assert len(list(directory.glob(".incoming-*"))) == 1
    go_on.set()
    writer.join(30)
    assert store.get("policy").version == 2


def test_several_writers_lose_nothing_and_keep_their_tags_apart(tmp_path):
    store = store_lib.ParameterStore(tmp_path)
    start = threading.Barrier(4)

    def push(writer):
        start.wait(30)
        for i in range(8):
            store.push("policy", {"a": float(i)}, 100 * writer + i, tags=[f"writer{writer}"])

    threads = [threading.Thread(target=push, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    stored = store.list("policy")
    assert sorted(one.version for one in stored) == sorted(
        100 * writer + i for writer in range(4) for i in range(8)
    )
    assert {one.tags: one.version for one in stored if one.tags} == {
        (f"writer{writer}",): 100 * writer + 7 for writer in range(4)
    }

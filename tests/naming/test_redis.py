"""What is particular to names in a Redis server: its clock, and its end."""

import importlib
import tempfile
from concurrent import futures

import pytest

from actor_learner.naming import connect, redis, registry
from actor_learner.support import errors
from tests.naming import conftest


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(prefix="names-") as path:
        yield path


def test_refreshing_and_changing_give_a_whole_new_ttl(redis_url, make_url, open_registry):
    names = open_registry(make_url("redis"))
    names.add("a", "x", ttl=1000)
    key = redis.KEY_PREFIX + "a"
    for request in (lambda: names.touch("a"), lambda: names.update("a", "y")):
        names._client.pexpire(key, 500_000)
        request()
        assert 500_000 < names._client.pttl(key) <= 1_000_000
    names.add("b", "x")
    names.touch("b")
    names.update("b", "y")
    assert names._client.pttl(redis.KEY_PREFIX + "b") == -1
    assert names.find_subtree() == {"a": "y", "b": "y"}


def test_an_add_whose_answer_was_lost_is_not_taken_by_itself(make_url, open_registry, monkeypatch):
    names = open_registry(make_url("redis"))
    send = names._client.set

    def send_twice(*arguments, **options):
        send(*arguments, **options)
        return send(*arguments, **options)  # What the client does after a broken connection.

    monkeypatch.setattr(names._client, "set", send_twice)
    names.add("a", "x", ttl=60)
    assert names.get("a") == "x"
    with pytest.raises(registry.NameTakenError):
        names.add("a", "x", ttl=60)


def test_other_data_in_the_database_are_neither_seen_nor_cleared(make_url, open_registry):
    names = open_registry(make_url("redis"))
    names._client.set("theirs", "x")
    names.add("a", "x")
    assert names.find_subtree() == {"a": "x"}
    assert names.clear_subtree() == 1
    assert names._client.get("theirs") == "x"
    names._client.delete("theirs")


def test_a_unix_socket_will_do(directory):
    with conftest.redis_server(directory, conftest.free_port()) as path:
        with connect.connect(f"unix://{path}") as names:
            names.add("a", "x")
            assert names.find_subtree() == {"a": "x"}


def test_a_server_that_goes_away_is_an_error_and_one_that_comes_back_is_used_again(directory):
    port = conftest.free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with conftest.redis_server(directory, port):
        names = connect.connect(url, who="one")
        names.add("a", "x")
    with names:
        with pytest.raises(registry.RegistryUnavailableError, match="does not answer one"):
            names.get("a")
        with pytest.raises(registry.NameWaitTimeoutError, match="one has waited .* not answer"):
            names.wait("a", 0.05)
        with conftest.redis_server(directory, port):
            assert names.wait("a", 30) == "x"  # Redis has saved it.


def test_no_server_is_an_error_without_the_password():
    url = f"redis://user:secret@127.0.0.1:{conftest.free_port()}/0?password=hidden"
    with pytest.raises(registry.RegistryUnavailableError) as caught:
        connect.connect(url)
    assert "redis registry redis://127.0.0.1:" in str(caught.value)
    assert "secret" not in str(caught.value) and "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://host:port/0", "redis://host/0?socket_timeout=x"])
def test_a_malformed_url_is_a_configuration_error(url):
    with pytest.raises(errors.ConfigError, match="cannot be understood"):
        connect.connect(url)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    load = importlib.import_module

    def without_redis(name, *rest):
        if name == "redis":
            raise ModuleNotFoundError("No module named 'redis'", name="redis")
        return load(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_redis)
    with pytest.raises(errors.MissingExtraError, match=r"\.\[redis\]"):
        connect.connect("redis://127.0.0.1:1/0")


def test_a_server_that_is_not_up_yet_is_waited_for(directory):
    port = conftest.free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with pytest.raises(registry.RegistryUnavailableError) as caught:
        connect.connect(url, who="early")
    assert "within" not in str(caught.value)  # Nobody asked for patience.
    with pytest.raises(registry.RegistryUnavailableError, match="within 1 s: .* answer early"):
        connect.connect(url, who="early", patience_seconds=1.0)
    with futures.ThreadPoolExecutor() as threads:
        waiting = threads.submit(connect.connect, url, patience_seconds=60.0)
        with conftest.redis_server(directory, port):
            with waiting.result(60) as names:
                names.add("a", "x")
                assert names.get("a") == "x"

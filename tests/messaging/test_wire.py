"""The wire as its users meet it: over sockets and within one process alike."""

import contextlib
import queue
import socket as socket_lib
import threading
import time

import numpy as np
import pytest
import zmq

from actor_learner.messaging import client as client_lib
from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import local, messages, protocol
from actor_learner.messaging import server as server_lib
from actor_learner.support import errors

SECONDS = 20.0


class Wires:
    """Opens servers and clients of one kind, and closes them."""

    def __init__(self, kind, closing):
        self._kind = kind
        self._closing = closing
        self._keys = keys_lib.RunKeys.generate() if kind == "curve" else None

    def server(self, handlers, topics=()):
        if self._kind == "local":
            return local.LocalServer(handlers, topics=topics)
        server = server_lib.Server(handlers, topics=topics, keys=self._keys)
        self._closing.callback(server.close)
        return server

    def client(self, server, who="tester"):
        if self._kind == "local":
            client = server.client(who)
        else:
            client = client_lib.Client(server.address, who=who, keys=self._keys)
        self._closing.callback(client.close)
        return client


@pytest.fixture(params=["tcp", "curve", "local"])
def wires(request):
    with contextlib.ExitStack() as closing:
        yield Wires(request.param, closing)


class Heard:
    """Keeps what was published, and waits for it."""

    def __init__(self):
        self.bodies = []
        self._changed = threading.Condition()

    def __call__(self, message):
        with self._changed:
            self.bodies.append(dict(message.body))
            self._changed.notify_all()

    def wait_for(self, body):
        with self._changed:
            assert self._changed.wait_for(lambda: body in self.bodies, SECONDS), self.bodies


def test_a_request_is_answered_with_values_and_arrays(wires):
    def double(request):
        messages.require_arrays(request.message, {"x": messages.ArraySpec(np.float32, (None,))})
        request.answer({"who": request.who}, {"y": 2 * request.message.arrays["x"]})

    client = wires.client(wires.server({"double": double}), "actor-3")
    answer = client.request(
        "double", {}, {"x": np.array([1, 2], np.float32)}, timeout_seconds=SECONDS
    )
    assert answer.body == {"who": "actor-3"}
    np.testing.assert_array_equal(answer.arrays["y"], [2, 4])


def test_a_request_with_other_arrays_than_asked_for_is_refused(wires):
    def handler(request):
        messages.require_arrays(request.message, {"x": messages.ArraySpec(np.float32, (1,))})

    client = wires.client(wires.server({"double": handler}))
    with pytest.raises(protocol.RefusedError, match="float64"):
        client.request("double", arrays={"x": np.zeros(1)}, timeout_seconds=SECONDS)


def test_an_unknown_request_is_refused_with_the_known_ones(wires):
    client = wires.client(wires.server({"status": lambda request: request.answer()}))
    with pytest.raises(protocol.RefusedError, match="no request 'statsu' here, only .*status"):
        client.request("statsu", timeout_seconds=SECONDS)


def test_answers_may_come_from_another_thread_and_out_of_order(wires):
    kept = []

    def keep(request):
        kept.append(request)
        if len(kept) == 3:
            threading.Thread(
                target=lambda: [r.answer({"echo": r.body["n"]}) for r in reversed(kept)]
            ).start()

    client = wires.client(wires.server({"keep": keep}))
    asked = [client.submit("keep", {"n": n}, timeout_seconds=SECONDS) for n in range(3)]
    assert [future.result(SECONDS).body["echo"] for future in asked] == [0, 1, 2]


def test_a_second_answer_is_dropped(wires):
    def twice(request):
        request.answer({"n": 1})
        request.answer({"n": 2})
        request.refuse("no")

    client = wires.client(wires.server({"twice": twice}))
    for _ in range(3):
        assert client.request("twice", timeout_seconds=SECONDS).body == {"n": 1}


def test_an_answer_that_cannot_be_sent_is_refused_instead(wires):
    def odd(request):
        request.answer({"value": object()})

    server = wires.server({"odd": odd})
    if isinstance(server, local.LocalServer):
        pytest.skip("nothing is encoded within one process")
    with pytest.raises(protocol.RefusedError, match="cannot be sent"):
        wires.client(server).request("odd", timeout_seconds=SECONDS)


def test_a_follower_hears_what_was_published_before_it_came_and_after(wires):
    server = wires.server({}, topics=("news",))
    server.publish("news", {"step": 1})
    heard = Heard()
    wires.client(server, "actor-0").follow("news", heard)
    heard.wait_for({"step": 1})
    assert server.followers("news") == ["actor-0"]
    server.publish("news", {"step": 2})
    heard.wait_for({"step": 2})
    assert [body["step"] for body in heard.bodies] == sorted(b["step"] for b in heard.bodies)


def test_every_follower_hears_the_news(wires):
    server = wires.server({}, topics=("news",))
    everyone = [Heard() for _ in range(8)]
    for index, heard in enumerate(everyone):
        wires.client(server, f"actor-{index}").follow("news", heard)
    server.publish("news", {"step": 3})
    for heard in everyone:
        heard.wait_for({"step": 3})


def test_a_client_that_has_closed_is_no_follower(wires, monkeypatch):
    monkeypatch.setattr(protocol, "LEASE_SECONDS", 0.5)
    server = wires.server({}, topics=("news",))
    client, heard = wires.client(server, "actor-0"), Heard()
    server.publish("news", {"step": 1})
    client.follow("news", heard)
    heard.wait_for({"step": 1})
    client.close()
    deadline = time.monotonic() + SECONDS
    while server.followers("news") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.followers("news") == []


def test_handlers_and_topics_can_be_added_while_clients_are_connected(wires):
    server = wires.server({}, topics=("news",))
    client, heard = wires.client(server), Heard()
    with pytest.raises(protocol.RefusedError, match="there is no request 'late'"):
        client.request("late", timeout_seconds=SECONDS)
    server.handle("late", lambda request: request.answer({"n": 1}))
    assert client.request("late", timeout_seconds=SECONDS).body == {"n": 1}
    server.handle("late", lambda request: request.answer({"n": 2}))
    assert client.request("late", timeout_seconds=SECONDS).body == {"n": 2}
    server.add_topic("results")
    client.follow("results", heard)
    server.publish("results", {"return": 7})
    heard.wait_for({"return": 7})
    server.add_topic("results")  # Once more: its followers stay.
    assert server.followers("results") == ["tester"]
    with pytest.raises(ValueError, match="answered by the server itself"):
        server.handle(protocol.FOLLOW, lambda request: None)


def test_a_topic_that_is_added_late_is_followed_without_asking_again():
    heard = Heard()
    with server_lib.Server({}) as server:
        with client_lib.Client(server.address, who="early") as client:
            client.follow("news", heard)
            # Its wish to follow has been refused by then.
            server.handle("seen", lambda request: request.answer())
            client.request("seen", timeout_seconds=SECONDS)
            server.add_topic("news")
            server.publish("news", {"n": 1})
            heard.wait_for({"n": 1})


def test_a_handler_that_fails_refuses_and_the_server_goes_on():
    def fail(request):
        raise KeyError("oops")

    handlers = {"fail": fail, "well": lambda request: request.answer()}
    with server_lib.Server(handlers) as server, client_lib.Client(server.address, who="t") as asks:
        with pytest.raises(protocol.RefusedError, match="KeyError: 'oops'"):
            asks.request("fail", timeout_seconds=SECONDS)
        asks.request("well", timeout_seconds=SECONDS)


def test_a_request_that_nobody_answers_says_who_waited_for_whom():
    with server_lib.Server({"never": lambda request: None}) as server:
        with client_lib.Client(server.address, who="actor-1") as asks:
            began = time.monotonic()
            with pytest.raises(
                protocol.NoAnswerError, match=f"actor-1 asked {server.address} for 'never'"
            ):
                asks.request("never", timeout_seconds=0.3)
            assert 0.3 <= time.monotonic() - began < 5


def test_a_request_made_while_the_server_is_away_is_never_obeyed_after_its_deadline():
    obeyed = []

    def handler(request):
        obeyed.append(request.body["n"])
        request.answer()

    with server_lib.Server({"do": handler}) as first:
        port = first.port
        asks = client_lib.Client(first.address, who="t")
        asks.request("do", {"n": 1}, timeout_seconds=SECONDS)
    with contextlib.closing(asks):
        with pytest.raises(protocol.NoAnswerError):
            asks.request("do", {"n": 2}, timeout_seconds=0.5)
        with server_lib.Server({"do": handler}, port=port):
            asks.request("do", {"n": 3}, timeout_seconds=SECONDS)
    assert obeyed == [1, 3]


def test_a_request_waits_for_a_server_that_comes_within_its_deadline():
    with server_lib.Server({}) as gone:
        port, address = gone.port, gone.address
    with client_lib.Client(address, who="t") as asks:
        answer = asks.submit("do", timeout_seconds=SECONDS)
        with server_lib.Server({"do": lambda request: request.answer({"n": 1})}, port=port):
            assert answer.result(SECONDS).body == {"n": 1}


def test_a_lost_answer_is_asked_for_again_with_the_same_id():
    seen = []

    def second_time(request):
        seen.append(request.message.id)
        if len(seen) > 1:
            request.answer({"n": len(seen)})

    with server_lib.Server({"do": second_time}) as server:
        with client_lib.Client(server.address, who="t", resend_seconds=0.2) as asks:
            assert asks.request("do", timeout_seconds=SECONDS).body == {"n": 2}
    assert seen == [seen[0]] * 2


def test_followers_come_back_to_a_server_that_was_restarted():
    heard = Heard()
    with server_lib.Server({}, topics=("news",)) as first:
        follower = client_lib.Client(first.address, who="t")
        first.publish("news", {"epoch": 1})
        follower.follow("news", heard)
        heard.wait_for({"epoch": 1})
        port = first.port
    with contextlib.closing(follower):
        with server_lib.Server({}, topics=("news",), port=port) as second:
            second.publish("news", {"epoch": 2})
            heard.wait_for({"epoch": 2})


def test_an_answer_that_is_given_just_before_the_server_closes_arrives():
    for _ in range(40):
        taken = queue.Queue()
        with server_lib.Server({"exit": taken.put}) as server:
            client = client_lib.Client(server.address, who="tester")
            answer = client.submit("exit", timeout_seconds=SECONDS)
            taken.get(timeout=SECONDS).answer({"state": "ending"})
        assert answer.result(SECONDS).body == {"state": "ending"}
        client.close()


def test_thousands_of_answers_at_once_all_arrive():
    """More than a socket has room for, given while the client is busy asking."""
    number, taken = 3_000, queue.Queue()
    with server_lib.Server({"ask": taken.put}) as server:
        with client_lib.Client(server.address, who="tester") as client:
            answers = [client.submit("ask", timeout_seconds=SECONDS) for _ in range(number)]
            requests = [taken.get(timeout=SECONDS) for _ in range(number)]
            for request in requests:
                request.answer({"id": request.message.id})
            assert [a.result(SECONDS).body["id"] for a in answers] == list(range(1, number + 1))


def test_a_large_answer_that_many_ask_for_is_made_once_and_never_out_of_date():
    answers = {"old": np.arange(100_000), "new": np.arange(100_000) + 7}
    for array in answers.values():
        array.flags.writeable = False
    copied = []

    def answer(request):
        request.answer({}, {"policy": answers[request.body["which"]]})

    class CountingFrame(zmq.Frame):
        def __init__(self, *arguments, **options):
            copied.append(1)
            super().__init__(*arguments, **options)

    with server_lib.Server({"policy": answer}) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_lib.zmq, "Frame", CountingFrame)
        with contextlib.ExitStack() as closing:
            clients = [
                closing.enter_context(client_lib.Client(server.address, who=f"actor-{i}"))
                for i in range(3)
            ]
            for which in ("old", "new"):
                for client in clients:
                    got = client.request("policy", {"which": which}, timeout_seconds=SECONDS)
                    np.testing.assert_array_equal(got.arrays["policy"], answers[which])
    assert len(copied) == 2


def test_a_large_answer_that_can_be_changed_is_sent_as_it_is_each_time():
    counts = np.zeros(100_000)

    def answer(request):
        counts[:] += 1
        request.answer({}, {"counts": counts})

    with (
        server_lib.Server({"count": answer}) as server,
        client_lib.Client(server.address, who="tester") as client,
    ):
        for wanted in (1, 2, 3):
            got = client.request("count", timeout_seconds=SECONDS).arrays["counts"]
            np.testing.assert_array_equal(got, np.full(100_000, wanted))


def test_a_follower_that_is_told_something_renews_less_often(monkeypatch):
    monkeypatch.setattr(protocol, "RENEW_SECONDS", 0.3)
    monkeypatch.setattr(protocol, "RENEW_TOLD_SECONDS", 60.0)
    renewed = []
    follow = server_lib.Server._follow

    def count(server, request):
        renewed.append(time.monotonic())
        follow(server, request)

    monkeypatch.setattr(server_lib.Server, "_follow", count)
    heard = Heard()
    with (
        server_lib.Server({}, topics=("news",)) as server,
        client_lib.Client(server.address, who="actor-0") as client,
    ):
        client.follow("news", heard)
        began = time.monotonic()
        for step in range(40):
            server.publish("news", {"step": step})
            time.sleep(0.05)
        heard.wait_for({"step": 39})
        told = len(renewed)
        # Two at most before the first news came: 2 s of renewing every 0.3 s would be six. On a
        # busy machine it takes longer, and there are pauses without news.
        assert 1 <= told <= max(3, (time.monotonic() - began) / 0.3 / 2)
        deadline = time.monotonic() + SECONDS
        while len(renewed) < told + 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(renewed) >= told + 3, "it does not renew when it is told nothing"


def test_a_server_rests_between_rounds_only_where_many_follow(monkeypatch):
    monkeypatch.setattr(server_lib, "_FORGET_SECONDS", 0.0)
    monkeypatch.setattr(server_lib, "_REST_PER_FOLLOWER", 0.01)
    heard = Heard()
    with server_lib.Server({}, topics=("news",)) as server, contextlib.ExitStack() as closing:
        server.publish("news", {"step": 0})
        for index in range(2):
            assert server._loop.rest_seconds == pytest.approx(0.01 * index)
            client = client_lib.Client(server.address, who=f"actor-{index}")
            closing.enter_context(client)
            client.follow("news", heard)
            deadline = time.monotonic() + SECONDS
            while server._loop.rest_seconds < 0.01 * (index + 1):
                assert time.monotonic() < deadline, server._loop.rest_seconds
                time.sleep(0.01)
        assert sorted(server.followers("news")) == ["actor-0", "actor-1"]


def test_closing_a_client_fails_what_is_under_way():
    with server_lib.Server({"never": lambda request: None}) as server:
        asks = client_lib.Client(server.address, who="t")
        answer = asks.submit("never", timeout_seconds=SECONDS)
        asks.close()
        with pytest.raises(protocol.NoAnswerError, match="was closed"):
            answer.result(SECONDS)
        with pytest.raises(protocol.NoAnswerError, match="is closed"):
            asks.submit("never", timeout_seconds=SECONDS)


def test_a_port_that_is_taken_is_named():
    with server_lib.Server({}) as server:
        with pytest.raises(errors.JobError, match=f"127.0.0.1:{server.port}"):
            server_lib.Server({}, port=server.port)


def test_a_server_beyond_loopback_needs_the_keys_of_the_run():
    with pytest.raises(errors.ConfigError, match="ACTOR_LEARNER_KEYS"):
        server_lib.Server({}, host="0.0.0.0")


@pytest.mark.parametrize("theirs", [None, keys_lib.RunKeys.generate()])
def test_a_client_without_the_keys_of_the_run_gets_no_answer(theirs):
    obeyed = []
    ours = keys_lib.RunKeys.generate()
    with server_lib.Server({"do": obeyed.append}, keys=ours) as server:
        with client_lib.Client(server.address, who="t", keys=theirs) as asks:
            with pytest.raises(protocol.NoAnswerError):
                asks.request("do", timeout_seconds=0.7)
    assert obeyed == []


def test_a_client_with_the_servers_public_key_alone_is_not_admitted():
    obeyed = []
    ours, own = keys_lib.RunKeys.generate(), keys_lib.RunKeys.generate()
    theirs = keys_lib.RunKeys(
        ours.server_public, own.server_secret, own.client_public, own.client_secret
    )
    with server_lib.Server({"do": obeyed.append}, keys=ours) as server:
        with client_lib.Client(server.address, who="t", keys=theirs) as asks:
            with pytest.raises(protocol.NoAnswerError):
                asks.request("do", timeout_seconds=0.7)
    assert obeyed == []


def test_with_keys_nothing_can_be_read_on_the_way():
    keys = keys_lib.RunKeys.generate()
    secret = b"nobody-may-read-this"
    listener = socket_lib.create_server(("127.0.0.1", 0))
    with server_lib.Server({"do": lambda request: request.answer()}, keys=keys) as server:
        seen = bytearray()

        def pass_on(source, target):
            with contextlib.suppress(OSError):
                while data := source.recv(65_536):
                    seen.extend(data)
                    target.sendall(data)

        def relay():
            near, _ = listener.accept()
            far = socket_lib.create_connection(("127.0.0.1", server.port))
            threading.Thread(target=pass_on, args=(far, near), daemon=True).start()
            pass_on(near, far)
            near.close()
            far.close()

        threading.Thread(target=relay, daemon=True).start()
        port = listener.getsockname()[1]
        with client_lib.Client(f"tcp://127.0.0.1:{port}", who="t", keys=keys) as asks:
            asks.request("do", {"secret": secret.decode()}, timeout_seconds=SECONDS)
    listener.close()
    assert len(seen) > 200 and secret not in bytes(seen)


def test_keys_are_saved_for_their_owner_only_and_read_back(tmp_path, monkeypatch):
    keys = keys_lib.RunKeys.generate()
    path = tmp_path / "keys"
    path.write_text("old")
    path.chmod(0o644)
    keys.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv(keys_lib.VARIABLE, str(path))
    assert keys_lib.from_environment() == keys
    monkeypatch.setenv(keys_lib.VARIABLE, keys.to_json())
    assert keys_lib.from_environment() == keys
    path.chmod(0o644)
    with pytest.raises(errors.ConfigError, match="chmod 600"):
        keys_lib.RunKeys.load(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"server_public": "x"}', "nonsense"])
def test_damaged_keys_are_refused_without_repeating_them(text):
    with pytest.raises(errors.ConfigError, match="cannot be read") as caught:
        keys_lib.RunKeys.from_json(text)
    assert not text or text not in str(caught.value)


def test_keys_are_not_shown_when_printed():
    keys = keys_lib.RunKeys.generate()
    assert keys.server_secret not in repr(keys) + str(keys)

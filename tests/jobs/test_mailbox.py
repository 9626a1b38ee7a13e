"""Messages between jobs: all arrive, in order, once."""

import threading

import pytest
import reverb

from actor_learner.jobs import mailbox
from actor_learner.replay.server import server
from actor_learner.support import errors, reverb_calls
from tests.naming import conftest as servers


@pytest.fixture
def replay():
    with server.ReplayServer([mailbox.mailbox_table("letters")]) as made:
        yield made


def receive(receiver, count):
    """Waits for `count` messages."""
    pause = threading.Event()
    messages = []
    for _ in range(600):
        messages += receiver.receive()
        if len(messages) >= count:
            return messages
        pause.wait(0.05)
    raise AssertionError(f"{len(messages)} of {count} messages arrived")


def test_messages_of_one_sender_arrive_in_order_and_once(replay):
    sender = mailbox.Sender(replay.client(), "letters", max_in_flight=7)
    receiver = mailbox.Receiver(replay.client(), "letters")
    for number in range(30):
        sender.send({"number": number, "text": "x" * number})
    sender.flush()
    messages = receive(receiver, 30)
    assert [message["number"] for message in messages] == list(range(30))
    assert messages[9]["text"] == "x" * 9
    sender.send({"number": 30})
    assert receive(receiver, 1) == [{"number": 30}]
    receiver.close()


def test_messages_of_several_senders_all_arrive(replay):
    receiver = mailbox.Receiver(replay.client(), "letters")
    senders = [mailbox.Sender(replay.client(), "letters") for _ in range(3)]
    for number in range(5):
        for who, sender in enumerate(senders):
            sender.send({"who": who, "number": number})
    for sender in senders:
        sender.flush()
    messages = receive(receiver, 15)
    for who in range(3):
        assert [m["number"] for m in messages if m["who"] == who] == list(range(5))
    receiver.close()


def test_a_message_that_does_not_fit_is_refused(replay):
    sender = mailbox.Sender(replay.client(), "letters")
    with pytest.raises(ValueError, match="does not fit"):
        sender.send({"text": "x" * 5_000})


@pytest.fixture
def absent():
    """A port where nobody listens, and a client of it."""
    port = servers.free_port()
    return port, reverb.Client(f"localhost:{port}")


def served(port):
    return server.ReplayServer([mailbox.mailbox_table("letters")], port)


def test_no_more_messages_wait_for_an_absent_server_than_may(absent):
    port, client = absent
    sender = mailbox.Sender(client, "letters", max_in_flight=3, timeout_seconds=0.2)
    for number in range(3):
        sender.send({"number": number})
    for number in range(3, 6):
        with pytest.raises(errors.ReplayTimeoutError, match="'letters' within 0.2 s"):
            sender.send({"number": number})
    with served(port) as replay:
        sender.flush(120.0)
        sender.send({"number": 6})
        receiver = mailbox.Receiver(replay.client(), "letters")
        # What is sent again after an outage may come in another order.
        assert sorted(message["number"] for message in receive(receiver, 4)) == [0, 1, 2, 6]
        receiver.close()


def test_whoever_has_no_time_does_not_wait_for_an_absent_server(absent):
    _, client = absent
    sender = mailbox.Sender(client, "letters", max_in_flight=1, timeout_seconds=100_000.0)
    sender.send({"number": 0})
    with reverb_calls.giving_up_when(lambda: True):
        with pytest.raises(errors.ReplayTimeoutError):
            sender.send({"number": 1})
        with pytest.raises(errors.ReplayTimeoutError):
            sender.flush()


def test_messages_that_are_discarded_never_arrive(absent):
    port, client = absent
    sender = mailbox.Sender(client, "letters", timeout_seconds=120.0)
    sender.send({"number": 0})
    sender.discard()
    with served(port) as replay:
        sender.send({"number": 1})
        sender.flush()
        receiver = mailbox.Receiver(replay.client(), "letters")
        assert receive(receiver, 1) == [{"number": 1}]
        receiver.close()


def test_messages_that_a_server_refuses_do_not_stand_in_the_way_of_others(replay):
    sender = mailbox.Sender(replay.client(), "no such table", timeout_seconds=60.0)
    for _ in range(2):
        sender.send({"number": 0})
        with pytest.raises(errors.ReplayError, match="refused messages for 'no such table'"):
            sender.flush()

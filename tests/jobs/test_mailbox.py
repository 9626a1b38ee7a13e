"""Messages between jobs: all arrive, in order, once."""

import threading

import pytest

from actor_learner.jobs import mailbox
from actor_learner.replay import server


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

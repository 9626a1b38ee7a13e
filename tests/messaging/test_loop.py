"""The thread that owns a socket."""

import threading
import time

import pytest
import zmq

from actor_learner.messaging import loop

SECONDS = 20.0


@pytest.fixture
def sockets():
    context = zmq.Context()
    ours, theirs = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    ours.bind("inproc://loop")
    theirs.connect("inproc://loop")
    yield ours, theirs
    context.destroy(linger=0)


def take_messages(sockets, rest_seconds):
    """Has twenty messages taken that come every 10 ms; returns the rounds and seconds it took."""
    ours, theirs = sockets
    frames, rounds, complete = [], [], threading.Event()

    def take(message):
        frames.append(message)
        if len(frames) == 20:
            complete.set()

    made = loop.SocketLoop(
        "tested", ours, on_frames=take, on_tick=lambda: rounds.append(1), tick_seconds=5.0
    )
    made.rest_seconds = rest_seconds
    began = time.monotonic()
    for index in range(20):
        theirs.send(b"%d" % index)
        time.sleep(0.01)
    assert complete.wait(SECONDS)
    seconds = time.monotonic() - began
    made.close()
    assert frames == [[b"%d" % index] for index in range(20)]
    return len(rounds), seconds


def test_a_thread_that_rests_takes_several_messages_at_once(sockets):
    rounds, seconds = take_messages(sockets, rest_seconds=0.5)
    assert rounds <= 4 + seconds / 0.5  # On a busy machine the messages come more slowly.


def test_what_the_thread_hands_over_to_itself_is_done_without_waiting_for_a_message(sockets):
    ours, theirs = sockets
    done = threading.Event()
    made = loop.SocketLoop(
        "tested",
        ours,
        on_frames=lambda frames: made.call(lambda: made.call(done.set)),
        on_tick=lambda: None,
        tick_seconds=600.0,
    )
    theirs.send(b"go")
    assert done.wait(SECONDS)
    made.close()

"""Whatever arrives at a socket of ours: no crash, no hang, no growth."""

import gc
import random
import socket as socket_lib

import msgpack
import numpy as np
import psutil
import pytest
import zmq

from actor_learner.messaging import client as client_lib
from actor_learner.messaging import messages
from actor_learner.messaging import server as server_lib

FRAMES = 100_000
SECONDS = 60.0


@pytest.fixture(autouse=True)
def nothing_unforeseen(caplog):
    """Frames that are not a message are dropped in words; any other error is a bug of ours."""
    yield
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def corpus():
    """Messages that are in order, to be spoiled."""
    arrays = {"a": np.arange(6, dtype=np.float32), "b": np.zeros((2, 2), bool)}
    yield [bytes(f) for f in messages.encode(messages.Message("well", {"n": 1}, arrays, id=1009))]
    yield [
        bytes(f) for f in messages.encode(messages.Message("follow", {"topic": "news"}, id=1003))
    ]
    yield [bytes(f) for f in messages.encode(messages.Message("follow", {"topic": [1]}, id=1003))]
    yield [
        bytes(f) for f in messages.encode(messages.Message("x" * 300, {"d": {"e": []}}, id=1002))
    ]
    yield [msgpack.packb([1, "well", 1001, None, {}, [["a", "uint8", [2**40]]]]), b""]
    yield [msgpack.packb([1, "well", 1001, None, {}, [["a", "float32", [0, 2**62]]]]), b""]


def spoil(frames, rng):
    """Changes, cuts, doubles or drops bytes and frames."""
    frames = list(frames)
    for _ in range(rng.randrange(4)):
        what = rng.randrange(6)
        at = rng.randrange(len(frames)) if frames else 0
        if what == 0 and frames and frames[at]:
            spoiled = bytearray(frames[at])
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
            frames[at] = bytes(spoiled)
        elif what == 1 and frames:
            frames[at] = frames[at][: rng.randrange(len(frames[at]) + 1)]
        elif what == 2 and len(frames) > 1:
            del frames[at]
        elif what == 3 and frames:
            frames.insert(at, frames[at])
        elif what == 4 and frames:
            frames[at] = rng.randbytes(rng.randrange(64))
        else:
            frames.append(rng.randbytes(rng.randrange(16)))
    return frames


def resident_megabytes():
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def test_a_server_outlives_a_hundred_thousand_spoiled_messages():
    rng = random.Random(1)
    originals = list(corpus())
    taken = []
    handlers = {"well": lambda request: (taken.append(1), request.answer())}
    with server_lib.Server(handlers, topics=("news",)) as server, zmq.Context() as context:
        with context.socket(zmq.DEALER) as raw:
            raw.linger, raw.sndtimeo = 0, int(1000 * SECONDS)
            raw.connect(server.address)
            sizes = []
            for part in range(10):
                for _ in range(FRAMES // 10):
                    raw.send_multipart(spoil(rng.choice(originals), rng) or [b""])
                    while raw.poll(0):
                        raw.recv_multipart()
                with client_lib.Client(server.address, who="t") as asks:
                    asks.request("well", timeout_seconds=SECONDS)
                if part in (1, 9):
                    sizes.append(resident_megabytes())
            followers = len(server.followers("news"))
            refused = server.refused_frames
    assert refused > FRAMES // 10 and len(taken) > 10
    assert followers <= 1, "one client is one follower, however often it asks"
    assert sizes[1] - sizes[0] < 20, sizes


def test_a_server_outlives_bytes_that_are_not_zeromq():
    rng = random.Random(2)
    handlers = {"well": lambda request: request.answer()}
    with server_lib.Server(handlers) as server:
        for _ in range(300):
            with socket_lib.create_connection(("127.0.0.1", server.port), 5) as raw:
                if rng.random() < 0.5:
                    raw.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
                raw.sendall(rng.randbytes(rng.randrange(200)))
        with client_lib.Client(server.address, who="t") as asks:
            asks.request("well", timeout_seconds=SECONDS)


def test_a_client_outlives_a_hundred_thousand_spoiled_answers():
    rng = random.Random(3)
    originals = [
        *corpus(),
        [bytes(f) for f in messages.encode(messages.Message("news", {"step": 1}))],
    ]
    heard = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as raw:
        raw.linger, raw.sndhwm, raw.router_mandatory = 0, 0, True
        port = raw.bind_to_random_port("tcp://127.0.0.1")
        with client_lib.Client(f"tcp://127.0.0.1:{port}", who="t") as asks:
            asks.follow("news", lambda message: heard.append(message.body))
            waiting = asks.submit("well", timeout_seconds=SECONDS)
            identity, *frames = raw.recv_multipart()
            while messages.decode(frames).kind != "well":
                identity, *frames = raw.recv_multipart()
            request = messages.decode(frames)
            for _ in range(FRAMES):
                spoiled = spoil(rng.choice(originals), rng)
                raw.send_multipart([identity, *(spoiled or [b""])])
            answer = messages.Message("well", {"n": 5}, id=request.id)
            raw.send_multipart([identity, *messages.encode(answer)])
            assert waiting.result(SECONDS).body == {"n": 5}
    assert heard

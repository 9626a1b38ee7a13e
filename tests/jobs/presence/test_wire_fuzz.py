"""Whatever arrives at the wire of a live job: no crash, no hang, no growth."""

import os
import pathlib
import random
import subprocess
import sys

import psutil
import pytest
import zmq

from actor_learner.jobs import commands, controller, job, states
from actor_learner.messaging import messages
from actor_learner.naming import files
from tests.launch import processes
from tests.messaging import test_fuzz

ROOT = pathlib.Path(__file__).resolve().parents[3]
FRAMES = 20_000
DEADLINE = 120.0


def corpus():
    """Requests that are in order, to be spoiled; none of them asks the job to end."""
    for kind, body in (
        (commands.STATUS, {}),
        (commands.PING, {}),
        (commands.UNUSED_BINDINGS, {}),
        (commands.COMMAND, {"command": "pause", "seconds": 60.0}),
        (commands.COMMAND, {"command": "resume", "seconds": 1}),
        (commands.COMMAND, {"command": "start", "seconds": -1}),
        (commands.COMMAND, {"command": ["pause"], "seconds": float("nan")}),
        ("follow", {"topic": "news"}),
        ("no such kind", {"a": {"b": [None, 1.5, "c"]}}),
    ):
        yield [bytes(frame) for frame in messages.encode(messages.Message(kind, body, id=1009))]


@pytest.fixture
def live(tmp_path):
    """A job in a process of its own; yields it, the registry and a controller."""
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.launch.toy_job", "actor", f"--run={tmp_path}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=said,
        )
    with files.FileRegistry(tmp_path / "registry") as registry:
        with controller.Controller(registry, tmp_path.name) as commander:
            processes.lines_of(tmp_path / "actor-0.pids", 1)
            commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
            yield process, registry, commander
    process.kill()
    process.wait(DEADLINE)


def test_a_live_job_outlives_twenty_thousand_spoiled_requests(live, tmp_path):
    process, registry, commander = live
    asking = job.Job("learner", 0, tmp_path.name, registry)
    address = asking.wire_address_of("actor")
    held = psutil.Process(process.pid)
    rng, originals, sizes = random.Random(7), list(corpus()), []
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger, raw.sndtimeo = 0, int(1000 * DEADLINE)
        raw.connect(address)
        for part in range(10):
            for _ in range(FRAMES // 10):
                raw.send_multipart(test_fuzz.spoil(rng.choice(originals), rng) or [b""])
                while raw.poll(0):
                    raw.recv_multipart()
            assert set(commander.send("ping", timeout=DEADLINE)) == {"actor-0"}
            if part in (1, 9):
                sizes.append((held.memory_info().rss, held.num_fds(), held.num_threads()))
    (early, *_), (late, fds, threads) = sizes
    assert late - early < 20 * 2**20, sizes
    assert fds < sizes[0][1] + 5 and threads < sizes[0][2] + 3, sizes
    assert process.poll() is None
    state = commander.worker("actor").state
    assert state in (states.RUNNING, states.PAUSED)
    commander.send("exit", timeout=DEADLINE)
    assert process.wait(DEADLINE) == states.TOLD_TO_EXIT
    said = (tmp_path / "said").read_text()
    assert "Traceback" not in said, said[-3_000:]
    assert len(said) < 2**20, "thousands of bad messages do not fill the log"


def test_a_live_job_outlives_bytes_that_are_not_zeromq(live, tmp_path):
    process, registry, commander = live
    address = job.Job("learner", 0, tmp_path.name, registry).wire_address_of("actor")
    port, rng = int(address.rpartition(":")[2]), random.Random(8)
    before = psutil.Process(process.pid).num_fds()
    for _ in range(200):
        with test_fuzz.socket_lib.create_connection(("127.0.0.1", port), 5) as raw:
            raw.sendall(rng.randbytes(rng.randrange(200)))
    assert commander.send("ping", timeout=DEADLINE)["actor-0"].state == states.RUNNING
    processes.wait_until(
        lambda: psutil.Process(process.pid).num_fds() < before + 5, "connections are closed"
    )

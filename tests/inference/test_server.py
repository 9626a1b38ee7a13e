"""Serving in batches: what has arrived, once, to those who asked; and nothing else."""

import random
import signal
import subprocess
import sys

import numpy as np
import pytest
import zmq

from actor_learner.inference import remote, server
from actor_learner.messaging import client as client_lib
from actor_learner.messaging import messages
from actor_learner.messaging import protocol as wire_protocol
from actor_learner.support import errors
from tests.inference import serving
from tests.messaging import test_fuzz

SECONDS = 60.0
START_SECONDS = 240.0  # For a process that imports TensorFlow on a busy machine.


def number(*rows):
    return {"number": np.array(rows, np.int64)}


def test_rows_of_several_requests_are_one_batch_and_each_gets_its_own():
    service = serving.Adding()
    with serving.serving(service, start=False) as served:
        clients = [serving.client_of(served.address, held=True) for _ in range(3)]
        tickets = [
            client.request(0, number(*range(place, 2 * place + 1)))
            for place, client in enumerate(clients)
        ]
        serving.wait_for(lambda: served.waiting == 3)
        assert served.serve(0.0) == 1
        answers = [client.result(ticket, SECONDS) for client, ticket in zip(clients, tickets)]
        for client in clients:
            client.close()
    assert [answer.arrays["sum"].tolist() for answer in answers] == [[0], [1, 2], [2, 3, 4]]
    assert all(answer.body["version"] == 7 for answer in answers)
    assert len(service.batches) == 1 and len(service.batches[0]) == 6
    assert served.histogram() == {"1": 0, "2-3": 0, "4-7": 1}
    assert (served.requests, served.batches) == (3, 1)


def test_a_batch_has_no_more_rows_than_it_may():
    service = serving.Adding()
    with serving.serving(service, max_batch=4, start=False) as served:
        client = serving.client_of(served.address, 3, held=True)
        tickets = [client.request(group, number(group, group)) for group in range(3)]
        serving.wait_for(lambda: served.waiting == 3)
        assert served.serve(0.0) == 2
        for ticket in tickets:
            client.result(ticket, SECONDS)
        with pytest.raises(errors.InferenceError, match=r"a request of 5 rows.*1 to 4"):
            client.result(client.request(0, number(1, 2, 3, 4, 5)), SECONDS)
        client.close()
    assert [len(batch) for batch in service.batches] == [4, 2]


def test_a_request_waits_for_others_until_it_is_old_enough():
    service = serving.Adding()
    with serving.serving(service, max_batch=2, max_delay_seconds=3600.0) as served:
        client = serving.client_of(served.address, 2, held=True)
        ticket = client.request(0, number(1))
        with pytest.raises(errors.InferenceTimeoutError):
            client.result(ticket, 0.3)
        other = client.request(1, number(2))  # Now the batch is full.
        client.result(ticket, SECONDS)
        client.result(other, SECONDS)
        client.close()
    assert len(service.batches) == 1


@pytest.mark.parametrize("held", [False, True])
def test_totals_are_right_whatever_is_lost_or_comes_twice(held):
    service = serving.Adding()
    groups, rounds = 4, 25
    with serving.serving(service, max_delay_seconds=0.001) as served:
        losing = serving.Losing(served.address, seed=held)
        client = serving.client_of(
            served.address, groups, held=held, losing=losing, resend_seconds=0.02
        )
        expected = np.zeros((groups, 2), np.int64)
        states = [serving.Adding().initial_state(2) for _ in range(groups)]
        for step in range(rounds):
            tickets = []
            for group in range(groups):
                sent = number(step + group, step * group)
                expected[group] += sent["number"]
                tickets.append(client.request(group, {**sent, **({} if held else states[group])}))
            order = list(range(groups))
            random.Random(step).shuffle(order)
            for group in order:
                answer = client.result(tickets[group], SECONDS)
                assert answer.arrays["sum"].tolist() == expected[group].tolist()
                if not held:
                    states[group] = {"total": answer.arrays["total"]}
        client.close()
    assert losing.lost > 10 and client.resent >= losing.lost
    # Each was computed once, however often it was asked for.
    assert sum(map(len, service.batches)) == groups * rounds * 2


def test_a_server_that_has_lost_the_state_it_held_is_told_to_begin(caplog):
    with serving.serving(serving.Adding()) as first, serving.serving(serving.Adding()) as second:
        wires = [client_lib.Client(each.address, who="t") for each in (first, second)]

        class Moving:
            now = 0

            def client_for(self, group, silent):
                return wires[self.now]

            def check(self):
                pass

            def close(self):
                for wire in wires:
                    wire.close()

        servers = Moving()
        client = remote.ServiceClient(
            servers, 1, serving.Adding.answer_spec, who="tester", held=True
        )
        assert client.result(client.request(0, number(5)), SECONDS).arrays["sum"] == [5]
        assert client.result(client.request(0, number(5)), SECONDS).arrays["sum"] == [10]
        servers.now = 1
        assert client.result(client.request(0, number(5)), SECONDS).arrays["sum"] == [5]
        client.begin(0)
        assert client.result(client.request(0, number(2)), SECONDS).arrays["sum"] == [2]
        client.close()
    assert "The state of group 0 of tester is lost" in caplog.text


def test_what_the_service_raises_reaches_those_who_asked_and_ends_nothing():
    service = serving.Adding()
    with serving.serving(service) as served:
        client = serving.client_of(served.address, held=True)
        service.error = ZeroDivisionError("of the service")
        with pytest.raises(errors.InferenceError, match="ZeroDivisionError: of the service"):
            client.result(client.request(0, number(1)), SECONDS)
        answer = client.result(client.request(0, number(1)), SECONDS)
        client.close()
    assert answer.arrays["sum"].tolist() == [1]


@pytest.mark.parametrize(
    ("body", "arrays", "why"),
    [
        ({"client": 1}, number(1), "'client'"),
        ({"group": -1}, number(1), "'group'"),
        ({"ticket": True}, number(1), "'ticket'"),
        ({"held": 1}, number(1), "'held'"),
        ({"client": "x" * 65}, number(1), "64 characters"),
        ({}, {}, "has the arrays"),
        ({}, {"number": np.zeros(1, np.float32)}, "float32"),
        ({}, {"number": np.zeros((1, 1), np.int64)}, "int64"),
        ({}, {"number": np.zeros(0, np.int64)}, "0 rows"),
        ({"held": False}, {**number(1), "total": np.zeros(2, np.int64)}, "rows in one request"),
    ],
)
def test_requests_that_are_not_what_the_service_asks_for_are_refused(body, arrays, why):
    usual = {"client": "c", "group": 0, "ticket": 0, "held": True, "begin": True}
    with serving.serving(serving.Adding()) as served:
        with client_lib.Client(served.address, who="t") as wire:
            with pytest.raises(wire_protocol.RefusedError, match=why):
                wire.request(server.INFER, {**usual, **body}, arrays, timeout_seconds=SECONDS)
            wire.request(server.INFER, usual, number(1), timeout_seconds=SECONDS)
            with pytest.raises(wire_protocol.RefusedError, match="older than the latest"):
                later = {**usual, "ticket": 5, "begin": False}
                wire.request(server.INFER, later, number(1), timeout_seconds=SECONDS)
                wire.request(server.INFER, usual, number(1), timeout_seconds=SECONDS)


def test_a_server_outlives_thousands_of_spoiled_requests(caplog):
    rng = random.Random(4)
    usual = {"client": "c", "group": 0, "ticket": 1 << 40, "held": False, "begin": True}
    arrays = {**number(1, 2), "total": np.zeros(2, np.int64)}
    frames = [
        bytes(frame) for frame in messages.encode(messages.Message(server.INFER, usual, arrays, 9))
    ]
    service = serving.Adding()
    with serving.serving(service) as served, zmq.Context() as context:
        with context.socket(zmq.DEALER) as raw:
            raw.linger, raw.sndtimeo = 0, int(1000 * SECONDS)
            raw.connect(served.address)
            for _ in range(20_000):
                raw.send_multipart(test_fuzz.spoil(frames, rng) or [b""])
                while raw.poll(0):
                    raw.recv_multipart()
            client = serving.client_of(served.address, held=True)
            assert client.result(client.request(0, number(3)), SECONDS).arrays["sum"] == [3]
            client.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_wait_that_takes_too_long_says_who_waits_for_whom():
    with serving.serving(serving.Adding(), start=False) as served:
        client = serving.client_of(served.address, held=True, who="actor-3")
        ticket = client.request(0, number(1))
        with pytest.raises(
            errors.InferenceTimeoutError, match=r"group 0 of actor-3 has waited .* from tcp://"
        ):
            client.result(ticket, 0.05)
        with pytest.raises(errors.InferenceError, match="under way"):
            client.request(0, number(1))
        with pytest.raises(errors.InferenceError, match="under way"):
            client.begin(0)
        client.close()


class Restarted:
    """A server in a process of its own, killed in the middle of requests and started again."""

    def __init__(self):
        self.process, self.client = None, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.inference.serving_process"],
            stdout=subprocess.PIPE,
            text=True,
        )
        address = self.process.stdout.readline().strip()
        if self.client is not None:
            self.client.close()
        self.client = client_lib.Client(address, who="t")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)
        self.process.stdout.close()

    def client_for(self, group, silent):
        if self.process.poll() is not None:
            self.start()
        return self.client

    def check(self):
        pass

    def close(self):
        self.kill()
        self.client.close()


@pytest.mark.timeout(900)
def test_no_row_is_lost_or_doubled_when_the_server_is_killed_in_the_middle_of_requests():
    servers = Restarted()
    spec = {**serving.Adding.answer_spec, **serving.Adding.state_spec}
    client = remote.ServiceClient(servers, 3, spec, who="tester", resend_seconds=0.2)
    states = [np.zeros(2, np.int64) for _ in range(3)]
    expected = np.zeros((3, 2), np.int64)
    for step in range(30):
        tickets = []
        for group in range(3):
            sent = number(step + group, 1)
            expected[group] += sent["number"]
            tickets.append(client.request(group, {**sent, "total": states[group]}))
        if step in (7, 19):
            servers.kill()  # What it was asked just now is answered, on its way, or unread.
        for group, ticket in enumerate(tickets):
            answer = client.result(ticket, START_SECONDS)
            assert answer.arrays["sum"].tolist() == expected[group].tolist()
            states[group] = answer.arrays["total"]
    client.close()
    assert client.resent >= 1


def test_a_client_that_is_killed_in_the_middle_of_a_request_leaves_the_others_their_answers():
    script = (
        "import os, signal, sys, numpy as np\n"
        "from tests.inference import serving\n"
        "client = serving.client_of(sys.argv[1], 4, held=True)\n"
        "for group in range(4):\n"
        "    client.request(group, {'number': np.arange(2)})\n"
        "client.result(0, 60.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with serving.serving(serving.Adding()) as served:
        client = serving.client_of(served.address, held=True)
        killed = subprocess.run(
            [sys.executable, "-c", script, served.address], timeout=START_SECONDS
        )
        assert killed.returncode == -signal.SIGKILL
        for step in range(3):
            answer = client.result(client.request(0, number(1)), SECONDS)
            assert answer.arrays["sum"].tolist() == [step + 1]
        client.close()

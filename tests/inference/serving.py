"""A server of inference in this process, on a real socket; and ways to lose what is said to it."""

import contextlib
import random
import threading
import time
from concurrent import futures

import numpy as np

from actor_learner.inference import remote, server
from actor_learner.messaging import client as client_lib
from actor_learner.messaging import messages
from actor_learner.messaging import server as wire_server


class Adding:
    """A service of a payload of its own: sums up what each row was ever sent."""

    request_spec = {"number": messages.ArraySpec(np.int64, [None])}
    state_spec = {"total": messages.ArraySpec(np.int64, [None])}
    answer_spec = {"sum": messages.ArraySpec(np.int64, [None])}

    def __init__(self):
        self.batches = []
        self.error = None

    def initial_state(self, num_rows):
        return {"total": np.zeros(num_rows, np.int64)}

    def answer(self, arrays, state):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.batches.append(arrays["number"].tolist())
        total = state["total"] + arrays["number"]
        return server.Answer({"sum": total}, {"total": total}, {"version": 7})


@contextlib.contextmanager
def serving(service, *, max_batch=64, max_delay_seconds=0.0, start=True):
    """Serves on a thread; gives the server, whose `address` is where."""
    with wire_server.Server({}) as wire:
        served = server.InferenceServer(
            wire, service, max_batch=max_batch, max_delay_seconds=max_delay_seconds
        )
        served.address = wire.address
        served.wire = wire
        stopping = threading.Event()

        def serve():
            while not stopping.is_set():
                served.serve(0.02)

        thread = threading.Thread(target=serve, daemon=True)
        if start:
            thread.start()
        try:
            yield served
        finally:
            stopping.set()
            served.close()
            if start:
                thread.join(30)


def wait_for(condition, seconds=60.0):
    """Waits until another thread has made a condition true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Losing:
    """A client's wire that loses requests and answers, and delivers some twice.

    Args:
      address: Of the server.
      seed: Of what it loses.
      share: Of each kind of loss.
    """

    def __init__(self, address, seed=0, share=0.2):
        self.address = address
        self._client = client_lib.Client(address, who="losing")
        self._random = random.Random(seed)
        self._share = share
        self.lost = 0

    def submit(self, kind, body, arrays, *, timeout_seconds):
        fate = self._random.random() / self._share
        nothing = futures.Future()
        if fate < 1:
            self.lost += 1
            return nothing
        answer = self._client.submit(kind, body, arrays, timeout_seconds=timeout_seconds)
        if fate < 2:
            self.lost += 1
            return nothing  # It was answered, but nobody hears of it.
        if fate < 3:
            return self._client.submit(kind, body, arrays, timeout_seconds=timeout_seconds)
        return answer

    def close(self):
        self._client.close()


def client_of(address, num_groups=1, *, held=False, losing=None, resend_seconds=2.0, who="tester"):
    """Asks an `Adding` service."""
    wire = losing or client_lib.Client(address, who=who)
    spec = dict(Adding.answer_spec) if held else {**Adding.answer_spec, **Adding.state_spec}
    return remote.ServiceClient(
        remote.OneServer(wire), num_groups, spec, who=who, held=held, resend_seconds=resend_seconds
    )

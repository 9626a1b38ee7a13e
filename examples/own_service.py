"""Two jobs of one's own: one computes for others, in batches; the other asks it.

Arrays of one's own travel by the means by which actors ask policy jobs: requests are checked
against `request_spec`, those that have arrived are computed together, and one whose answer was lost
is asked again and computed once.

`actor-learner up --gin_file=examples/own_service.gin` starts both beside our jobs.
"""

import contextlib

import gin
import numpy as np

from actor_learner.inference import remote, server
from actor_learner.jobs import worker
from actor_learner.messaging import messages

ANSWER = {"distance": messages.ArraySpec(np.float64, [None])}


class Distances:
    """Says how far each row's point has gone in all: the state of a row is where it was last."""

    request_spec = {"point": messages.ArraySpec(np.float64, [None, 2])}
    state_spec = {
        "last": messages.ArraySpec(np.float64, [None, 2]),
        "gone": messages.ArraySpec(np.float64, [None]),
    }

    def initial_state(self, num_rows):
        return {"last": np.zeros((num_rows, 2)), "gone": np.zeros(num_rows)}

    def answer(self, arrays, state):
        gone = state["gone"] + np.linalg.norm(arrays["point"] - state["last"], axis=1)
        return server.Answer({"distance": gone}, {"last": arrays["point"], "gone": gone}, {})


@gin.configurable
class DistanceServer(worker.Worker):
    """Serves distances until the run ends.

    Args:
      max_batch: Rows of a batch at most.
    """

    def __init__(self, max_batch=64):
        self._max_batch = max_batch

    def configure(self):
        self._server = server.InferenceServer(
            self.job.wire, Distances(), max_batch=self._max_batch, kind="distance"
        )
        self.job.publish_address(self.job.wire_address)  # Who asks waits for that.

    def poll(self):
        self._server.serve(0.1)

    def status(self):
        return {"steps": self._server.requests, "batch_sizes": self._server.histogram()}

    def close(self):
        self._server.close()


@gin.configurable
class Walker(worker.Worker):
    """Walks two points around squares, and asks how far they have gone.

    Args:
      steps: After so many the job is done.
    """

    def __init__(self, steps=100):
        self._steps, self._taken = steps, 0
        self._side = np.array([1.0, 2.0])  # Of the square of each point.
        self.distances = np.zeros(2)
        self._closing = contextlib.ExitStack()

    def configure(self):
        self.job.address_of("distances", timeout=300.0)
        self._client = remote.ServiceClient(
            remote.OneServer(self.job.connect("distances", timeout=60.0)),
            num_groups=1,
            answer_spec=ANSWER,
            who="walker",
            held=True,  # The server holds where the points were.
            kind="distance",
        )
        self._closing.callback(self._client.close)

    def poll(self):
        corner = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])[self._taken % 4]
        ticket = self._client.request(0, {"point": self._side[:, None] * corner})
        self.distances = self._client.result(ticket, timeout_seconds=60.0).arrays["distance"]
        self._taken += 1
        return self._taken == self._steps

    def status(self):
        return {"steps": self._taken, "message": f"has gone {self.distances[0]:g}"}

    def close(self):
        self._closing.close()

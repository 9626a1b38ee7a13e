"""The example of jobs of one's own that serve and ask with arrays of their own."""

import threading
import uuid

import numpy as np

from examples import own_service
from tests.jobs import jobs_in_process


def test_a_worker_of_the_users_own_serves_and_another_asks():
    space = uuid.uuid4().hex
    with jobs_in_process.configured("examples/own_service.gin"):
        serves = jobs_in_process.configure(own_service.DistanceServer(), "distances", space)
        stopping = threading.Event()
        thread = threading.Thread(
            target=lambda: [serves.poll() for _ in iter(stopping.is_set, True)], daemon=True
        )
        thread.start()
        asks = jobs_in_process.configure(own_service.Walker(steps=9), "walker", space)
        try:
            done = [asks.poll() for _ in range(9)]
        finally:
            stopping.set()
            thread.join(60)
            for worker in (asks, serves):
                worker.close()
                jobs_in_process.end(worker.job)
    assert done == [False] * 8 + [True]
    np.testing.assert_allclose(asks.distances, [9.0, 18.0])
    assert serves.status() == {"steps": 9, "batch_sizes": {"1": 0, "2-3": 9}}
    assert asks.status() == {"steps": 9, "message": "has gone 9"}

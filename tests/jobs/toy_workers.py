"""Workers for tests of the life cycle: no TensorFlow, every step in the hands of the test."""

import queue
import threading

from actor_learner.jobs import job, worker
from actor_learner.naming import memory

DEADLINE = 60.0


class Puppet(worker.Worker):
    """Does, in each poll, what the test has put into `tasks`; notes all calls in `calls`."""

    def __init__(self):
        self.calls = []
        self.tasks = queue.Queue()
        self.contributed = {}
        self.on_close = lambda: None
        self.on_configure = lambda: None

    def configure(self):
        self.calls.append("configure")
        self.on_configure()

    def poll(self):
        try:
            task = self.tasks.get(timeout=0.05)
        except queue.Empty:
            return worker.PollResult()
        self.calls.append("poll")
        return task()

    def status(self):
        return self.contributed

    def on_pause(self):
        self.calls.append("on_pause")

    def on_resume(self):
        self.calls.append("on_resume")

    def close(self):
        self.calls.append("close")
        self.on_close()


class Running:
    """A worker living in a thread, as a job of its own registry object."""

    def __init__(self, made, kind="actor", index=0, *, space=None, names=None, **options):
        self.worker = made
        settings = {"heartbeat_seconds": 0.05, "lost_after_seconds": 30.0, **options}
        self.job = job.Job(kind, index, "run", names or memory.MemoryRegistry(space), **settings)
        self.error = None
        self.state = None
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def _live(self):
        try:
            self.state = self.worker.run(self.job)
        except BaseException as error:  # Kept for `join`.
            self.error = error

    def join(self, timeout=DEADLINE):
        """Waits for the end and returns the last state; raises what the worker raised."""
        self.thread.join(timeout)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.state

"""Jobs of one run in the process of a test, which polls them; a learner that says what it is to."""

import contextlib
import time

import gin
import numpy as np

from actor_learner import config
from actor_learner import experiment as experiment_lib
from actor_learner.jobs import job
from actor_learner.jobs.exchange import news, publisher, replay_connection
from actor_learner.jobs.presence import lease, wire
from actor_learner.naming import memory

DEADLINE = 120.0
RUN = "mine"

_sources = []


@contextlib.contextmanager
def configured(gin_file, *bindings):
    """Loads a configuration for as long as the context lasts; yields it."""
    source = config.ConfigSource((gin_file,), bindings)
    config.load(source)
    _sources.append(source)
    try:
        yield source
    finally:
        _sources.remove(source)
        gin.clear_config()


def make_job(kind, space, index=0, names=None, **options):
    """A job of the run in the registry `space`, or `names`, with a wire that others find."""
    if "source" not in options:
        options["source"] = _sources[-1]
    options.setdefault("lost_after_seconds", 10_000.0)
    names = memory.MemoryRegistry(space) if names is None else names
    made = job.Job(kind, index, RUN, names, **options)
    held = lease.Lease(made)
    held.claim()
    wire.open_wire(made)
    held.publish()
    made.held = held
    return made


def end(made):
    """Ends a job's wire and gives its lease up."""
    made.wire.close()
    made.held.release()


def configure(worker, kind, space, **options):
    """Makes a worker a job of the run, and gets it ready; returns it."""
    worker.job = make_job(kind, space, **options)
    worker.configure()
    return worker


def poll_until(condition, what, *workers):
    """Polls the workers in turns until the condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        for worker in workers:
            worker.poll()


class Learner:
    """Publishes and tells what the test wants; takes reports.

    Args:
      space: The registry's.
      epoch: The learner's.
    """

    def __init__(self, space, epoch=0):
        self.job = make_job("learner", space)
        self.epoch = epoch
        found = replay_connection.ReplayConnection(self.job)
        made = found.make_model(experiment_lib.Experiment(), seed=7)
        found.close()
        self.variables = made.published_variables()
        self.reports = []
        self.answers = True
        self.environment_step = 0
        self.share = (0, 1)
        self._publisher = None
        self.job.wire.handle(news.REPORT, self._take)

    def act_always(self, action):
        """Makes the Q-network prefer one action, whatever it sees."""
        for variable in self.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype.as_numpy_dtype))
        (bias,) = {v.ref() for v in self.variables if v.shape == (2,)}
        bias.deref().assign(np.eye(2, dtype=np.float32)[action])

    def say(
        self, train_step, *, version=None, steps=0, allowed=10**6, done=False, actors=1, epoch=None
    ):
        """Publishes `version`, if there is one, and tells the rest."""
        if self._publisher is None:
            self._publisher = publisher.Publisher(
                self.job.wire,
                self.variables,
                epoch=self.epoch,
                version=version,
                interval_seconds=0.0,
            )
        elif version is not None:
            self._publisher.publish(version, now=True)
        told = news.News(
            epoch=self.epoch if epoch is None else epoch,
            train_step=train_step,
            version=self._publisher.version,
            environment_step=steps,
            steps_allowed=allowed,
            num_actors=actors,
            done=done,
        )
        self.job.wire.publish(news.TOPIC, told.body())

    def close(self):
        end(self.job)

    def _take(self, request):
        self.reports.append(dict(request.body))
        if not self.answers:
            return
        rank, actors = self.share
        request.answer(
            {
                "epoch": self.epoch,
                "environment_step": self.environment_step,
                "rank": rank,
                "num_actors": actors,
            }
        )

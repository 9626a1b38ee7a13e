"""Jobs of one run in the process of a test, which polls them; a learner that says what it is to."""

import contextlib
import time

import gin
import numpy as np

from actor_learner import config
from actor_learner import experiment as experiment_lib
from actor_learner.jobs import contract, job, replay_connection
from actor_learner.naming import memory
from actor_learner.parameters import publication, publisher
from actor_learner.runs import model

DEADLINE = 120.0
RUN = "mine"


@contextlib.contextmanager
def configured(gin_file, *bindings):
    """Loads a configuration for as long as the context lasts; yields it."""
    source = config.ConfigSource((gin_file,), bindings)
    config.load(source)
    try:
        yield source
    finally:
        gin.clear_config()


def configure(worker, kind, space, **options):
    """Makes a worker a job of the run in the registry `space`, and gets it ready; returns it."""
    worker.job = job.Job(kind, 0, RUN, memory.MemoryRegistry(space), **options)
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
    """Publishes and announces what the test wants.

    Args:
      asking: A job of the run.
      address: Of the replay server.
    """

    def __init__(self, asking, address):
        found = replay_connection.Partner(asking, address)
        self._run_id = found.run_id
        made = model.Model(
            experiment_lib.Experiment(),
            *contract.specs_of(found.contract),
            found.num_lanes,
            seed=7,
        )
        self.variables = made.published_variables()
        self._publisher = publisher.Publisher(found.address, self.variables, found.run_id)

    def act_always(self, action):
        """Makes the Q-network prefer one action, whatever it sees."""
        for variable in self.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype.as_numpy_dtype))
        (bias,) = {v.ref() for v in self.variables if v.shape == (2,)}
        bias.deref().assign(np.eye(2, dtype=np.float32)[action])

    def say(self, train_step, *, version=None, steps=0, allowed=10**6, done=False):
        """Publishes `version`, if there is one, and announces the rest; waits until it is sent."""
        if version is not None:
            self._publisher.publish(version)
        self._publisher.announce(
            publication.Announcement(
                run_id=self._run_id,
                train_step=train_step,
                version=-1,
                environment_step=steps,
                steps_allowed=allowed,
                done=done,
                time=time.time(),
                counted={},
            )
        )
        self._publisher.flush()

    def close(self):
        self._publisher.close()

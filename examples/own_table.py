"""A table of one's own in the replay server of a run, and a job that fills it.

`actor-learner up --gin_file=examples/own_table.gin` serves the table beside ours, saves it and
restores it with them, and starts the job, which notes how busy its machine is.
"""

import os
import time

import gin
import numpy as np
import reverb
import tensorflow as tf

from actor_learner.jobs import worker
from actor_learner.replay.server import tables
from actor_learner.support import errors, reverb_calls

SIGNATURE = {"time": tf.TensorSpec([1], tf.float64), "load": tf.TensorSpec([1, 3], tf.float32)}


@gin.configurable
def load_table(name="load", max_size=1_000):
    """Holds the latest notes; the newest is sampled first. `[1]`: an item is one step long."""
    return tables.lifo_table(name, max_size, signature=SIGNATURE)


@gin.configurable
class LoadWriter(worker.Worker):
    """Writes the time and the three load averages of its machine, every `interval_seconds`."""

    def __init__(self, table="load", interval_seconds=5.0):
        self._table = table
        self._interval_seconds = interval_seconds
        self._notes = 0

    def configure(self):
        client = reverb.Client(self.job.address_of("replay", timeout=300.0))
        self._writer = client.trajectory_writer(num_keep_alive_refs=1)

    def poll(self):
        step = {"time": np.float64(time.time()), "load": np.float32(os.getloadavg())}
        self._writer.append(step)
        item = {name: column[-1:] for name, column in self._writer.history.items()}
        self._writer.create_item(self._table, priority=1.0, trajectory=item)
        try:
            self._writer.flush(block_until_num_items=0, timeout_ms=30_000)
        except reverb.errors.ReverbError as error:
            raise errors.ReplayTimeoutError("the replay server takes no notes") from error
        self._notes += 1
        return worker.PollResult(idle_seconds=self._interval_seconds)

    def status(self):
        return {"steps": self._notes}


def latest(client, table="load", timeout_seconds=30.0):
    """The newest note, as a dict of arrays; for whoever wants to read them."""
    sample = reverb_calls.call_with_deadline(
        lambda: next(iter(client.sample(table, emit_timesteps=False))),
        timeout_seconds,
        lambda: reverb_calls.no_answer(client.server_address, timeout_seconds),
    )
    return dict(zip(sorted(SIGNATURE), (column[0] for column in sample.data)))

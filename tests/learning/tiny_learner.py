"""A learner of the tiny agent, and what it has written."""

from __future__ import annotations

import glob
import os

import tensorflow as tf

from actor_learner.learning import learner
from tests.learning import tiny_agent


def make(root_dir, *, step=None, increment=1, dataset_fn=tiny_agent.dataset, **kwargs):
    step = tiny_agent.train_step() if step is None else step
    agent = tiny_agent.TinyAgent(step, increment)
    return learner.Learner(str(root_dir), step, agent, dataset_fn, **kwargs)


def recorded(root_dir):
    """Every `(tag, step)` in the event files, in order."""
    found = []
    for path in sorted(glob.glob(os.path.join(root_dir, "train", "events*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            found += [(value.tag, event.step) for value in event.summary.value]
    return found


class Recorder:
    """A trigger with all hooks that writes down its calls."""

    def __init__(self, log, name="recorder", fail=None):
        self.log, self.name, self.fail = log, name, fail or {}

    def _note(self, what, step):
        self.log.append((self.name, what, int(step)))
        if what in self.fail:
            raise self.fail[what]

    def __call__(self, step):
        self._note("call", step)

    def set_start(self, step):
        self._note("set_start", step)

    def on_start(self, step):
        self._note("on_start", step)

    def on_stop(self, step):
        self._note("on_stop", step)

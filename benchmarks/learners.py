"""What a second learner brings: train steps per second of two processes that share each batch.

Ours: two learners, each on half of the batch, which add up gradients over the wire. Peer: one
learner on all of it. Limit: twice the peer, which an exchange that takes no time would reach. The
train step is a stand-in that sleeps for a time that is proportional to its part of the batch, as if
each learner had a device of its own: what is measured is what the exchange costs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.agents import optimizers
from actor_learner.jobs.exchange import learner_group
from actor_learner.learning import replica_step
from actor_learner.messaging import client, server
from actor_learner.parameters import packing
from actor_learner.support import replicas
from benchmarks import harness, settings

BATCH = 256
ITEM_SECONDS = 0.0002
PARAMETERS = 140_000  # As SAC with networks of 256x256 has.
_JOIN_SECONDS = 60.0


class SleepingAgent(tf.Module):
    """Takes as long as its batch is large, and has a gradient of `PARAMETERS` numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._weights = tf.Variable(tf.zeros([PARAMETERS]))
        self._optimizer = optimizers.Adam(1e-3)

    def train(self, experience: tf.Tensor) -> tf_agent.LossInfo:
        def sleep(items: np.ndarray) -> np.ndarray:
            time.sleep(ITEM_SECONDS * len(items))
            return np.float32(items.mean())

        mean = tf.ensure_shape(tf.numpy_function(sleep, [experience], tf.float32), [])
        gradient = mean + tf.zeros_like(self._weights)
        self._optimizer.apply_gradients([(gradient, self._weights)])
        return tf_agent.LossInfo(mean, ())


class Learner:
    """Takes train steps of the stand-in.

    Args:
      items: Of its part of the batch.
      group: The learners that it shares the batch with; None for none.
    """

    def __init__(self, items: int, group: replicas.Group | None) -> None:
        agent = SleepingAgent()
        step = replica_step.ReplicaStep(
            agent,
            tf.distribute.get_strategy(),
            after_train=None,
            use_kwargs=False,
            run_options=None,
            group=group,
        )
        self._batch = tf.ones([items])
        self._train = tf.function(step.train, autograph=False)
        self._train.get_concrete_function(self._batch)
        self.variables = packing.Packing(learner_group.state_variables(agent))

    def train(self) -> int:
        self._train(self._batch)
        return 1


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    with server.Server({}) as wire:
        group = learner_group.ChiefGroup(wire, epoch=1, part_seconds=_JOIN_SECONDS)
        alone, chief = Learner(BATCH, None), Learner(BATCH // 2, group)
        member = subprocess.Popen([sys.executable, "-m", "benchmarks.learners", wire.address])
        try:
            deadline = time.monotonic() + _JOIN_SECONDS
            while group.size < 2:
                if member.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the second learner has not joined in {_JOIN_SECONDS:g} s")
                group.admit(lambda: chief.variables)
                time.sleep(0.01)
            results = harness.alternate(
                {
                    "ours": harness.rate(chief.train, config.seconds),
                    "peer": harness.rate(alone.train, config.seconds),
                },
                config.few_repetitions,
            )
        finally:
            member.kill()
            member.wait()
    results["limit"] = [2.0 * value for value in results["peer"]]
    yield harness.row(
        "learners",
        f"2 learners, {PARAMETERS:,} parameters, {1e3 * BATCH * ITEM_SECONDS:g} ms alone",
        results,
        note="peer: one learner",
    )


def _be_member(address: str) -> None:
    """Trains with the chief at an address until it is killed, or the chief is gone."""
    with client.Client(address, who="learner-1") as wire:
        group = learner_group.MemberGroup(wire, lambda: learner.variables)
        learner = Learner(BATCH // 2, group)
        while not group.join(1.0):
            pass
        while True:
            learner.train()


if __name__ == "__main__":
    _be_member(sys.argv[1])

"""What an actor writes, as sets of what its sample stream makes of it."""

import numpy as np
import tensorflow as tf
import tree

from actor_learner import experiment
from actor_learner.acting import actor, ring, rotation
from actor_learner.agents import dqn, impala, r2d2
from actor_learner.environments import gymnasium
from actor_learner.replay.server import server
from actor_learner.replay.streams import lane_replay, sequence_replay, unroll_queue

LANES = 4
STEPS = 24  # Of every lane.


def small_dqn(world):
    return dqn.dqn(world, fc_layer_params=(8,))


def small_impala(world):
    return impala.impala(world, fc_layer_params=(4,))


def small_r2d2(world):
    return r2d2.r2d2(
        world, fc_layer_params=(4,), lstm_size=4, head_layer_params=(4,), burn_in=2, n_step=2
    )


KINDS = {
    "transitions": (small_dqn, lane_replay.LaneReplay),
    "unrolls": (small_impala, lambda: unroll_queue.UnrollQueue(8, max_queued_batches=100)),
    "sequences": (small_r2d2, lambda: sequence_replay.SequenceReplay(8, period=4)),
}


def make_lanes(num_envs=LANES, seed=5, first_lane=0):
    """CartPoles whose episodes are short, with seeds by the number of the lane."""
    return gymnasium.GymnasiumEnvironment(
        "CartPole-v1",
        num_envs,
        seed=seed,
        first_lane=first_lane,
        vectorization="sync",
        max_episode_steps=11,
    )


class Written:
    """One actor, and the rows that its stream makes of what it has written.

    Args:
      kind: Of experience.
      ring_size: Groups, of as many lanes in all.
      **arguments: Of `Actor`.
    """

    def __init__(self, kind, ring_size, **arguments):
        agent, stream = KINDS[kind]
        tf.keras.utils.set_random_seed(3)
        self.experiment = experiment.Experiment(
            environment=lambda seed=5, first_lane=0: make_lanes(
                LANES // ring_size, seed, first_lane
            ),
            agent=agent,
            replay=stream(),
            ring_size=ring_size,
        )
        self.env = self.experiment.make_acting_environment(5)
        self.train_step = tf.Variable(0, dtype=tf.int64)
        self.algorithm = self.experiment.make_algorithm(
            self.env, self.train_step, tf.Variable(0, dtype=tf.int64)
        )
        self.plan = self.experiment.plan(self.algorithm, ring.num_lanes(self.env), None)
        self._server = server.ReplayServer(self.plan.stream.tables(self.plan.experience))
        client = self._server.client()
        writers = [
            self.plan.stream.observer(self.plan.experience, client, version=lambda: 0)
            for _ in range(ring_size)
        ]
        transitions = getattr(writers[0], "observes_transitions", False)
        observers = [rotation.for_groups(writers)]
        self.metrics = actor.collect_metrics(100)
        self.actor = actor.Actor(
            self.env,
            self.algorithm.agent.collect_policy,
            self.train_step,
            group_steps_per_run=ring_size * STEPS // 2,
            observers=[] if transitions else observers,
            transition_observers=observers if transitions else [],
            metrics=self.metrics,
            seed=11,
            **arguments,
        )
        try:
            self.actor.run()
            self.actor.run()
            for writer in writers:
                writer.flush()  # Which waits for the server.
                writer.close()  # Which writes items that are not full, too.
            self.rows = self._read()
        finally:
            self.actor.close()
            for writer in writers:
                writer.close()
            self._server.stop()
            self.env.close()

    def results(self):
        return {metric.name: metric.result() for metric in self.metrics}

    def _read(self):
        """Each thing that a learner may learn from, once."""
        size = self._server.info().tables[self.plan.stream.table_name].size
        dataset = self.plan.stream.dataset(
            self.plan.experience, self._server.address, 64, timeout_seconds=30.0
        )
        batches = 60
        if self.plan.group_steps is not None:
            batches = size // self.plan.stream.cells_per_batch(self.plan.experience)
        rows = []
        for batch, *_ in dataset.take(batches):
            leaves = [_rounded(np.asarray(leaf)) for leaf in tree.flatten(_experience(batch))]
            rows.extend(b"|".join(leaf.tobytes() for leaf in row) for row in zip(*leaves))
        return set(rows)


def _rounded(array):
    """Sums over another number of lanes may differ in the last digits."""
    return np.round(array, 3) + 0.0 if np.issubdtype(array.dtype, np.floating) else array


def _experience(batch):
    return batch["experience"] if isinstance(batch, dict) else batch

"""The acting side: turns, what has arrived after each of them, recordings, and ways to end."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner import experiment
from actor_learner.agents import dqn, impala, r2d2
from actor_learner.environments import lanes
from actor_learner.replay.recording import shards
from actor_learner.replay.server import server
from actor_learner.replay.streams import (
    lane_replay,
    prioritized_replay,
    sequence_replay,
    unroll_queue,
    window_replay,
)
from actor_learner.runs import acting_side
from actor_learner.support import errors
from tests.runs import test_one_process

RUN_ID = "0123456789abcdef" * 2


def small_impala(world):
    return impala.impala(world, fc_layer_params=(4,))


def small_r2d2(world):
    return r2d2.r2d2(
        world, fc_layer_params=(4,), lstm_size=4, head_layer_params=(4,), burn_in=2, n_step=2
    )


class Side:
    """An acting side with a server of its own."""

    def __init__(self, agent=dqn.dqn, recording_dir=None, **settings):
        settings = {"agent": agent, "collect_steps": 40, **settings}
        self.experiment = test_one_process.make_experiment(**settings)
        self.env = self.experiment.make_environment(0)
        self.train_step = tf.Variable(0, dtype=tf.int64)
        self.environment_step = tf.Variable(0, dtype=tf.int64)
        self.algorithm = self.experiment.make_algorithm(
            self.env, self.train_step, self.environment_step
        )
        num_lanes = lanes.as_lanes(self.env).num_lanes
        self.plan = self.experiment.plan(self.algorithm, num_lanes, RUN_ID)
        self.server = server.ReplayServer(self.plan.stream.tables(self.plan.experience))
        self.recording_dir = recording_dir

    def build(self):
        return acting_side.ActingSide(
            self.experiment,
            self.plan,
            self.algorithm,
            self.env,
            self.server.client(),
            train_step=self.train_step,
            environment_step=self.environment_step,
            seed=1,
            recording_dir=self.recording_dir,
        )

    def table(self):
        return self.server.info().tables[self.plan.stream.table_name]

    def close(self):
        self.server.stop()
        self.env.close()


@pytest.fixture
def make_side():
    made = []

    def make(**settings):
        made.append(Side(**settings))
        return made[-1]

    yield make
    for side in made:
        side.close()


def test_what_a_turn_has_written_has_arrived_when_it_returns(make_side):
    side = make_side(replay=lane_replay.LaneReplay(1_000, rows_per_item=1))
    acting = side.build()
    for turn in (1, 2, 3):
        before = side.table().inserts
        acting.run()
        assert acting.turns == turn
        assert acting.steps_taken == side.environment_step.numpy() >= 40 * turn
        # Four lanes, in which every sixth row is a boundary; one row waits for its successor.
        assert side.table().inserts - before >= 9
    assert acting.statistics.environment_steps == acting.steps_taken
    assert list(acting.statistics.lengths)[-1] == 5
    acting.close()
    acting.close()


def test_a_turn_that_fails_is_not_counted_and_its_steps_are(make_side):
    side = make_side()
    acting = side.build()
    acting.run()
    taken, step, left = acting.steps_taken, side.env._step, iter(range(3))

    def breaking(action):
        if next(left, None) is None:
            raise OSError("lost the simulator")
        return step(action)

    side.env._step = breaking
    with pytest.raises(OSError, match="lost the simulator"):
        acting.run()
    assert acting.turns == 1
    assert taken < acting.steps_taken <= taken + 3 * 4
    acting.close()


def recorded_steps(directory):
    """Steps of all lanes, without those between two episodes."""
    found = [shards.read(shard, ["step_type"])["step_type"] for shard in shards.find(directory)]
    return sum(int(np.sum(types != ts.StepType.LAST)) for types in found)


def test_recorded_steps_are_those_that_were_taken(make_side, tmp_path):
    side = make_side(record=True, recording_dir=tmp_path / "experience")
    acting = side.build()
    for _ in range(2):
        acting.run()
        acting.save_recording()  # Before the end, too.
        assert recorded_steps(side.recording_dir) == acting.steps_taken
    acting.run()
    acting.close()
    assert recorded_steps(side.recording_dir) == acting.steps_taken


def test_there_must_be_somewhere_to_record_to(make_side):
    side = make_side(record=True)
    with pytest.raises(errors.ConfigError, match="no run directory to record to: pass --run="):
        side.build()


KINDS = {
    "lanes": dict(replay=lambda: lane_replay.LaneReplay(1_000, rows_per_item=1)),
    "windows": dict(replay=lambda: window_replay.WindowReplay(1_000)),
    # With more items under way it would wait for the server to take some.
    "priorities": dict(replay=lambda: prioritized_replay.PrioritizedReplay(1_000), collect_steps=8),
    "sequences": dict(
        replay=lambda: sequence_replay.SequenceReplay(100, sequence_length=8, period=4),
        agent=small_r2d2,
        initial_random_steps=None,
    ),
    "unrolls": dict(
        replay=lambda: unroll_queue.UnrollQueue(8),
        agent=small_impala,
        updates_per_step=None,
        initial_random_steps=None,
        collect_steps=None,
        batch_size=experiment.BATCH_SIZE,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_server_it_is_abandoned_at_once(make_side, kind):
    def endless(seed, num_envs=4):
        """At the end of an episode some streams wait for what they wrote."""
        return test_one_process.counting(seed, num_envs, episode_length=1_000)

    settings = dict(KINDS[kind], environment=endless)
    side = make_side(**{**settings, "replay": settings["replay"]()})
    acting = side.build()
    acting.run()
    assert side.table().inserts > 0
    side.server.stop()
    done = threading.Event()

    def write_and_abandon():
        acting.actor.run()  # What it writes is under way for ever.
        acting.abandon()
        done.set()

    threading.Thread(target=write_and_abandon, daemon=True).start()
    assert done.wait(45.0), "it waits for the server"

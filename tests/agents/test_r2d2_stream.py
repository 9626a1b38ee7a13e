"""R2D2 with its actor and replay: what the learner computes equals what the actor computed."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.acting import actor
from actor_learner.agents import algorithm, r2d2
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.server import server
from actor_learner.replay.streams import sample_stream, sequence_replay
from tests import counting_environment

EPISODES = [(13, 4), (21, 9)]  # Lengths, by lane.
OFFSET = 1e-3


class Run:
    """Experience of an untrained agent in counting environments, and all batches of it."""

    def __init__(self, burn_in):
        lengths = itertools.cycle(EPISODES)
        endings = ("terminated", "truncated")
        env = gymnasium_environment.GymnasiumEnvironment(
            lambda: counting_environment.CountingEnv(next(lengths), endings), len(EPISODES)
        )
        world = algorithm.World(
            tensor_spec.from_spec(env.time_step_spec()),
            tensor_spec.from_spec(env.action_spec()),
            tf.Variable(0, dtype=tf.int64),
            tf.Variable(0, dtype=tf.int64),
            num_lanes=2,
            total_lanes=2,
        )
        built = r2d2.r2d2(
            world, fc_layer_params=(8,), lstm_size=6, head_layer_params=(), burn_in=burn_in,
            n_step=3, epsilon_base=0.7,
        )  # fmt: skip
        self.agent = built.agent
        self.agent.initialize()
        self.priorities = built.priorities
        replay = sequence_replay.SequenceReplay(500, sequence_length=8, period=4)
        flow = sample_stream.Experience(
            self.agent.collect_data_spec, 2, built.n_step, built.gamma, built.initial_priorities
        )
        with server.ReplayServer(replay.tables(flow)) as replay_server:
            observer = replay.observer(flow, replay_server.client())
            collector = actor.Actor(
                env, self.agent.collect_policy, world.train_step, steps_per_run=200,
                observers=[observer],
            )  # fmt: skip
            collector.run()
            observer.flush()
            dataset = replay.dataset(flow, replay_server.address, 16, 10.0)
            self.batches = list(dataset.take(6))
            observer.close()
        env.close()


@pytest.fixture(scope="module")
def run():
    return Run(burn_in=3)


def test_values_after_burn_in_equal_those_of_the_whole_episode(run):
    network = run.agent._q_network
    episodes = {}  # Values of all rows of an episode, by its number and its length.

    def values_of(episode, steps):
        if (episode, steps) not in episodes:
            rows = np.array([[episode, step] for step in range(steps + 1)], np.float32)
            step_type = np.ones((1, steps + 1), np.int32)
            step_type[0, 0] = 0
            episodes[episode, steps] = network(
                rows[None], step_type=step_type, network_state=network.get_initial_state(1)
            )[0][0].numpy()
        return episodes[episode, steps]

    later_starts = 0
    for batch, _ in run.batches:
        sequence = batch["experience"]
        found = [values.numpy() for values in run.agent.sequence_values(sequence)]
        observation = sequence.trajectory.observation.numpy()
        for row, mask in enumerate(sequence.mask.numpy()):
            num_rows = int(mask.sum())
            episode, start = observation[row, 0].astype(int)
            expected = values_of(episode, 21)[start : start + num_rows]
            for values in found:  # Of the network and its target, which is still a copy.
                np.testing.assert_allclose(values[row, :num_rows], expected, rtol=1e-4, atol=1e-4)
            later_starts += start > 0
    assert later_starts > 10


def test_the_priority_that_the_actor_gave_is_the_one_the_learner_computes(run):
    for batch, info in run.batches:
        loss_info = run.agent.loss(batch["experience"], batch["weights"])
        np.testing.assert_allclose(
            info.priority - OFFSET, run.priorities(loss_info), rtol=1e-4, atol=1e-5
        )
    assert len({float(p) for _, info in run.batches for p in info.priority}) > 10

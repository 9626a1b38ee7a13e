"""Replay bound from gin: our names win over TF-Agents' same ones, and classes keep to their own."""

from __future__ import annotations

import gin
import pytest
import tensorflow as tf
from tf_agents.replay_buffers import reverb_replay_buffer as theirs

from actor_learner.replay import observers, reverb_replay_buffer
from actor_learner.replay.server import server, tables  # noqa: F401 - registers what is bound.
from tests.replay import lane_steps


@pytest.fixture(autouse=True)
def _clear_gin():
    yield
    gin.clear_config()


def test_a_server_is_built_from_a_gin_file():
    gin.parse_config(
        """
        ReplayServer.tables = [@uniform_table(), @queue_table()]
        uniform_table.name = 'experience'
        uniform_table.max_size = 1_000
        uniform_table.rate_limiter = @sample_to_insert_ratio()
        sample_to_insert_ratio.samples_per_insert = 8.0
        sample_to_insert_ratio.min_size = 100
        queue_table.name = 'unrolls'
        queue_table.max_size = 4
        """
    )
    with server.ReplayServer() as running:
        infos = running.client().server_info(5)

    limiter = infos["experience"].rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (8.0, 100)
    assert (limiter.min_diff, limiter.max_diff) == (720.0, 880.0)
    assert infos["unrolls"].max_times_sampled == 1


def test_a_binding_of_the_buffer_means_ours():
    gin.parse_config(
        """
        ReverbReplayBuffer.sequence_length = 2
        queue_table.name = 'queue'
        queue_table.max_size = 9
        ReplayServer.tables = [@queue_table()]
        """
    )
    with server.ReplayServer() as running:
        spec = tf.TensorSpec([], tf.float32)
        buffer = reverb_replay_buffer.ReverbReplayBuffer(spec, "queue", local_server=running)
        with pytest.raises(TypeError, match="sequence_length"):
            theirs.ReverbReplayBuffer(spec, "queue", local_server=running.server)

    assert buffer.as_dataset().element_spec[0].shape == (2,)


def test_bindings_of_the_trajectory_observer_do_not_reach_the_sequence_observer():
    gin.parse_config(
        """
        ReverbAddTrajectoryObserver.stride_length = 4
        queue_table.name = 'queue'
        queue_table.max_size = 9
        ReplayServer.tables = [@queue_table()]
        """
    )
    with server.ReplayServer() as running:
        client = running.client()
        with observers.ReverbTrajectorySequenceObserver(client, "queue", 2) as observer:
            for step in lane_steps.steps([1, 1]):
                observer(step)
        spanning = lane_steps.counts(lane_steps.read_items(client, "queue"))
        client.reset("queue")
        with observers.ReverbAddTrajectoryObserver(client, "queue", 2) as observer:
            for step in lane_steps.steps([5]):
                observer(step)
        within = lane_steps.counts(lane_steps.read_items(client, "queue"))

    assert spanning == [(10, 11), (11, 20), (20, 21)]
    assert within == [(10, 11), (14, 15)]

"""Unrolls that stay in the process: the batches that Reverb's queue gives, without the server."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.acting import actor
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments.tensor import cartpole, environment
from actor_learner.replay.server import server
from actor_learner.replay.streams import local_unrolls, sample_stream, unroll_queue
from actor_learner.support import errors
from tests.replay.streams import test_unroll_queue

LANES, LENGTH = 3, 4


def tensor_env():
    return environment.TensorEnvironment(
        cartpole.CartPoleDynamics(), LANES, seed=1, max_episode_steps=5
    )


def gymnasium_env():
    return gymnasium_environment.GymnasiumEnvironment(
        "CartPole-v1", LANES, vectorization="sync", seed=1, max_episode_steps=5
    )


def policy_for(env):
    time_step_spec = tensor_spec.from_spec(env.time_step_spec())
    return test_unroll_queue.NoisyPolicy(time_step_spec, tensor_spec.from_spec(env.action_spec()))


def experience_of(policy):
    return sample_stream.Experience(policy.trajectory_spec, LANES, n_step=1, gamma=0.9)


def batches(dataset, count):
    return [tf.nest.map_structure(lambda leaf: leaf.numpy(), b) for b in dataset.take(count)]


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("make_env", [tensor_env, gymnasium_env])
def test_the_batches_are_those_of_the_queue_in_reverb(make_env, cells):
    """Over ends of episodes, with states of the policy; whole unrolls and single steps."""
    env = make_env()
    policy = policy_for(env)
    queue = unroll_queue.UnrollQueue(
        LENGTH, unrolls_per_batch=cells * LANES, max_queued_batches=4, in_process=True
    )
    local = local_unrolls.LocalUnrolls(queue)
    experience = experience_of(policy)
    with server.ReplayServer(queue.tables(experience)) as replay_server:
        versions = [10]
        observers = [
            queue.observer(experience, replay_server.client(), version=lambda: versions[0]),
            local.observer(experience, version=lambda: versions[0]),
        ]
        taker = actor.Actor(
            env,
            policy,
            tf.Variable(0, dtype=tf.int64),
            group_steps_per_run=LENGTH,
            transition_observers=observers,
        )
        observers[1].take_whole_unrolls_of(taker.graph_unroll)
        assert (taker.graph_unroll is not None) == (make_env is tensor_env)
        for _ in range(2 * cells):
            taker.run()
            versions[0] += 1
        observers[0].flush()
        through_reverb = batches(queue.dataset(experience, replay_server.address, 0, 10.0), 2)
        in_process = batches(local.dataset(experience, "", 0, 10.0), 2)
        for observer in observers:
            observer.close()
    for (expected, info), (unroll, local_info) in zip(through_reverb, in_process):
        tf.nest.assert_same_structure(expected, unroll)
        for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(unroll)):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(info.version, local_info.version)
        np.testing.assert_array_equal(info.probability, local_info.probability)
        assert [leaf.shape for leaf in info[:5]] == [leaf.shape for leaf in local_info[:5]]
    step_types = np.concatenate([b[0].trajectory.step_type.ravel() for b in in_process])
    assert {0, 1, 2} == set(step_types)


def filled(max_queued_batches=1, num_actors=1):
    env = tensor_env()
    policy = policy_for(env)
    queue = unroll_queue.UnrollQueue(
        LENGTH,
        unrolls_per_batch=num_actors * LANES,
        max_queued_batches=max_queued_batches,
        timeout_seconds=0.05,
    )
    local = local_unrolls.LocalUnrolls(queue, num_actors)
    experience = experience_of(policy)
    actors = []
    for index in range(num_actors):
        observer = local.observer(experience, version=lambda index=index: 100 + index)
        actors.append(
            actor.Actor(
                tensor_env(),
                policy,
                tf.Variable(0, dtype=tf.int64),
                group_steps_per_run=LENGTH,
                transition_observers=[observer],
            )
        )
    return local, experience, actors


def test_a_full_queue_is_waited_for_no_longer_than_the_deadline():
    local, _, (taker,) = filled()
    taker.run()
    assert local.table_state().size == 1 and local.table_state().blocked == "inserting"
    with pytest.raises(errors.ReplayTimeoutError, match="has been full, with 1 unrolls, for 0.05"):
        taker.run()


def test_an_empty_queue_ends_the_dataset_after_the_deadline():
    local, experience, _ = filled()
    assert list(local.dataset(experience, "", 0, timeout_seconds=0.05)) == []
    assert local.table_state().blocked == "sampling"


def test_a_reader_that_waits_gets_the_unroll_when_it_comes():
    local, experience, (taker,) = filled()
    found = []
    iterator = iter(local.dataset(experience, "", 0, timeout_seconds=60.0))
    reader = threading.Thread(target=lambda: found.append(next(iterator)))
    reader.start()
    taker.run()
    reader.join(60.0)
    assert found[0][1].version.numpy().tolist() == [100] * LANES
    state = local.table_state()
    assert (state.size, state.inserts, state.samples) == (0, 1, 1)


def test_a_batch_has_the_actors_in_order_whoever_was_first():
    local, experience, (first, second) = filled(num_actors=2)
    second.run()
    first.run()
    ((unroll, info),) = local.dataset(experience, "", 0, 10.0).take(1)
    assert info.version.numpy().tolist() == [100] * LANES + [101] * LANES
    assert unroll.trajectory.step_type.shape == (2 * LANES, LENGTH + 1)
    with pytest.raises(ValueError, match="2 actors have their observers"):
        local.observer(experience)

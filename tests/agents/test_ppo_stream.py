"""PPO on what really comes out of the queue, by the learner that it is meant for."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.acting import actor
from actor_learner.agents import algorithm, ppo
from actor_learner.environments import gymnasium
from actor_learner.learning import learner
from actor_learner.replay.server import server
from actor_learner.replay.streams import sample_stream, unroll_queue

LANES, LENGTH = 4, 6


@pytest.mark.parametrize(
    "env_id, options",
    [
        ("CartPole-v1", {"lstm_size": 4, "share_torso": True}),
        ("Pendulum-v1", {"initial_stddev": 2.0}),
    ],
)
def test_ratios_are_one_on_unrolls_from_the_queue_however_far_training_is(
    env_id, options, tmp_path
):
    # Short episodes: their ends, terminated and truncated, lie in all rows of unrolls.
    env = gymnasium.GymnasiumEnvironment(
        env_id, LANES, vectorization="sync", max_episode_steps=9, seed=0
    )
    train_step, environment_step = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
    world = algorithm.World(
        tensor_spec.from_spec(env.time_step_spec()),
        tensor_spec.from_spec(env.action_spec()),
        train_step,
        environment_step,
        num_lanes=LANES,
        total_lanes=LANES,
    )
    agent = ppo.ppo(
        world,
        fc_layer_params=(8,),
        epochs=1,
        minibatch_size=1_000,
        clip_ratio=1e-5,
        learning_rate=0.02,
        normalize_observations=True,
        normalize_rewards=True,
        **options,
    ).agent
    queue = unroll_queue.UnrollQueue(LENGTH, timeout_seconds=30.0)
    experience = sample_stream.Experience(agent.collect_data_spec, LANES, n_step=1, gamma=0.99)
    with server.ReplayServer(queue.tables(experience)) as replay_server:
        observer = queue.observer(experience, replay_server.client())
        collector = actor.Actor(
            env,
            agent.collect_policy,
            train_step,
            group_steps_per_run=queue.group_steps_per_update(experience, 1),
            transition_observers=[observer],
            environment_step=environment_step,
        )
        with learner.Learner(
            str(tmp_path),
            train_step,
            agent,
            lambda: queue.dataset(experience, replay_server.address, 1, 30.0),
            summary_interval=2,
        ) as trainer:
            before = [variable.numpy() for variable in agent.policy.variables()]
            for iteration in range(1, 6):
                collector.run()
                observer.flush()
                info = trainer.run().extra
                assert info.clip_fraction.numpy() == 0.0
                np.testing.assert_allclose(info.kl, 0.0, atol=1e-6)
                assert train_step.numpy() == iteration
            after = [variable.numpy() for variable in agent.policy.variables()]
        observer.close()
    assert all((a != b).any() for a, b in zip(after, before))
    (moments,) = agent._observation_normalizer._moments
    assert moments.count.numpy() == 5 * LANES * LENGTH
    assert agent._reward_normalizer.moments.count.numpy() == environment_step.numpy()
    env.close()

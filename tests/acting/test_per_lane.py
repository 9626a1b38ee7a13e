"""Observers for one lane, used with many."""

import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.policies import random_py_policy
from tf_agents.replay_buffers import reverb_utils

from actor_learner.acting import actor, per_lane
from actor_learner.environments import gymnasium as gymnasium_environment
from tests import counting_environment


def run(observer, lanes, steps):
    env = gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID, lanes, vectorization="sync"
    )
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec())
    step = tf.Variable(0, dtype=tf.int64)
    actor.Actor(env, policy, step, steps_per_run=steps, observers=[observer]).run()


def test_each_observer_sees_the_unbatched_steps_of_its_lane():
    seen = []

    def make():
        seen.append([])
        return seen[-1].append

    run(per_lane.PerLaneObserver(make, 3), lanes=3, steps=9)
    for steps in seen:
        assert [int(step.observation[1]) for step in steps] == [0, 1, 2]
        assert all(np.shape(step.reward) == () for step in steps)


def test_tf_agents_own_observer_writes_sound_windows_from_many_lanes():
    table = reverb.Table(
        "table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 100,
        reverb.rate_limiters.MinSize(1),
    )  # fmt: skip
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")
    observer = per_lane.PerLaneObserver(
        lambda: reverb_utils.ReverbAddTrajectoryObserver(client, "table", sequence_length=2), 2
    )
    run(observer, lanes=2, steps=8)
    observer.flush()
    # Each lane: F M M L | F: three windows of the first episode.
    assert client.server_info()["table"].current_size == 6
    for sample in client.sample("table", 6, emit_timesteps=False):
        step_type, observation = sample.data[0], sample.data[1]
        assert observation[1][1] == observation[0][1] + 1
        assert step_type[0] != 2
    observer.close()
    server.stop()


def test_another_number_of_lanes_is_refused():
    with pytest.raises(ValueError, match="2 per-lane observers"):
        run(per_lane.PerLaneObserver(lambda: print, 2), lanes=3, steps=3)

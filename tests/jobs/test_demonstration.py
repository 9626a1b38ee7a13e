"""A policy is run and recorded, and its episodes can be learned from."""

import numpy as np
from tf_agents.policies import random_py_policy

from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.jobs import demonstration
from actor_learner.replay import recording, shards
from tests import counting_environment


def test_whole_episodes_are_recorded_with_their_final_observations(tmp_path):
    env = gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID, 2, vectorization="sync",
        make_kwargs={"episode_lengths": (3,)},
    )  # fmt: skip
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)
    mean_return = demonstration.record_episodes(env, policy, tmp_path, episodes=4)
    assert mean_return == 1 + 2 + 3
    (shard,) = shards.find(tmp_path)
    fields = shards.read(shard, ["observation", "step_type", "reward", "discount"])
    # Two episodes of three steps in each lane, each closed by its boundary step.
    episode = [[0, 1, 2, 3]] * 2
    np.testing.assert_array_equal(fields["observation"][:, 0, 1], np.ravel(episode))
    np.testing.assert_array_equal(fields["step_type"][:, 1], [0, 1, 1, 2] * 2)
    np.testing.assert_array_equal(fields["reward"][:4, 0], [1, 2, 3, 0])
    np.testing.assert_array_equal(fields["discount"][:4, 0], [1, 1, 0, 1])
    time_step_spec, action_spec = recording.read_specs(tmp_path)
    assert time_step_spec.observation.shape == (2,)
    assert (action_spec.minimum, action_spec.maximum) == (0, 1)
    env.close()

"""A policy is run and recorded, and its episodes can be learned from."""

import numpy as np
import pytest
from tf_agents.policies import random_py_policy

from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.recording import experience_recorder, shards
from actor_learner.runs import demonstration
from actor_learner.support import errors
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
    # Episodes of three steps, one after another, each closed by its boundary step.
    np.testing.assert_array_equal(fields["observation"][:, 0, 1], [0, 1, 2, 3] * 4)
    np.testing.assert_array_equal(fields["step_type"][:, 0], [0, 1, 1, 2] * 4)
    np.testing.assert_array_equal(fields["reward"][:4, 0], [1, 2, 3, 0])
    np.testing.assert_array_equal(fields["discount"][:4, 0], [1, 1, 0, 1])
    time_step_spec, action_spec = experience_recorder.read_specs(tmp_path)
    assert time_step_spec.observation.shape == (2,)
    assert (action_spec.minimum, action_spec.maximum) == (0, 1)
    env.close()


def make_env(lanes, episode_lengths):
    env = gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID, lanes, vectorization="sync",
        make_kwargs={"episode_lengths": episode_lengths},
    )  # fmt: skip
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)
    return env, policy


def test_every_lane_contributes_its_share_and_nothing_unfinished_is_recorded(tmp_path):
    # Episodes of 1 and 9 steps in turn: over all lanes, the first five to end have 1, 1, 1, 9, ...
    env, policy = make_env(3, (1, 9))
    mean_return = demonstration.record_episodes(env, policy, tmp_path, episodes=5)
    (shard,) = shards.find(tmp_path)
    fields = shards.read(shard, ["step_type", "next_step_type"])
    ends = np.flatnonzero(fields["step_type"][:, 0] == 2)
    lengths = np.diff(np.concatenate([[-1], ends])) - 1
    # Two of the lanes contribute two episodes, the third only its first.
    assert sorted(lengths.tolist()) == [1, 1, 1, 9, 9]
    assert ends[-1] == len(fields["step_type"]) - 1
    np.testing.assert_array_equal(fields["next_step_type"][:-1], fields["step_type"][1:])
    assert mean_return == (3 * 1 + 2 * 45) / 5
    env.close()


def test_an_episode_that_does_not_end_is_an_error(tmp_path):
    env, policy = make_env(1, (100,))
    with pytest.raises(errors.EnvironmentError, match="not ended within 20 steps"):
        demonstration.record_episodes(env, policy, tmp_path, episodes=1, max_episode_steps=20)
    env.close()

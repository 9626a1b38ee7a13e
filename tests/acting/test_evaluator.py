"""Evaluation counts the same number of episodes in every lane."""

import numpy as np
import pytest
from tf_agents.policies import random_py_policy

from actor_learner.acting import evaluator
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments import suite_gymnasium
from actor_learner.support import errors
from tests import counting_environment


def make(num_envs, episodes, lengths, **kwargs):
    env = gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID,
        num_envs,
        vectorization="sync",
        make_kwargs={"episode_lengths": lengths},
    )
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec())
    return evaluator.Evaluator(env, policy, episodes, **kwargs)


def test_every_lane_contributes_its_share_so_short_episodes_are_not_favoured():
    # Each lane plays lengths 1, 9, 1, 9, ...: stopping at the first 6 ends would see mostly ones.
    result = make(3, 6, (1, 9)).run()
    assert sorted(result.lengths) == [1, 1, 1, 9, 9, 9]
    assert sorted(result.returns) == [1, 1, 1, 45, 45, 45]


def test_a_remainder_goes_to_the_first_lanes():
    assert len(make(4, 6, (2,)).run().returns) == 6


def test_an_unbatched_environment_is_evaluated_too():
    env = suite_gymnasium.load(counting_environment.ENV_ID, gym_kwargs={"episode_lengths": (2, 3)})
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec())
    result = evaluator.Evaluator(env, policy, 2).run()
    np.testing.assert_array_equal(result.lengths, [2, 3])


def test_the_same_seed_gives_the_same_evaluation():
    env = gymnasium_environment.GymnasiumEnvironment("CartPole-v1", 4)
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)

    class Left:
        def reset(self):
            pass

        def act(self, time_step):
            return policy.action(time_step)._replace(action=np.zeros(4, np.int64))

    rater = evaluator.Evaluator(env, Left(), 8, seed=3)
    np.testing.assert_array_equal(rater.run().returns, rater.run().returns)


def test_an_episode_that_never_ends_is_an_error_and_not_a_hang():
    with pytest.raises(errors.EnvironmentError, match="has not ended within 50 steps"):
        make(1, 1, (1000,), max_episode_steps=50).run()


def test_on_step_is_called_before_the_first_step_and_after_each():
    calls = []
    make(1, 1, (4,)).run(on_step=lambda: calls.append(1))
    assert len(calls) == 5

"""The quicker check of actions answers as Gymnasium's does."""

import gymnasium
import numpy as np
import pytest

from actor_learner.environments import gymnasium as our_gymnasium
from actor_learner.environments import quick_actions
from actor_learner.support import errors


@pytest.fixture
def env():
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    yield env
    env.close()


@pytest.mark.parametrize(
    "action",
    [
        np.array([0, 1, 1]),
        np.array([0, 2, 1]),
        np.array([0, -1, 1]),
        np.array([0, 1]),
        np.array([[0, 1, 1]]),
        np.array([0, 1, 1], np.int32),
        np.array([0, 1, 3], np.int8),
        np.array([0.0, 1.0, 1.0]),
        np.array([0, 1, 1])[::-1],
        np.arange(6)[::2],
        [0, 1, 1],
        "left",
    ],
)
def test_the_same_actions_are_contained(env, action):
    wanted = env.action_space.contains(action)
    before = env.action_space
    quick_actions.quicken(env)
    assert env.action_space.contains(action) == wanted
    assert env.action_space == before
    assert type(env.action_space) is not type(before)


def test_lanes_with_other_choices_keep_their_space(env):
    env.action_space = gymnasium.spaces.MultiDiscrete([2, 3, 2])
    quick_actions.quicken(env)
    assert type(env.action_space) is gymnasium.spaces.MultiDiscrete


def test_an_action_out_of_range_is_refused_by_the_environment():
    env = our_gymnasium.GymnasiumEnvironment("CartPole-v1", 2)
    env.reset()
    assert type(env.vector_env.action_space) is not gymnasium.spaces.MultiDiscrete
    env.step(np.array([0, 1]))
    with pytest.raises(errors.EnvironmentError, match="invalid"):
        env.step(np.array([0, 2]))
    env.close()

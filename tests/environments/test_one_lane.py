"""Tests of `actor_learner.environments.one_lane`."""

import gymnasium
import numpy as np
import pytest
import tree
from gymnasium.vector import AutoresetMode

from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments import one_lane
from actor_learner.support import errors
from tests.environments import sample_environments


class Info(gymnasium.Wrapper):
    """Gives infos of several kinds, in some steps only."""

    def reset(self, **kwargs):
        self.steps = 0
        observation, _ = self.env.reset(**kwargs)
        return observation, {"begun": True}

    def step(self, action):
        self.steps += 1
        *rest, _ = self.env.step(action)
        info = {"steps": self.steps, "name": "x", "nested": {"half": self.steps / 2}}
        return *rest, info if self.steps % 2 else {}


def cartpole():
    return Info(gymnasium.make("CartPole-v1", max_episode_steps=12))


def pendulum():
    return gymnasium.make("Pendulum-v1", max_episode_steps=5)


@pytest.mark.parametrize("make", [cartpole, pendulum, sample_environments.AllSpacesEnv])
def test_gives_what_gymnasium_would_of_one_lane(make):
    theirs = gymnasium.vector.SyncVectorEnv([make], autoreset_mode=AutoresetMode.NEXT_STEP)
    ours = one_lane.OneLane(make())
    assert ours.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert ours.num_envs == theirs.num_envs == 1
    for name in ("observation_space", "action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
        assert getattr(ours, f"single_{name}") == getattr(theirs, f"single_{name}")
    ends = 0
    assert_same(ours.reset(seed=[3]), theirs.reset(seed=[3]))
    theirs.action_space.seed(4)
    for _ in range(60):
        action = theirs.action_space.sample()
        ours_given = ours.step(action)
        assert_same(ours_given, theirs.step(action))
        ends += bool(ours_given[2][0] or ours_given[3][0])
    assert ends > 1
    ours.close()
    theirs.close()


def assert_same(ours, theirs):
    tree.assert_same_structure(ours, theirs, check_types=False)
    for mine, their in zip(tree.flatten(ours), tree.flatten(theirs)):
        np.testing.assert_array_equal(mine, their)
        assert np.asarray(mine).dtype == np.asarray(their).dtype


def test_a_reset_in_the_middle_of_an_episode_begins_another():
    env = one_lane.OneLane(gymnasium.make("CartPole-v1", max_episode_steps=3))
    env.reset(seed=0)
    for _ in range(3):
        *_, truncated, _ = env.step(np.array([0]))
    assert truncated.tolist() == [True]
    env.reset()
    *_, truncated, _ = env.step(np.array([0]))  # A step, not another reset.
    assert env.env.get_wrapper_attr("_elapsed_steps") == 1
    assert truncated.tolist() == [False]
    env.close()


class Given(gymnasium.Env):
    """Answers every step with what the test says."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, observation, reward=1.0, terminated=False, truncated=False):
        self.answer = (observation, reward, terminated, truncated, {})

    def reset(self, **kwargs):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return self.answer


def test_numbers_in_arrays_of_one_element_are_taken_for_numbers():
    env = one_lane.OneLane(
        Given([0.5, 0.0], np.array([2.0]), np.array([True]), np.array([[False]]))
    )
    env.reset()
    _, reward, terminated, truncated, _ = env.step(np.array([0]))
    assert [reward.tolist(), terminated.tolist(), truncated.tolist()] == [[2.0], [True], [False]]
    assert env.step(np.array([0]))[1].tolist() == [0.0]  # The episode had ended.


@pytest.mark.parametrize(
    "answer, message",
    [
        (
            {"observation": np.zeros(3)},
            r"an observation has the shape \(3,\), but its space .*\(2,\)",
        ),
        ({"observation": np.zeros((1, 2))}, r"has the shape \(1, 2\)"),
        ({"observation": np.zeros(2), "reward": np.zeros(2)}, r"reward has the shape \(2,\)"),
    ],
)
def test_what_has_another_shape_than_it_should_is_an_error(answer, message):
    env = gymnasium_environment.GymnasiumEnvironment(lambda: Given(**answer))
    assert isinstance(env.vector_env, one_lane.OneLane)
    env.reset()
    with pytest.raises(errors.EnvironmentError, match=f"step of its 1 lane.*{message}"):
        env.step(np.array([0]))
    env.close()

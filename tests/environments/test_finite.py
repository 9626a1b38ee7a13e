"""Rewards and observations that are NaN or infinite are refused where they enter."""

import gin
import gymnasium
import numpy as np
import pytest
from tf_agents.environments import batched_py_environment, py_environment, wrappers
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import lanes, suite_gymnasium
from actor_learner.environments.gymnasium import GymnasiumEnvironment
from actor_learner.support import errors

POISON = "tests.environments.sample_environments:Poison"


class Scripted(gymnasium.Env):
    """Episodes of five steps; one step gives what it is told to give."""

    observation_space = gymnasium.spaces.Dict(
        camera=gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        inner=gymnasium.spaces.Tuple(
            [
                gymnasium.spaces.Discrete(3),
                gymnasium.spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
            ]
        ),
    )
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, at=None, reward=1.0, element=0.0):
        self._at, self._reward, self._element = at, reward, element
        self._steps = 0

    def _observation(self, element):
        matrix = np.array([[1.0, 2.0], [element, 3.0]])
        return {"camera": np.full((8, 8, 3), 255, np.uint8), "inner": (1, matrix)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._in_episode = 0
        return self._observation(0.0), {}

    def step(self, action):
        self._steps += 1
        self._in_episode += 1
        now = self._steps == self._at
        return (
            self._observation(self._element if now else 0.0),
            self._reward if now else 1.0,
            self._in_episode == 5,
            False,
            {},
        )


def cartpoles(**poison):
    return GymnasiumEnvironment("CartPole-v1", 2, wrappers=[(POISON, poison)], seed=0)


def scripted(at, num_lanes=3, bad_lane=2, **values):
    made = iter(range(num_lanes))

    def make():
        return Scripted(at, **values) if next(made) == bad_lane else Scripted()

    return GymnasiumEnvironment(make, num_lanes, vectorization="sync")


def steps_until_refused(env, action=None):
    """Steps it until it raises; returns the number of steps it took, and the message."""
    batch = (env.batch_size,) if env.batched else ()
    action = np.zeros(batch, np.int64) if action is None else action
    env.reset()
    for count in range(1, 100):
        try:
            env.step(action)
        except errors.NotFiniteError as error:
            return count, str(error)
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    "vectorization, value",
    [("sync", np.nan), ("sync", np.inf), ("sync", -np.inf), ("async", np.nan)],
)
def test_a_reward_is_refused_with_its_lane_and_step(vectorization, value):
    env = GymnasiumEnvironment(
        "CartPole-v1",
        2,
        vectorization=vectorization,
        wrappers=[(POISON, {"at": 3, "value": float(value)})],
    )
    with env:
        count, message = steps_until_refused(env)
    assert count == 3
    assert message.startswith(
        f"environment 'CartPole-v1': reward of lane 0 is {value} at step 3 of its episode, step 3 "
        "in all (2 values of this field are not finite)."
    )
    assert "GymnasiumEnvironment.check_finite = False" in message


def test_steps_are_counted_through_episodes_and_within_them():
    # Steps 1 to 5 are the first episode, call 6 resets, so step 7 of the lane is call 8.
    count, message = steps_until_refused(scripted(7, reward=np.inf))
    assert count == 8
    assert "reward of lane 2 is inf at step 2 of its episode, step 8 in all. " in message


def test_a_part_of_a_nested_observation_is_named_to_the_element():
    _, message = steps_until_refused(scripted(2, element=np.nan))
    assert "observation['inner'][1][1, 0] of lane 2 is nan at step 2 of its episode" in message


@pytest.mark.parametrize("values", [{"reward": np.nan}, {"element": np.inf}])
def test_the_last_step_of_an_episode_counts(values):
    count, message = steps_until_refused(scripted(5, **values))
    assert count == 5 and "at step 5 of its episode" in message


def test_what_a_reset_gives_counts():
    with pytest.raises(errors.NotFiniteError, match=r"observation\[3\] of lane 0 .* step 0 of its"):
        cartpoles(at=0, field="observation").reset()


def test_the_reward_of_a_reset_lane_is_nobodys():
    # A vector environment whose step that resets a lane says nothing of worth about the reward.
    env = scripted(None)
    inner = env.vector_env.step

    def step(action):
        observation, reward, terminated, truncated, info = inner(action)
        reward = np.where(env._ended, np.nan, reward)
        return observation, reward, terminated, truncated, info

    env.vector_env.step = step
    env.reset()
    for _ in range(12):
        time_step = env.step(np.zeros(3, np.int64))
        assert np.isfinite(time_step.reward).all()


def test_large_numbers_whose_squares_overflow_pass():
    env = scripted(2, reward=1e30, element=1e300)
    env.reset()
    for _ in range(2):
        time_step = env.step(np.zeros(3, np.int64))
    assert time_step.reward[2] == np.float32(1e30)
    assert time_step.observation["inner"][1][2, 1, 0] == 1e300


def test_a_binding_turns_it_off():
    with gin.unlock_config():
        gin.bind_parameter("GymnasiumEnvironment.check_finite", False)
    try:
        env = cartpoles(at=2)
    finally:
        gin.clear_config()
    env.reset()
    rewards = [env.step(np.zeros(2, np.int64)).reward for _ in range(2)]
    assert np.isnan(rewards[1]).all() and not env.check_finite


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_the_tf_agents_wrapper_refuses_too(field):
    poison = (POISON, {"at": 4, "field": field})
    env = suite_gymnasium.load("CartPole-v1", gym_env_wrappers=[poison])
    count, message = steps_until_refused(env)
    assert count == 4 and f"{field}{'[3]' * (field == 'observation')} of lane 0 is nan" in message
    assert "at step 4 of its episode" in message

    env = suite_gymnasium.load("CartPole-v1", gym_env_wrappers=[poison], check_finite=False)
    single = lanes.as_lanes(env)  # Which leaves the decision to the environment, wrapped or not.
    single.reset()
    for _ in range(4):
        time_step = single.step(np.zeros(1, np.int64))
    assert not np.isfinite(time_step.reward[0] + time_step.observation.sum())


class Own(py_environment.PyEnvironment):
    """A user's environment: episodes of three steps, of which the fifth gives a NaN."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._steps = 0

    def observation_spec(self):
        return array_spec.ArraySpec((2,), np.float32)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        self._in_episode = 0
        return ts.restart(np.zeros(2, np.float32))

    def _step(self, action):
        self._steps += 1
        self._in_episode += 1
        observation = np.array([0.0, np.nan if self._steps == 5 else 1.0], np.float32)
        if self._in_episode == 3:
            return ts.termination(observation, 1.0)
        return ts.transition(observation, 1.0)


@pytest.mark.parametrize(
    "make", [Own, lambda: batched_py_environment.BatchedPyEnvironment([Own(), Own()])]
)
def test_environments_of_others_are_looked_at_where_an_actor_takes_them(make):
    driven = lanes.as_lanes(make())
    driven.reset()
    with pytest.raises(
        errors.NotFiniteError, match=r"observation\[1\] of lane 0 is nan at step 2 "
    ):
        for _ in range(10):
            driven.step(np.zeros(driven.num_lanes, np.int32))


def test_an_environment_of_another_may_do_without():
    class Careless(Own):
        check_finite = False

    driven = lanes.as_lanes(wrappers.RunStats(Careless()))
    driven.reset()
    seen = [driven.step(np.zeros(1, np.int32)).observation[0, 1] for _ in range(8)]
    assert np.isnan(seen).sum() == 1

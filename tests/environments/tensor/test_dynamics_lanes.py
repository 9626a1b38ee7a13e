"""Time limits, resets and step types, with dynamics that count."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.environments import utils

from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments.tensor import dynamics as dynamics_lib
from actor_learner.environments.tensor import environment, pendulum
from actor_learner.support import errors

FIRST, MID, LAST = 0, 1, 2


class Counting(dynamics_lib.Dynamics):
    """Counts up by the action; terminates at `goal` in even lanes, never in odd ones."""

    observation_space = gymnasium.spaces.Box(-1000.0, 1000.0, (2,))
    action_space = gymnasium.spaces.Box(-100.0, 100.0, ())
    max_episode_steps = 4

    def __init__(self, goal=3.0):
        self._goal = goal

    def reset(self, num_lanes, seed):
        return tf.stack([tf.zeros([num_lanes]), tf.range(num_lanes, dtype=tf.float32)], axis=1)

    def step(self, state, action, seed):
        count = state[:, 0] + action
        even = tf.equal(tf.math.floormod(state[:, 1], 2.0), 0.0)
        return dynamics_lib.Outcome(
            tf.stack([count, state[:, 1]], axis=1), count, tf.logical_and(even, count >= self._goal)
        )

    def observe(self, state):
        return state


def test_lanes_end_and_begin_each_in_their_own_time():
    env = environment.TensorEnvironment(Counting(), 2, discount=0.9)
    seen = [env.reset()]
    for action in (1.0, 1.0, 1.0, 50.0, 1.0, 1.0):
        seen.append(env.step(np.full(2, action, np.float32)))
    by_lane = lambda field: np.array([getattr(step, field) for step in seen]).T.tolist()  # noqa: E731
    assert by_lane("step_type") == [
        [FIRST, MID, MID, LAST, FIRST, MID, MID],  # Terminated at 3.
        [FIRST, MID, MID, MID, LAST, FIRST, MID],  # Truncated after 4 steps.
    ]
    # The action of 50 is ignored in the lane that begins, and true final observations are shown.
    counts = np.array([step.observation[:, 0] for step in seen]).T.tolist()
    assert counts == [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 3, 53, 0, 1]]
    assert by_lane("reward") == [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 3, 53, 0, 1]]
    np.testing.assert_allclose(
        by_lane("discount"),
        [[1, 0.9, 0.9, 0, 1, 0.9, 0.9], [1, 0.9, 0.9, 0.9, 0.9, 1, 0.9]],
    )


def test_terminated_wins_over_truncated():
    env = environment.TensorEnvironment(Counting(goal=4.0), 1)
    env.reset()
    for _ in range(4):
        time_step = env.step(np.ones(1, np.float32))
    assert time_step.step_type[0] == LAST and time_step.discount[0] == 0.0


@pytest.mark.parametrize("limit, length", [(2, 2), (None, 4), (0, 9)])
def test_a_time_limit_can_be_set_and_lifted(limit, length):
    env = environment.TensorEnvironment(Counting(goal=9.0), 1, max_episode_steps=limit)
    env.reset()
    steps = 1
    while env.step(np.ones(1, np.float32)).step_type[0] != LAST:
        steps += 1
    assert steps == length


def test_time_steps_are_those_of_the_gymnasium_environment():
    """The same actions from the same states: step types, rewards, discounts and dtypes agree."""
    ours = environment.TensorEnvironment(pendulum.PendulumDynamics(), 3, seed=1)
    theirs = gymnasium_environment.GymnasiumEnvironment("Pendulum-v1", 3, vectorization="sync")
    step, other = ours.reset(), theirs.reset()
    states = ours._carry[0].numpy()
    for env, state in zip(theirs.vector_env.envs, states):
        env.unwrapped.state = state.astype(np.float64)
    random = np.random.default_rng(0)
    assert ours.time_step_spec() == theirs.time_step_spec()
    for _ in range(200):
        action = random.uniform(-2, 2, (3, 1)).astype(np.float32)
        step, other = ours.step(action), theirs.step(action)
        for one, another in zip(step[:3], other[:3]):
            assert one.dtype == another.dtype
            np.testing.assert_allclose(one, another, rtol=2e-2, atol=2e-2)
    assert step.step_type.tolist() == [LAST] * 3
    assert ours.step(action).step_type.tolist() == theirs.step(action).step_type.tolist()
    theirs.close()


def test_seeds_repeat_and_differ():
    def first_observations(seed):
        env = environment.TensorEnvironment(pendulum.PendulumDynamics(), 4, seed=seed)
        return np.stack([env.reset().observation, env.reset().observation])

    one = first_observations(1)
    assert (one == first_observations(1)).all()
    assert (one != first_observations(2)).any()
    assert len(np.unique(one[:, :, 2])) == 8  # Lanes and resets differ from one another.


def test_every_reset_after_an_episode_is_another_one():
    env = environment.TensorEnvironment(pendulum.PendulumDynamics(), 2, seed=1, max_episode_steps=1)
    begun = [env.reset().observation[:, 2]]
    for _ in range(5):
        env.step(np.zeros((2, 1), np.float32))
        begun.append(env.step(np.zeros((2, 1), np.float32)).observation[:, 2])
    assert len(np.unique(begun)) == 12


def test_it_is_a_valid_py_environment():
    env = environment.TensorEnvironment(pendulum.PendulumDynamics(), 2, seed=1)
    utils.validate_py_environment(env, episodes=1)


def test_what_is_not_finite_is_refused_where_it_enters():
    env = environment.TensorEnvironment(Counting(), 2)
    env.reset()
    with pytest.raises(errors.NotFiniteError, match=r"'Counting'.*lane 1 is nan.*check_finite"):
        env.step(np.array([1.0, np.nan], np.float32))
    lenient = environment.TensorEnvironment(Counting(), 2, check_finite=False)
    lenient.reset()
    assert np.isnan(lenient.step(np.array([1.0, np.nan], np.float32)).reward[1])


def test_an_observation_that_breaks_its_space_is_refused():
    class Wrong(Counting):
        def observe(self, state):
            return state[:, 0]

    with pytest.raises(errors.SpecMismatchError, match=r"Wrong.*float32 \[2\].*float32 \[2, 2\]"):
        environment.TensorEnvironment(Wrong(), 2)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"discount": 2.0}, "discount is 2.0"),
        ({"max_episode_steps": -1}, "max_episode_steps is -1"),
        ({"render_mode": "human"}, "render_mode is 'human'"),
        ({"dynamics": Counting}, "with parentheses"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, words):
    with pytest.raises(errors.ConfigError, match=words):
        environment.TensorEnvironment(**{"dynamics": Counting(), **arguments})


def test_dynamics_that_cannot_be_drawn_say_so():
    env = environment.TensorEnvironment(Counting(), 1, render_mode="rgb_array")
    env.reset()
    with pytest.raises(errors.ConfigError, match="Counting cannot be drawn"):
        env.render()
    silent = environment.TensorEnvironment(Counting(), 1)
    silent.reset()
    with pytest.raises(errors.ConfigError, match="render_mode=None"):
        silent.render()

"""Every step of our dynamics against the Gymnasium environment of the same rules."""

import math

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from actor_learner.environments.tensor import acrobot, cartpole, mountain_car, pendulum

LANES = 300

CASES = {
    "CartPole-v1": (cartpole.CartPoleDynamics, [2.5, 3.0, 0.25, 3.0]),
    "Pendulum-v1": (pendulum.PendulumDynamics, [3 * math.pi, 8.0]),
    "Acrobot-v1": (acrobot.AcrobotDynamics, [math.pi, math.pi, 4 * math.pi, 9 * math.pi]),
    "MountainCar-v0": (mountain_car.MountainCarDynamics, [1.2, 0.07]),
    "MountainCarContinuous-v0": (mountain_car.MountainCarContinuousDynamics, [1.2, 0.07]),
}


def states_and_actions(env, high):
    random = np.random.default_rng(0)
    states = random.uniform(-1.0, 1.0, (LANES, len(high))) * high
    if "MountainCar" in env.spec.id:
        states[:, 0] = random.uniform(-1.2, 0.6, LANES)
        states[:10] = [-1.199, -0.07]  # Into the wall.
        states[10:20] = [0.44, 0.06]  # Across the line.
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        actions = random.integers(env.action_space.n, size=LANES)
    else:
        actions = random.uniform(-1.5, 1.5, (LANES, 1)).astype(np.float32) * env.action_space.high
    return states.astype(np.float32), actions


def gymnasium_step(env, state, action):
    """What Gymnasium makes of a step from `state`."""
    inner = env.unwrapped
    inner.state = np.array(state, np.float64)
    inner.steps_beyond_terminated = None  # CartPole counts them.
    observation, reward, terminated, _, _ = inner.step(action)
    return observation, reward, terminated


@pytest.mark.parametrize("env_id", CASES)
def test_every_step_is_that_of_gymnasium(env_id):
    make, high = CASES[env_id]
    dynamics = make()
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    states, actions = states_and_actions(env, high)
    outcome = dynamics.step(
        tf.constant(states), tf.constant(actions), tf.constant([1, 2], tf.int64)
    )
    observation = dynamics.observe(outcome.state).numpy()
    ended = 0
    for lane in range(LANES):
        expected, reward, terminated = gymnasium_step(env, states[lane], actions[lane])
        np.testing.assert_allclose(observation[lane], expected, rtol=1e-4, atol=2e-4)
        np.testing.assert_allclose(outcome.reward[lane], reward, rtol=1e-5, atol=1e-5)
        assert bool(outcome.terminated[lane]) == terminated
        ended += terminated
    assert ended > 0 or env_id == "Pendulum-v1"


@pytest.mark.parametrize("env_id", CASES)
def test_spaces_and_time_limits_are_those_of_gymnasium(env_id):
    dynamics = CASES[env_id][0]()
    env = gymnasium.make(env_id)
    assert dynamics.max_episode_steps == env.spec.max_episode_steps
    assert dynamics.action_space == env.action_space
    assert dynamics.observation_space == env.observation_space


@pytest.mark.parametrize("env_id", CASES)
def test_episodes_begin_where_those_of_gymnasium_do(env_id):
    dynamics = CASES[env_id][0]()
    fresh = dynamics.reset(2_000, tf.constant([3, 4], tf.int64))
    observed = dynamics.observe(fresh).numpy()
    env = (
        gymnasium.make_vec(env_id, num_envs=2_000, vectorization_mode="vector_entry_point")
        if (env_id == "CartPole-v1")
        else gymnasium.make_vec(env_id, num_envs=2_000, vectorization_mode="sync")
    )
    expected, _ = env.reset(seed=0)
    env.close()
    # Uniform distributions: alike in mean, spread and extremes.
    spread = expected.std(axis=0) + 1e-6
    assert np.all(np.abs(observed.mean(axis=0) - expected.mean(axis=0)) < 0.15 * spread)
    assert np.all(np.abs(observed.std(axis=0) - expected.std(axis=0)) < 0.05 * spread + 1e-6)
    assert np.all(np.abs(observed.min(axis=0) - expected.min(axis=0)) < 0.05 * spread + 1e-3)
    assert np.all(np.abs(observed.max(axis=0) - expected.max(axis=0)) < 0.05 * spread + 1e-3)


@pytest.mark.parametrize("env_id", CASES)
def test_a_picture_shows_the_state(env_id):
    dynamics = CASES[env_id][0]()
    one, other = dynamics.reset(2, tf.constant([5, 6], tf.int64)).numpy()
    other[0] += 0.5
    pictures = [dynamics.render(one), dynamics.render(other)]
    assert pictures[0].dtype == np.uint8 and pictures[0].shape[2] == 3
    assert (pictures[0] != pictures[1]).any()
    assert (dynamics.render(one) == pictures[0]).all()

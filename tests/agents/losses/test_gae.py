"""Advantages, against a loop in NumPy that follows the definition."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.agents.losses import gae

FIRST, MID, LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))


def random_unroll(generator, batch, length, end_rate=0.2):
    """Unrolls in which episodes terminate and are truncated, also in their first and last rows."""
    step_type = np.empty((batch, length + 1), np.int32)
    discount = np.ones((batch, length + 1), np.float32)
    for lane in range(batch):
        kind = generator.choice([FIRST, MID, LAST])
        for row in range(length + 1):
            step_type[lane, row] = kind
            if kind == LAST:
                kind = FIRST
            elif generator.random() < end_rate:
                kind = LAST
                discount[lane, row] = generator.choice([0.0, 1.0])
            else:
                kind = MID
    # Row T holds an observation only; what else stands in it must not matter.
    next_step_type = np.concatenate([step_type[:, 1:], np.zeros((batch, 1), np.int32)], axis=1)
    discount[:, -1] = 0.0
    reward = generator.normal(size=(batch, length + 1)).astype(np.float32)
    return trajectory_lib.Trajectory(step_type, (), (), (), next_step_type, reward, discount)


def reference(trajectory, reward, value, gamma, gae_lambda):
    """Advantages by the definition, one step after the other, episode by episode."""
    batch, rows = reward.shape
    advantage = np.zeros((batch, rows - 1))
    for lane in range(batch):
        later = 0.0
        for row in reversed(range(rows - 1)):
            if trajectory.step_type[lane, row] == LAST:
                later = 0.0
                continue
            ends = trajectory.next_step_type[lane, row] == LAST
            terminated = ends and trajectory.discount[lane, row] == 0.0
            next_value = 0.0 if terminated else float(value[lane, row + 1])
            delta = float(reward[lane, row]) + gamma * next_value - float(value[lane, row])
            later = delta + (0.0 if ends else gamma * gae_lambda * later)
            advantage[lane, row] = later
    return advantage


@pytest.mark.parametrize("length", [1, 2, 7, 33])
@pytest.mark.parametrize("gamma, gae_lambda", [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0)])
def test_advantages_equal_the_definition_on_random_unrolls(length, gamma, gae_lambda):
    generator = np.random.default_rng(length)
    trajectory = random_unroll(generator, batch=32, length=length)
    value = generator.normal(size=(32, length + 1)).astype(np.float32)
    result = gae.advantages(
        trajectory, trajectory.reward, value, gamma=gamma, gae_lambda=gae_lambda
    )
    expected = reference(trajectory, trajectory.reward, value, gamma, gae_lambda)
    steps = trajectory.step_type[:, :-1] != LAST
    assert 0 < np.count_nonzero(~steps) < steps.size
    np.testing.assert_array_equal(result.mask, steps)
    np.testing.assert_allclose(result.advantage, expected, atol=1e-5)
    np.testing.assert_allclose(result.value_target, expected + value[:, :-1], atol=1e-5)


def test_a_truncated_episode_bootstraps_from_its_final_observation_a_terminated_one_from_nothing():
    # Two lanes, alike but for the discount: a step, the end of the episode, the next episode.
    step_type = np.array([[MID, LAST, FIRST]] * 2, np.int32)
    trajectory = trajectory_lib.Trajectory(
        step_type,
        (),
        (),
        (),
        np.array([[LAST, FIRST, MID]] * 2, np.int32),
        np.array([[1.0, 50.0, 50.0]] * 2, np.float32),
        np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]], np.float32),
    )
    value = np.array([[2.0, 10.0, 100.0]] * 2, np.float32)
    result = gae.advantages(trajectory, trajectory.reward, value, gamma=0.5, gae_lambda=1.0)
    np.testing.assert_allclose(result.value_target[:, 0], [1.0 + 0.5 * 10.0, 1.0])
    np.testing.assert_allclose(result.advantage, [[4.0, 0.0], [-1.0, 0.0]])


def test_sums_of_unknown_length_are_the_same_in_a_graph():
    generator = np.random.default_rng(0)
    term = generator.normal(size=(3, 19)).astype(np.float32)
    decay = generator.uniform(size=(3, 19)).astype(np.float32)
    spec = tf.TensorSpec([None, None], tf.float32)
    sums = tf.function(gae.backward_sums, autograph=False, input_signature=[spec, spec])
    expected = np.zeros_like(term)
    later = np.zeros(3)
    for column in reversed(range(19)):
        later = term[:, column] + decay[:, column] * later
        expected[:, column] = later
    np.testing.assert_allclose(sums(term, decay), expected, atol=1e-5)

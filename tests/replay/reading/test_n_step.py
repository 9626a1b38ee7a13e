"""n-step returns against a plain NumPy reference, with episode ends inside the window."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.reading import n_step

FIRST, MID, LAST = 0, 1, 2


def random_windows(batch, length, seed):
    """Windows whose first step is not LAST, with terminations, truncations and outside resets."""
    generator = np.random.default_rng(seed)
    step_type = np.zeros((batch, length), np.int32)
    next_type = np.zeros((batch, length), np.int32)
    discount = np.ones((batch, length), np.float32)
    for b in range(batch):
        kind = generator.choice([FIRST, MID])
        for t in range(length):
            step_type[b, t] = kind
            if kind == LAST:
                following = FIRST
            else:
                following = LAST if generator.random() < 0.25 else MID
                if following == LAST and generator.random() < 0.5:
                    discount[b, t] = 0.0
            next_type[b, t] = following
            kind = FIRST if t > 0 and generator.random() < 0.05 else following
    reward = generator.normal(size=(batch, length)).astype(np.float32)
    observation = np.stack(np.meshgrid(np.arange(batch), np.arange(length), indexing="ij"), -1)
    return trajectory_lib.Trajectory(
        step_type,
        observation.astype(np.float32),
        np.zeros((batch, length), np.int64),
        (),
        next_type,
        reward,
        discount,
    )


def reference(window, b, gamma):
    """(reward, discount, index of the bootstrap row), step by step in Python."""
    length = window.step_type.shape[1]
    total, product = 0.0, 1.0
    for k in range(length - 1):
        if k > 0 and window.step_type[b, k] == LAST:
            return total, product * gamma ** (k - 1), k
        if k > 0 and window.next_step_type[b, k] != window.step_type[b, k + 1]:
            return total, product * gamma ** (k - 1), k
        total += gamma**k * product * window.reward[b, k]
        product *= window.discount[b, k]
    return total, product * gamma ** (length - 2), length - 1


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_folding_equals_the_reference(n):
    window = random_windows(400, n + 1, seed=n)
    valid = np.asarray(n_step.valid_windows(window.step_type, window.next_step_type))
    window = tf.nest.map_structure(lambda leaf: leaf[valid], window)
    folded = n_step.fold(tf.nest.map_structure(tf.constant, window), gamma=0.9)
    ended_early = 0
    for b in range(len(window.reward)):
        reward, discount, last = reference(window, b, 0.9)
        np.testing.assert_allclose(folded.reward[b, 0], reward, atol=1e-5)
        np.testing.assert_allclose(folded.discount[b, 0], discount, atol=1e-6)
        assert folded.observation[b, 1, 1] == last
        assert folded.observation[b, 0, 1] == 0
        assert folded.next_step_type[b, 0] == window.step_type[b, last]
        ended_early += last < n
    assert n == 1 or ended_early > 20


def test_a_truncated_episode_bootstraps_from_its_final_observation_and_a_terminated_one_does_not():
    def window(discount_at_end):
        return trajectory_lib.Trajectory(
            step_type=tf.constant([[MID, MID, LAST, FIRST]]),
            observation=tf.constant([[[10.0], [11.0], [12.0], [0.0]]]),
            action=tf.zeros([1, 4], tf.int64),
            policy_info=(),
            next_step_type=tf.constant([[MID, LAST, FIRST, MID]]),
            reward=tf.constant([[1.0, 2.0, 0.0, 5.0]]),
            discount=tf.constant([[1.0, discount_at_end, 1.0, 1.0]]),
        )

    truncated = n_step.fold(window(1.0), gamma=0.5)
    terminated = n_step.fold(window(0.0), gamma=0.5)
    assert truncated.observation[0, 1, 0] == 12.0 == terminated.observation[0, 1, 0]
    assert truncated.reward[0, 0] == 2.0 == terminated.reward[0, 0]
    assert truncated.discount[0, 0] == 0.5
    assert terminated.discount[0, 0] == 0.0


def test_boundary_steps_and_outside_resets_are_no_valid_start():
    step_type = tf.constant([[FIRST, MID], [LAST, FIRST], [MID, FIRST], [MID, LAST]])
    next_type = tf.constant([[MID, MID], [FIRST, MID], [MID, MID], [LAST, FIRST]])
    assert n_step.valid_windows(step_type, next_type).numpy().tolist() == [True, False, False, True]

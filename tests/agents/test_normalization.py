"""Running statistics, against NumPy over all the data at once."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.agents import normalization
from actor_learner.support import errors
from tests.agents.losses import test_gae

B = tensor_spec.BoundedTensorSpec
SPEC = {
    "camera": B([12, 12, 3], tf.float32, 0, 1),
    "choice": B([2], tf.int64, 0, 3),
    "joints": B([3], tf.float64, -10, 10),
    "position": B([2], tf.float32, -10, 10),
}


def observations(generator, batch, length):
    return {
        "camera": generator.random((batch, length, 12, 12, 3)).astype(np.float32),
        "choice": generator.integers(0, 4, (batch, length, 2)),
        "joints": generator.normal(3.0, [0.1, 1.0, 10.0], (batch, length, 3)),
        "position": generator.normal(-50.0, 2.0, (batch, length, 2)).astype(np.float32),
    }


def test_moments_equal_those_of_all_values_at_once():
    generator = np.random.default_rng(0)
    parts = [generator.normal(size, 3.0, (size, 2)).astype(np.float32) for size in (1, 5, 40, 7)]
    moments = normalization.RunningMoments([2], "values")
    for part in parts:
        moments.update(tf.constant(part))
    everything = np.concatenate(parts).astype(np.float64)
    assert moments.count.numpy() == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, everything.var(axis=0), rtol=1e-5)


def test_values_without_weight_do_not_count():
    generator = np.random.default_rng(1)
    values = generator.normal(2.0, 5.0, (50, 3)).astype(np.float32)
    weights = (generator.random(50) < 0.5).astype(np.float32)
    moments = normalization.RunningMoments([3], "values")
    moments.update(tf.zeros([4, 3]), tf.zeros([4]))
    np.testing.assert_array_equal(moments.variance, np.ones(3))
    moments.update(tf.constant(values), tf.constant(weights))
    moments.update(tf.constant(values[:2]), tf.zeros([2]))
    counted = values[weights > 0]
    assert moments.count.numpy() == len(counted)
    np.testing.assert_allclose(moments.mean, counted.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, counted.var(axis=0), rtol=1e-4)


def test_float_vectors_are_normalised_and_images_and_integers_are_left_alone():
    generator = np.random.default_rng(2)
    normalizer = normalization.ObservationNormalizer(SPEC, limit=2.0)
    seen = [observations(generator, 4, 6) for _ in range(3)]
    before = normalizer.normalize(seen[0])
    np.testing.assert_allclose(before["joints"], np.clip(seen[0]["joints"], -2, 2), rtol=1e-5)
    for observation in seen:
        normalizer.update(observation)
    # As the learner sees them, [batch, T], and as an actor does, [lanes].
    for new in (observations(generator, 4, 6), {k: v[0] for k, v in seen[1].items()}):
        result = normalizer.normalize(new)
        for key in ("camera", "choice"):
            np.testing.assert_array_equal(result[key], new[key])
        for key in ("joints", "position"):
            values = np.concatenate([o[key].reshape(-1, o[key].shape[-1]) for o in seen])
            expected = (new[key] - values.mean(axis=0)) / values.std(axis=0)
            assert result[key].dtype == SPEC[key].dtype
            np.testing.assert_allclose(result[key], np.clip(expected, -2, 2), atol=2e-4)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_small_and_large_values_are_normalised_alike_and_constants_stay_quiet(scale):
    generator = np.random.default_rng(6)
    spec = B([2], tf.float32, -1e9, 1e9)
    normalizer = normalization.ObservationNormalizer(spec)
    values = generator.normal(2.0, 1.0, (8, 50, 2))
    values[..., 1] = 3.7
    normalizer.update(tf.constant(scale * values, tf.float32))
    result = normalizer.normalize(tf.constant(scale * values, tf.float32)).numpy()
    np.testing.assert_allclose(result[..., 0].std(), 1.0, rtol=1e-3)
    assert np.abs(result[..., 1]).max() < 0.1


def test_rewards_are_scaled_by_the_deviation_of_returns_that_run_on_between_unrolls():
    generator = np.random.default_rng(3)
    normalizer = normalization.RewardNormalizer(gamma=0.9, limit=100.0)
    rows, batch = 40, 6
    whole = test_gae.random_unroll(generator, batch, rows)
    returns = []
    for lane in range(batch):
        total = 0.0
        for row in range(rows):
            if whole.step_type[lane, row] == test_gae.LAST:
                total = 0.0
                continue
            total = 0.9 * total + float(whole.reward[lane, row])
            returns.append(total)
    for start in (0, 10, 20, 30):  # Four unrolls of ten steps, which share their outer rows.
        leaves = [tf.constant(leaf[:, start : start + 11]) for leaf in tf.nest.flatten(whole)]
        normalizer.update(tf.nest.pack_sequence_as(whole, leaves))
    assert normalizer.moments.count.numpy() == len(returns)
    np.testing.assert_allclose(normalizer.moments.variance, np.var(returns), rtol=1e-5)
    np.testing.assert_allclose(
        normalizer.normalize(whole.reward), whole.reward / np.std(returns), rtol=1e-5
    )


def test_returns_begin_anew_with_an_episode_whatever_the_batch_before_ended_with():
    """A lane of another actor, or of a run that is resumed, begins an episode in row 0."""
    generator = np.random.default_rng(5)
    normalizer = normalization.RewardNormalizer(gamma=0.9)
    running, returns = np.zeros(4), []
    for number in range(3):
        unroll = test_gae.random_unroll(generator, 4, 7)
        step_type = np.array(unroll.step_type)
        step_type[:2, 0] = test_gae.FIRST if number else step_type[:2, 0]
        step_type[2:, 0] = test_gae.MID
        unroll = unroll._replace(step_type=tf.constant(step_type))
        for lane in range(4):
            for row in range(7):
                if step_type[lane, row] in (test_gae.FIRST, test_gae.LAST):
                    running[lane] = 0.0
                if step_type[lane, row] != test_gae.LAST:
                    running[lane] = 0.9 * running[lane] + float(unroll.reward[lane, row])
                    returns.append(running[lane])
        normalizer.update(unroll)
        np.testing.assert_allclose(normalizer.running, running, rtol=1e-5)
    assert normalizer.moments.count.numpy() == len(returns)
    np.testing.assert_allclose(normalizer.moments.variance, np.var(returns), rtol=1e-5)


def test_rows_that_come_new_into_larger_batches_start_with_no_return():
    normalizer = normalization.RewardNormalizer(gamma=1.0)
    update = tf.function(normalizer.update, autograph=False, reduce_retracing=True)

    def unroll(batch):
        ones = tf.ones([batch, 3])
        kinds = tf.ones([batch, 3], tf.int32)
        return trajectory_lib.Trajectory(kinds, (), (), (), kinds, ones, ones)

    for batch, expected in ((2, [2.0] * 2), (2, [4.0] * 2), (3, [6.0, 6.0, 2.0]), (1, [8.0])):
        update(unroll(batch))
        np.testing.assert_allclose(normalizer.running, expected)


def test_statistics_survive_a_checkpoint(tmp_path):
    generator = np.random.default_rng(4)

    def make():
        return tf.train.Checkpoint(
            observations=normalization.ObservationNormalizer(SPEC),
            rewards=normalization.RewardNormalizer(gamma=0.9),
        )

    saved, restored = make(), make()
    observation = observations(generator, 4, 6)
    trajectory = test_gae.random_unroll(generator, 5, 8)
    saved.observations.update(observation)
    saved.rewards.update(trajectory)
    path = saved.save(str(tmp_path / "statistics"))
    restored.restore(path).assert_consumed()
    for key, value in saved.observations.normalize(observation).items():
        np.testing.assert_array_equal(restored.observations.normalize(observation)[key], value)
    np.testing.assert_array_equal(restored.rewards.running, saved.rewards.running)
    np.testing.assert_array_equal(restored.rewards.normalize(1.0), saved.rewards.normalize(1.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: normalization.ObservationNormalizer(SPEC, limit=0.0),
        lambda: normalization.RewardNormalizer(0.9, limit=-1.0),
    ],
)
def test_limits_that_leave_nothing_are_refused(make):
    with pytest.raises(errors.ConfigError, match="limit"):
        make()

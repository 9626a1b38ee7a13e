"""Distributions over actions, against TensorFlow Probability and NumPy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.specs import tensor_spec

from actor_learner.agents import action_distribution
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
CHOICE = B([], tf.int64, 3, 5)
CHOICES = B([2, 2], tf.int32, [[0, 1], [0, -1]], [[1, 4], [2, 0]])  # 2, 4, 3 and 2 values.
NUMBERS = B([2], tf.float32, [-2.0, 0.0], [2.0, 1.0])
NESTED = {"a": CHOICES, "b": (NUMBERS, CHOICE)}


def random_parameters(distribution, *outer, seed=0):
    generator = np.random.default_rng(seed)
    return tf.constant(generator.normal(size=(*outer, distribution.num_parameters)), tf.float32)


def test_a_scalar_choice_equals_the_categorical_distribution():
    distribution = action_distribution.ActionDistribution(CHOICE)
    parameters = random_parameters(distribution, 6, 4)
    action = np.random.default_rng(1).integers(3, 6, size=(6, 4))
    reference = tfp.distributions.Categorical(logits=parameters)
    np.testing.assert_allclose(
        distribution.log_probability(parameters, action, None),
        reference.log_prob(action - 3),
        atol=1e-6,
    )
    np.testing.assert_allclose(distribution.entropy(parameters), reference.entropy(), atol=1e-6)


def test_choices_with_different_numbers_of_values_are_independent():
    distribution = action_distribution.ActionDistribution(CHOICES)
    assert distribution.num_parameters == 4 * 4
    parameters = random_parameters(distribution, 5)
    logits = parameters.numpy().reshape(5, 4, 4)
    counts, lows = [2, 4, 3, 2], [0, 1, 0, -1]
    generator = np.random.default_rng(2)
    action = np.stack([generator.integers(low, low + n, 5) for low, n in zip(lows, counts)], axis=1)
    log_probability, entropy = np.zeros(5), np.zeros(5)
    for choice, (low, count) in enumerate(zip(lows, counts)):
        exponentials = np.exp(logits[:, choice, :count])
        probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        log_probability += np.log(probabilities[np.arange(5), action[:, choice] - low])
        entropy -= (probabilities * np.log(probabilities)).sum(axis=1)
    found = distribution.log_probability(parameters, action.reshape(5, 2, 2), None)
    np.testing.assert_allclose(found, log_probability, atol=1e-5)
    np.testing.assert_allclose(distribution.entropy(parameters), entropy, atol=1e-5)


def test_numbers_are_a_gaussian_over_what_was_drawn():
    distribution = action_distribution.ActionDistribution(NUMBERS)
    parameters = random_parameters(distribution, 7, 3)
    raw = tf.random.normal([7, 3, 2])
    reference = tfp.distributions.MultivariateNormalDiag(
        parameters[..., :2], tf.exp(parameters[..., 2:])
    )
    action = tf.zeros([7, 3, 2])
    np.testing.assert_allclose(
        distribution.log_probability(parameters, action, raw), reference.log_prob(raw), atol=1e-5
    )
    np.testing.assert_allclose(distribution.entropy(parameters), reference.entropy(), atol=1e-5)


def test_drawn_numbers_are_scaled_to_half_the_range_and_clipped():
    distribution = action_distribution.ActionDistribution(NUMBERS)
    sample = distribution.sample(random_parameters(distribution, 200))
    expected = np.clip(sample.raw * [2.0, 0.5] + [0.0, 0.5], [-2.0, 0.0], [2.0, 1.0])
    np.testing.assert_allclose(sample.action, expected, atol=1e-6)
    assert (np.abs(sample.raw) > 1).any()  # Some of them had to be clipped.


@pytest.mark.parametrize("low, high", [(-np.inf, np.inf), (-3.4e38, 3.4e38)])
def test_numbers_without_bounds_are_taken_as_drawn(low, high):
    distribution = action_distribution.ActionDistribution(B([3], tf.float32, low, high))
    sample = distribution.sample(random_parameters(distribution, 4))
    np.testing.assert_array_equal(sample.action, sample.raw)


def test_samples_come_as_often_as_their_probability_says():
    distribution = action_distribution.ActionDistribution(NESTED)
    one = random_parameters(distribution, 1)
    draws = 20_000
    sample = distribution.sample(tf.repeat(one, draws, axis=0))
    chosen = sample.action["b"][1].numpy()
    probabilities = tf.nn.softmax(one[0, 16:19]).numpy()
    found = np.bincount(chosen - 3, minlength=3) / draws
    np.testing.assert_allclose(found, probabilities, atol=0.02)  # Five standard deviations.
    mean, stddev = one[0, 19:21].numpy(), np.exp(one[0, 21:].numpy())
    np.testing.assert_allclose(sample.raw.numpy().mean(axis=0), mean, atol=0.04 * stddev.max())
    np.testing.assert_allclose(sample.raw.numpy().std(axis=0), stddev, rtol=0.04)
    for leaf, spec in zip(tf.nest.flatten(sample.action), tf.nest.flatten(NESTED)):
        assert leaf.dtype == spec.dtype and leaf.shape == [draws, *spec.shape]
        assert (leaf >= spec.minimum).numpy().all() and (leaf <= spec.maximum).numpy().all()


def test_a_nest_is_as_likely_as_its_parts_together():
    distribution = action_distribution.ActionDistribution(NESTED)
    parameters = random_parameters(distribution, 9)
    sample = distribution.sample(parameters)
    parts = [
        (CHOICES, parameters[:, :16], sample.action["a"], None),
        (NUMBERS, parameters[:, 19:], sample.action["b"][0], sample.raw),
        (CHOICE, parameters[:, 16:19], sample.action["b"][1], None),
    ]
    log_probability, entropy = 0.0, 0.0
    for spec, part, action, raw in parts:
        alone = action_distribution.ActionDistribution(spec)
        log_probability += alone.log_probability(part, action, raw)
        entropy += alone.entropy(part)
    np.testing.assert_allclose(
        distribution.log_probability(parameters, *sample), log_probability, atol=1e-5
    )
    np.testing.assert_allclose(distribution.entropy(parameters), entropy, atol=1e-5)


def test_the_mode_is_the_mode_of_the_distribution_object():
    distribution = action_distribution.ActionDistribution(NESTED)
    parameters = random_parameters(distribution, 9)
    objects = distribution.distribution(parameters)
    tf.nest.assert_same_structure(objects, NESTED)
    for mode, one in zip(tf.nest.flatten(distribution.mode(parameters)), tf.nest.flatten(objects)):
        assert one.mode().dtype == mode.dtype
        np.testing.assert_array_equal(one.mode(), mode)


def test_rows_filled_with_zeros_do_not_break_actions_that_begin_at_three():
    distribution = action_distribution.ActionDistribution(CHOICE)
    parameters = random_parameters(distribution, 2)
    found = distribution.log_probability(parameters, np.zeros(2, np.int64), None)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("spec", [CHOICE, CHOICES])
def test_parameters_that_are_not_a_number_still_give_choices_that_there_are(spec):
    distribution = action_distribution.ActionDistribution(spec)
    parameters = tf.fill([8, distribution.num_parameters], np.nan)
    sample = distribution.sample(parameters)
    assert (sample.action >= spec.minimum).numpy().all()
    assert (sample.action <= spec.maximum).numpy().all()
    assert np.isnan(distribution.log_probability(parameters, *sample)).all()


def test_actions_that_cannot_be_chosen_are_refused():
    with pytest.raises(errors.SpecMismatchError, match="needs bounds"):
        action_distribution.ActionDistribution(tf.TensorSpec([], tf.int32))
    with pytest.raises(errors.SpecMismatchError, match="no policy can choose"):
        action_distribution.ActionDistribution(tf.TensorSpec([], tf.string))

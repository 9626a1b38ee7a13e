"""TD errors and priorities of sequences, against loops over single rows."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.agents.losses import sequence_td
from actor_learner.support import errors

FIRST, MID, LAST = 0, 1, 2
LENGTH = 9


def h(x):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x


def h_inverse(y):
    root = (np.sqrt(1 + 4e-3 * (np.abs(y) + 1.001)) - 1) / 2e-3
    return np.sign(y) * (root**2 - 1)


def random_sequences(seed, batch=40):
    """Sequences of which some begin, end by termination or truncation, or do neither."""
    random = np.random.default_rng(seed)
    step_type = np.full((batch, LENGTH), MID, np.int32)
    discount = random.uniform(0.8, 1.0, (batch, LENGTH))
    mask = np.ones((batch, LENGTH))
    for row in range(batch):
        if row % 2:
            step_type[row, 0] = FIRST
        if row % 3:
            end = random.integers(1, LENGTH)
            step_type[row, end:] = LAST
            discount[row, end - 1] = row % 3 - 1  # 0 terminates, 1 truncates.
            mask[row, end + 1 :] = 0
    return {
        "reward": random.normal(size=(batch, LENGTH)).astype(np.float32) * 3,
        "discount": discount.astype(np.float32),
        "step_type": step_type,
        "mask": mask.astype(np.float32),
        "value": random.normal(size=(batch, LENGTH)).astype(np.float32) * 2,
    }


def steps_ahead(data, row, t, n_step):
    """How many steps can be taken from row t, inside the sequence and the episode."""
    m = 0
    while m < n_step and t + m < LENGTH - 1 and data["step_type"][row, t + m] != LAST:
        m += 1
    return m


def reference_target(data, row, t, n_step, gamma, rescaling):
    data = {name: array.astype(np.float64) for name, array in data.items()}
    m = steps_ahead(data, row, t, n_step)
    factor, total = 1.0, 0.0
    for k in range(m):
        total += factor * data["reward"][row, t + k]
        factor *= gamma * data["discount"][row, t + k]
    value = data["value"][row, t + m]
    if rescaling:
        return h(total + factor * h_inverse(value))
    return total + factor * value


def reference_learned(data, burn_in):
    batch = len(data["mask"])
    learned = np.zeros((batch, LENGTH))
    for row in range(batch):
        for t in range(LENGTH):
            burnt_in = t >= burn_in or data["step_type"][row, 0] == FIRST
            learned[row, t] = burnt_in and steps_ahead(data, row, t, 1) and data["mask"][row, t]
    return learned


@pytest.mark.parametrize("xp", [np, tf])
@pytest.mark.parametrize("n_step", [1, 3, 5, 20])
@pytest.mark.parametrize("rescaling", [True, False])
def test_targets_equal_sums_over_single_steps(xp, n_step, rescaling):
    data = random_sequences(n_step)
    td = sequence_td.SequenceTd(n_step, 0.97, 0, rescaling)
    targets = np.asarray(td.targets(xp, *data.values()))
    learned = reference_learned(data, 0)
    assert learned.sum() > 150
    for row, t in zip(*np.nonzero(learned)):
        expected = reference_target(data, row, t, n_step, 0.97, rescaling)
        np.testing.assert_allclose(targets[row, t], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("xp", [np, tf])
@pytest.mark.parametrize("burn_in", [0, 3])
def test_rows_of_burn_in_ends_and_padding_are_not_learned(xp, burn_in):
    data = random_sequences(7)
    td = sequence_td.SequenceTd(burn_in=burn_in)
    learned = np.asarray(td.learned(xp, data["step_type"], data["mask"]))
    assert learned.dtype == np.float32
    np.testing.assert_array_equal(learned, reference_learned(data, burn_in))


@pytest.mark.parametrize("xp", [np, tf])
def test_priorities_mix_the_largest_and_the_mean_error(xp):
    data = random_sequences(8)
    td = sequence_td.SequenceTd(burn_in=4, max_share=0.9)
    error = np.random.default_rng(1).normal(size=data["mask"].shape).astype(np.float32)
    learned = reference_learned(data, 4).astype(np.float32)
    found = np.asarray(td.priorities(xp, error, learned))
    for row in range(len(error)):
        errors_of_row = np.abs(error[row][learned[row] > 0]).astype(np.float64)
        expected = 0.0
        if errors_of_row.size:
            expected = 0.9 * errors_of_row.max() + 0.1 * errors_of_row.mean()
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-6)
    assert (found == 0).any() and (found > 0).any()


def test_a_truncated_episode_takes_the_value_of_its_final_observation_and_a_terminated_none():
    data = {
        "reward": np.array([[1.0, 2.0, 9.0, 9.0]], np.float32),
        "discount": np.array([[1.0, 1.0, 9.0, 9.0]], np.float32),
        "step_type": np.array([[FIRST, MID, LAST, LAST]], np.int32),
        "mask": np.array([[1, 1, 1, 0]], np.float32),
        "value": np.array([[9.0, 9.0, 10.0, 9.0]], np.float32),
    }
    td = sequence_td.SequenceTd(n_step=5, gamma=0.5, rescaling=False)
    targets = td.targets(np, *data.values())
    np.testing.assert_allclose(targets[0, :2], [1 + 0.5 * 2 + 0.25 * 10, 2 + 0.5 * 10])
    data["discount"][0, 1] = 0.0
    targets = td.targets(np, *data.values())
    np.testing.assert_allclose(targets[0, :2], [1 + 0.5 * 2, 2])


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"n_step": 0}, "n_step"),
        ({"burn_in": -1}, "burn_in"),
        ({"max_share": 1.5}, "max_share"),
        ({"rescaling_epsilon": -0.1}, "rescaling_epsilon"),
    ],
)
def test_values_that_cannot_work_are_configuration_errors(settings, match):
    with pytest.raises(errors.ConfigError, match=match):
        sequence_td.SequenceTd(**settings)

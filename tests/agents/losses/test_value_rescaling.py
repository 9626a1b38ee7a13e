"""h and its inverse against the textbook formulas, in double precision."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.agents.losses import value_rescaling

EPSILONS = [1e-3, 0.05]
X = np.concatenate(
    [np.linspace(-50.0, 50.0, 401), [0.0, 1e-6, -1e-4, 1e3, -1e4, 1e5], np.geomspace(1e-3, 1e4, 50)]
)


def h(x, epsilon):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def h_inverse(y, epsilon):
    root = (np.sqrt(1 + 4 * epsilon * (np.abs(y) + 1 + epsilon)) - 1) / (2 * epsilon)
    return np.sign(y) * (root**2 - 1)


@pytest.mark.parametrize("xp", [np, tf])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rescaling_and_its_inverse_equal_the_formulas(xp, epsilon):
    x = X.astype(np.float32)
    rescaled = np.asarray(value_rescaling.rescale(xp, x, epsilon))
    assert rescaled.dtype == np.float32
    np.testing.assert_allclose(rescaled, h(X, epsilon), rtol=1e-5, atol=1e-6)
    y = h(X, epsilon).astype(np.float32)
    expected = h_inverse(y.astype(np.float64), epsilon)
    np.testing.assert_allclose(
        value_rescaling.inverse(xp, y, epsilon), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("xp", [np, tf])
@pytest.mark.parametrize("epsilon", [0.0, *EPSILONS])
def test_the_inverse_undoes_the_rescaling_in_single_precision(xp, epsilon):
    x = X.astype(np.float32)
    back = value_rescaling.inverse(xp, value_rescaling.rescale(xp, x, epsilon), epsilon)
    np.testing.assert_allclose(back, x, rtol=1e-5, atol=1e-5)

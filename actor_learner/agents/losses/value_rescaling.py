"""An invertible function that shrinks large values, so that rewards need no clipping.

`h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x`, from Pohlen et al., "Observe and Look Further".
Both directions are written without differences of nearly equal numbers, which would cost half of
float32's digits.
"""

from __future__ import annotations

import types
from typing import Any

EPSILON = 1e-3
"""The paper's: the slope that `h` keeps however large `x` is, so that its inverse stays tame."""


def rescale(xp: types.ModuleType, x: Any, epsilon: float = EPSILON) -> Any:
    """`h(x)`, elementwise.

    Args:
      xp: The library of `x`: `numpy` or `tensorflow`.
      x: Floating point array of any shape.
      epsilon: Slope for large `x`, 0 or more.
    """
    # sqrt(|x| + 1) - 1 = |x| / (sqrt(|x| + 1) + 1)
    return x / (xp.sqrt(xp.abs(x) + 1.0) + 1.0) + epsilon * x


def inverse(xp: types.ModuleType, y: Any, epsilon: float = EPSILON) -> Any:
    """The `x` with `h(x) = y`, elementwise; arguments as in `rescale`."""
    # With s = sqrt(|x| + 1), |y| = epsilon s^2 + s - (1 + epsilon): a quadratic equation for s.
    shifted = xp.abs(y) + (1.0 + epsilon)
    s = 2.0 * shifted / (xp.sqrt(1.0 + 4.0 * epsilon * shifted) + 1.0)
    return xp.sign(y) * (s - 1.0) * (s + 1.0)

"""Slopes of noisy series, with an interval: does it grow, and by how much?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Slope(NamedTuple):
    """Growth per unit of x.

    Attributes:
      value: By least squares.
      low: Lower and
      high: upper end of the 95 % interval.
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Slope:
        return Slope(self.value * factor, self.low * factor, self.high * factor)


def slope(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Least-squares slope of `y` over `x`.

    Successive samples of memory are alike, which makes the textbook interval far too narrow: it is
    widened by the correlation of neighbouring residuals.

    Raises:
      ValueError: If there are fewer than three samples, or all at one x.
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(xs) < 3 or len(xs) != len(ys) or np.ptp(xs) == 0:
        raise ValueError(f"a slope needs three samples at different places, got {len(xs)}")
    centred = xs - xs.mean()
    spread = float(centred @ centred)
    value = float(centred @ ys) / spread
    residuals = ys - ys.mean() - value * centred
    total = float(residuals @ residuals)
    # Of a straight line nothing is left but rounding.
    if total <= 1e-20 * max(1.0, float(ys @ ys)):
        return Slope(value, value, value)
    correlation = float(residuals[1:] @ residuals[:-1]) / total
    correlation = min(max(correlation, 0.0), 0.99)
    independent = max(3.0, len(xs) * (1.0 - correlation) / (1.0 + correlation))
    error = math.sqrt(total / (independent - 2.0) / spread * len(xs) / independent)
    return Slope(value, value - 1.96 * error, value + 1.96 * error)

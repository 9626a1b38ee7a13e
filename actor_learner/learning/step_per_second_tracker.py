"""Measures how many train steps pass per second."""

from __future__ import annotations

import time
from typing import Callable

import tensorflow as tf


class StepPerSecondTracker:
    """The rate of a step variable since the last `restart`."""

    def __init__(self, step: tf.Variable, *, clock: Callable[[], float] = time.monotonic):
        """Starts measuring.

        Args:
          step: Scalar integer variable; only read.
          clock: Returns seconds from a monotonic clock.
        """
        self.step = step
        self._clock = clock
        self.last_iteration = 0
        self.last_time = 0.0
        self.restart()

    def restart(self) -> None:
        """Measures from here on."""
        self.last_iteration = self.step.numpy()
        self.last_time = self._clock()

    def steps_per_second(self) -> float:
        """The mean rate since the last restart; 0.0 while no time has passed."""
        elapsed = self._clock() - self.last_time
        if elapsed <= 0:
            return 0.0
        return float(self.step.numpy() - self.last_iteration) / elapsed

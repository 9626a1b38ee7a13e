"""State that a resumed run needs besides the agent: its clock, skipped steps and statistics."""

from __future__ import annotations

import json
import time
from typing import Any, Callable

import tensorflow as tf

from actor_learner.acting import metrics


class ProgressState(tf.train.experimental.PythonState):
    """Saves the run's clock, counts and episode statistics in the learner's checkpoint.

    Args:
      statistics: Episode statistics of the actors.
      clock: Returns seconds.
    """

    def __init__(
        self,
        statistics: metrics.EpisodeStatistics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._statistics = statistics
        self._clock = clock
        self._started: float | None = clock()
        self._seconds_before = 0.0
        self._skipped: Callable[[], int] = lambda: 0
        self._skipped_before = 0
        self._carried: dict[str, Any] = {}

    @property
    def seconds(self) -> float:
        """Seconds spent on this run, in this process and earlier ones."""
        running = 0.0 if self._started is None else self._clock() - self._started
        return self._seconds_before + running

    @property
    def skipped_steps(self) -> int:
        """Train steps skipped in this run because they were not finite."""
        return self._skipped_before + self._skipped()

    def count_skipped(self, skipped: Callable[[], int]) -> None:
        """Sets the function that returns how many train steps this process has skipped."""
        self._skipped = skipped

    def start(self) -> None:
        """Starts the clock, so that building does not count."""
        self._started = self._clock()

    def stop(self) -> None:
        """Stops the clock, so that saving, the last evaluation and exporting do not count."""
        self._seconds_before = self.seconds
        self._started = None

    def serialize(self) -> str:
        return json.dumps(
            {
                "seconds": self.seconds,
                "skipped_steps": self.skipped_steps,
                # A run in one process keeps the list of processes that earlier jobs counted.
                "statistics": {**self._carried, **self._statistics.state()},
            }
        )

    def deserialize(self, string_value: str) -> None:
        state = json.loads(string_value)
        self._seconds_before = state["seconds"]
        self._skipped_before = state.get("skipped_steps", 0)  # Older checkpoints have none.
        self._started = self._clock()
        self._carried = state["statistics"]
        self._statistics.restore(state["statistics"])

"""A ring of rows in the learner's memory, sampled with a seed."""

from __future__ import annotations

import numpy as np
from tf_agents.trajectories import time_step as ts

LAST = int(ts.StepType.LAST)


class RowRing:
    """Keeps the latest rows of all lanes and draws windows of them, each with equal probability.

    Args:
      capacity: Rows kept; the oldest leave first.
      window: Rows per window, at least 2.
      seed: Of the draws.
    """

    def __init__(self, capacity: int, window: int, seed: int) -> None:
        if capacity < window:
            raise ValueError(f"a ring of {capacity} rows holds no window of {window}")
        self._capacity = capacity
        self._window = window
        self._random = np.random.default_rng(seed)
        self._columns: dict[str, np.ndarray] = {}  # [capacity, ...]
        self._valid: np.ndarray | None = None  # [capacity, lanes]
        self._end = 0  # Rows ever added.

    def __len__(self) -> int:
        return min(self._end, self._capacity)

    def add(
        self, row: dict[str, np.ndarray], step_type: np.ndarray, next_step_type: np.ndarray
    ) -> None:
        """Adds one row, which is copied.

        Args:
          row: Columns of the row.
          step_type: `[lanes]`.
          next_step_type: `[lanes]`.
        """
        if not self._columns:
            for name, column in row.items():
                column = np.asarray(column)
                self._columns[name] = np.empty((self._capacity, *column.shape), column.dtype)
            self._valid = np.zeros((self._capacity, len(step_type)), bool)
            self._last_next_type = next_step_type
        at = self._end % self._capacity
        for name, column in row.items():
            self._columns[name][at] = column
        if self._end:
            # The row before leads into this one unless the environment was reset in between.
            self._valid[(self._end - 1) % self._capacity] &= self._last_next_type == step_type
        self._valid[at] = step_type != LAST
        self._last_next_type = next_step_type
        self._end += 1

    def num_windows(self) -> int:
        """How many windows can be drawn now."""
        starts = self._starts()
        return int(np.count_nonzero(self._valid[starts])) if len(starts) else 0

    def sample(self, size: int) -> dict[str, np.ndarray]:
        """Draws windows with replacement: columns `[size, window, ...]`, one lane of each row.

        Columns without lanes, such as the version, are repeated for the lane: `[size, window]`.
        There must be at least one window.
        """
        starts = self._starts()
        lanes = self._valid.shape[1]
        rows, chosen = np.empty(0, np.int64), np.empty(0, np.int64)
        while len(rows) < size:
            # A few more than needed: those that begin at an episode's end are drawn again.
            count = size - len(rows) + 8
            row = starts[self._random.integers(len(starts), size=count)]
            lane = self._random.integers(lanes, size=count)
            good = self._valid[row, lane]
            rows = np.concatenate([rows, row[good]])
            chosen = np.concatenate([chosen, lane[good]])
        rows, chosen = rows[:size], chosen[:size]
        window = (rows[:, None] + np.arange(self._window)) % self._capacity
        return {
            name: column[window] if column.ndim == 1 else column[window, chosen[:, None]]
            for name, column in self._columns.items()
        }

    def _starts(self) -> np.ndarray:
        """Places of rows that have the rest of their window behind them."""
        first = max(0, self._end - self._capacity)
        return np.arange(first, max(first, self._end - self._window + 1)) % self._capacity

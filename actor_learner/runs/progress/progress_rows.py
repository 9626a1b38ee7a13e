"""Lines of metrics about a run in progress: its counters, speed and returns."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from actor_learner.acting import metrics
from actor_learner.replay.server import state
from actor_learner.reporting import row_limit
from actor_learner.runs.progress import progress_state

Row = dict[str, Any]

LEAST_SECONDS = 0.1
"""Rates over less time are noise."""


class ProgressRows:
    """Makes rows from the counters and statistics of a run.

    Args:
      progress: The run's clock.
      statistics: Episode statistics of the actors.
      counters: Returns environment steps and train steps.
      table: Returns the state of the replay's table.
      transitions: Converts a number of items to a number of transitions.
      epsilon: Returns the share of random actions; None for agents without one.
      version_lag: Returns how many train steps old the latest batch's policy was; None if unknown.
      version_lag_seconds: Returns the longest time for which an actor's policy was behind the
        learner's since the last call, in seconds; None if unknown.
      on_row: Takes the rows.
      interval_seconds: Minimum time between rows of `write_if_due`; see `row_limit` for long runs.
        The first comes with the first steps, to show that the run is under way.
      interval_steps: Environment steps between rows, instead of time: a row is due at the first
        call after each multiple of it.
      more: Returns further columns.
    """

    def __init__(
        self,
        *,
        progress: progress_state.ProgressState,
        statistics: metrics.EpisodeStatistics,
        counters: Callable[[], tuple[int, int]],
        table: Callable[[], state.TableState],
        transitions: Callable[[int], int],
        epsilon: Callable[[], Any] | None,
        version_lag: Callable[[], float | None],
        on_row: Callable[[Row], None],
        interval_seconds: float,
        interval_steps: int | None = None,
        version_lag_seconds: Callable[[], float | None] = lambda: None,
        more: Callable[[], Row] = dict,
    ) -> None:
        self._progress = progress
        self._statistics = statistics
        self._counters = counters
        self._table = table
        self._transitions = transitions
        self._epsilon = epsilon
        self._version_lag = version_lag
        self._version_lag_seconds = version_lag_seconds
        self._on_row = on_row
        self._interval_seconds = interval_seconds
        self._dense_rows = row_limit.row_limit()
        self._interval_steps = interval_steps
        self._more = more
        self._last_steps = 0
        self.start()

    def start(self) -> None:
        """Measures rates from now on."""
        self._last = (self._progress.seconds, *self._counters())
        self._written_at = self._progress.seconds
        self._wrote_steps = False

    def write_if_due(self, loss: Any) -> None:
        """Writes a row if the last one is old enough."""
        if self._interval_steps is not None:
            grid = self._interval_steps
            due = self._counters()[0] // grid > self._last_steps // grid
        else:
            seconds = self._progress.seconds
            interval = max(self._interval_seconds, seconds / self._dense_rows)
            due = seconds - self._written_at >= interval
            due = due or not (self._wrote_steps or self._counters()[0] == self._last[1])
        if due:
            self.write(loss)

    def write(self, loss: Any, **more: Any) -> None:
        """Writes a row now.

        Args:
          loss: The latest loss, a scalar; None before the first train step.
          **more: Further columns.
        """
        seconds = self._progress.seconds
        environment_steps, train_steps = self._counters()
        self._last_steps = environment_steps
        self._wrote_steps = self._wrote_steps or environment_steps > self._last[1]
        self._written_at = seconds
        row: Row = {
            "seconds": round(seconds, 3),
            "environment_steps": environment_steps,
            "train_steps": train_steps,
            "episodes": self._statistics.episodes,
            **self._episodes(),
            **self._replay(),
        }
        if loss is not None:
            row["loss"] = float(loss)
        last_seconds, last_environment_steps, last_train_steps = self._last
        elapsed = seconds - last_seconds
        # There are no rates over no steps: an evaluation's row may follow another row at once.
        if elapsed > LEAST_SECONDS and environment_steps > last_environment_steps:
            row["environment_steps_per_second"] = (
                environment_steps - last_environment_steps
            ) / elapsed
            row["train_steps_per_second"] = (train_steps - last_train_steps) / elapsed
            self._last = (seconds, environment_steps, train_steps)
        for name, lag in (
            ("version_lag", self._version_lag()),
            ("version_lag_seconds", self._version_lag_seconds()),
        ):
            if lag is not None:
                row[name] = lag
        if self._epsilon is not None:
            row["epsilon"] = float(self._epsilon().numpy())
        self._on_row({**row, **self._more(), **more})

    def _episodes(self) -> Row:
        returns, lengths = self._statistics.returns, self._statistics.lengths
        if not returns:
            return {}
        return {
            "return": float(np.mean(returns)),
            "min_return": float(np.min(returns)),
            "max_return": float(np.max(returns)),
            "episode_length": float(np.mean(lengths)),
        }

    def _replay(self) -> Row:
        table = self._table()
        return {
            "replay_size": self._transitions(table.size),
            "samples_per_insert": table.samples_per_insert,
        }

"""Episode metrics in plain NumPy, for one lane or many, under TF-Agents' names.

Several metrics read one `EpisodeStatistics`, which looks at each trajectory once, however many
metrics hand it over: bookkeeping costs a few microseconds per batched step.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

FIRST, LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)


class EpisodeStatistics:
    """Counts steps and episodes over all lanes and keeps the latest episodes' returns.

    Args:
      buffer_size: How many of the latest episodes the window holds.
    """

    def __init__(self, buffer_size: int = 10) -> None:
        if buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1, got {buffer_size}")
        self._buffer_size = buffer_size
        self._seen: trajectory_lib.Trajectory | None = None
        self._lane_returns: np.ndarray | None = None  # [lanes], of the running episodes
        self._lane_lengths: np.ndarray | None = None
        self.reset()

    def reset(self) -> None:
        """Forgets all counts and the window; running episodes go on being measured."""
        self.environment_steps = 0
        self.episodes = 0
        self.returns: collections.deque = collections.deque(maxlen=self._buffer_size)
        self.lengths: collections.deque = collections.deque(maxlen=self._buffer_size)

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Takes in one step, `[lanes]` or without a lane dimension.

        The same trajectory object handed over again, by another metric, is not counted again.
        """
        if trajectory is self._seen:
            return
        self._seen = trajectory
        step_type = np.atleast_1d(trajectory.step_type)
        reward = np.atleast_1d(trajectory.reward)
        if self._lane_returns is None or len(step_type) != len(self._lane_returns):
            self._lane_returns = np.zeros(len(step_type), np.float64)
            self._lane_lengths = np.zeros(len(step_type), np.int64)
        boundary = step_type == LAST
        starting = step_type == FIRST
        np.putmask(self._lane_returns, starting, 0.0)
        np.putmask(self._lane_lengths, starting, 0)
        # Boundary steps carry no reward and end up in lanes that FIRST is about to clear.
        self._lane_returns += reward
        self._lane_lengths += 1
        self.environment_steps += len(step_type) - int(np.count_nonzero(boundary))
        ended = np.flatnonzero((np.atleast_1d(trajectory.next_step_type) == LAST) > boundary)
        for lane in ended:
            self.episodes += 1
            self.returns.append(float(self._lane_returns[lane]))
            self.lengths.append(int(self._lane_lengths[lane]))

    def state(self) -> dict:
        """What a checkpoint keeps, as plain JSON types; running episodes are not part of it."""
        return {
            "environment_steps": self.environment_steps,
            "episodes": self.episodes,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
        }

    def restore(self, state: dict) -> None:
        """Takes over what `state` returned in an earlier process."""
        self.environment_steps = state["environment_steps"]
        self.episodes = state["episodes"]
        self.returns = collections.deque(state["returns"], maxlen=self._buffer_size)
        self.lengths = collections.deque(state["lengths"], maxlen=self._buffer_size)


class EpisodeMetric:
    """One number read off an `EpisodeStatistics`; callable as an observer.

    Args:
      statistics: Shared with other metrics, or None for statistics of its own.
      name: Tag of the metric's summaries.
      buffer_size: Window of the statistics, if they are its own.
    """

    default_name = "EpisodeMetric"

    def __init__(
        self,
        statistics: EpisodeStatistics | None = None,
        name: str | None = None,
        buffer_size: int = 10,
    ) -> None:
        self.statistics = statistics or EpisodeStatistics(buffer_size)
        self.name = name or self.default_name

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        self.statistics(trajectory)

    def result(self) -> Any:
        """The metric's current value, a NumPy scalar."""
        raise NotImplementedError

    def reset(self) -> None:
        """Resets the statistics, those of all metrics that share them included."""
        self.statistics.reset()


class NumberOfEpisodes(EpisodeMetric):
    """Episodes finished, over all lanes."""

    default_name = "NumberOfEpisodes"

    def result(self) -> np.int64:
        return np.int64(self.statistics.episodes)


class EnvironmentSteps(EpisodeMetric):
    """Environment steps taken, over all lanes; boundary steps do not count."""

    default_name = "EnvironmentSteps"

    def result(self) -> np.int64:
        return np.int64(self.statistics.environment_steps)


class AverageReturn(EpisodeMetric):
    """Mean return of the latest episodes; 0 before the first one ends, as in TF-Agents."""

    default_name = "AverageReturn"

    def result(self) -> np.float32:
        return _over_window(np.mean, self.statistics.returns)


class AverageEpisodeLength(EpisodeMetric):
    """Mean length of the latest episodes; 0 before the first one ends."""

    default_name = "AverageEpisodeLength"

    def result(self) -> np.float32:
        return _over_window(np.mean, self.statistics.lengths)


class MinReturn(EpisodeMetric):
    """Smallest return among the latest episodes; 0 before the first one ends."""

    default_name = "MinReturn"

    def result(self) -> np.float32:
        return _over_window(np.min, self.statistics.returns)


class MaxReturn(EpisodeMetric):
    """Largest return among the latest episodes; 0 before the first one ends."""

    default_name = "MaxReturn"

    def result(self) -> np.float32:
        return _over_window(np.max, self.statistics.returns)


def _over_window(reduce: Any, values: collections.deque) -> np.float32:
    return np.float32(reduce(values)) if values else np.float32(0.0)

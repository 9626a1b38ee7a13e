"""Episode metrics in plain NumPy, for one lane or many: TF-Agents' metrics, under their names.

Several metrics read one `EpisodeStatistics`, which looks at each trajectory once, however many
metrics hand it over, and counts many of them together: a microsecond or two per batched step.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
from tf_agents.metrics import py_metric, py_metrics
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.acting import episode_statistics

Reduction = Callable[[Any], Any]

EpisodeStatistics = episode_statistics.EpisodeStatistics


class EpisodeMetric(py_metric.PyStepMetric):
    """One number read off an `EpisodeStatistics`; callable as an observer.

    Those that TF-Agents has too are instances of its classes, for `isinstance`; they share nothing
    with them but the interface, and so do not look at every trajectory once per metric.

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
        # Not those of TF-Agents' metrics, which would make buffers of their own.
        py_metric.PyMetric.__init__(self, name or self.default_name)
        self.statistics = statistics or EpisodeStatistics(buffer_size)

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        self.statistics(trajectory)

    def call(self, trajectory: trajectory_lib.Trajectory) -> None:
        self.statistics(trajectory)


class NumberOfEpisodes(EpisodeMetric, py_metrics.NumberOfEpisodes):
    """Episodes finished, over all lanes."""

    default_name = "NumberOfEpisodes"

    def result(self) -> np.int64:
        return np.int64(self.statistics.episodes)

    def reset(self) -> None:
        """Counts from 0 again."""
        self.statistics.episodes = 0


class EnvironmentSteps(EpisodeMetric, py_metrics.EnvironmentSteps):
    """Environment steps taken, over all lanes; boundary steps do not count."""

    default_name = "EnvironmentSteps"

    def result(self) -> np.int64:
        return np.int64(self.statistics.environment_steps)

    def reset(self, environment_steps: int = 0) -> None:
        """Counts from `environment_steps` on."""
        self.statistics.environment_steps = environment_steps


class _WindowMetric(EpisodeMetric):
    """A metric of the latest episodes; 0 before the first one ends, as in TF-Agents."""

    _reduce: Reduction = staticmethod(np.mean)

    def _window(self) -> collections.deque:
        return self.statistics.returns

    def result(self) -> np.float32:
        window = self._window()
        return np.float32(self._reduce(window)) if window else np.float32(0.0)

    def reset(self) -> None:
        """Empties the window, for all metrics that read it; running episodes go on."""
        self._window().clear()

    @property
    def data(self) -> py_metrics.NumpyDeque:
        """A copy of the window."""
        copy = py_metrics.NumpyDeque(self._window().maxlen, np.float64)
        copy.extend(self._window())
        return copy

    def add_to_buffer(self, values: Iterable[float]) -> None:
        """Adds the values of further episodes to the window."""
        self._window().extend(values)


class AverageReturn(_WindowMetric, py_metrics.AverageReturnMetric):
    """Mean return of the latest episodes."""

    default_name = "AverageReturn"


class AverageEpisodeLength(_WindowMetric, py_metrics.AverageEpisodeLengthMetric):
    """Mean length of the latest episodes."""

    default_name = "AverageEpisodeLength"

    def _window(self) -> collections.deque:
        return self.statistics.lengths


class MinReturn(_WindowMetric):
    """Smallest return among the latest episodes."""

    default_name = "MinReturn"
    _reduce: Reduction = staticmethod(np.min)


class MaxReturn(_WindowMetric):
    """Largest return among the latest episodes."""

    default_name = "MaxReturn"
    _reduce: Reduction = staticmethod(np.max)


def observer_of(metric: Any) -> Any:
    """What has to see the trajectories for a metric to be right: its statistics, or itself."""
    if isinstance(metric, EpisodeMetric) and type(metric).__call__ is EpisodeMetric.__call__:
        return metric.statistics
    return metric


def collect_metrics(buffer_size: int) -> list[EpisodeMetric]:
    """The metrics of data collection, over a window of `buffer_size` episodes."""
    statistics = EpisodeStatistics(buffer_size)
    return [
        NumberOfEpisodes(statistics),
        EnvironmentSteps(statistics),
        AverageReturn(statistics),
        AverageEpisodeLength(statistics),
        MinReturn(statistics),
        MaxReturn(statistics),
    ]


def eval_metrics(buffer_size: int) -> list[EpisodeMetric]:
    """The metrics of evaluation, over a window of `buffer_size` episodes."""
    statistics = EpisodeStatistics(buffer_size)
    return [
        AverageReturn(statistics),
        AverageEpisodeLength(statistics),
        MinReturn(statistics),
        MaxReturn(statistics),
    ]

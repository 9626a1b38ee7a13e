"""Episode metrics in plain NumPy, for one lane or many: TF-Agents' metrics, under their names.

Several metrics read one `EpisodeStatistics`, which looks at each trajectory once, however many
metrics hand it over: bookkeeping costs a few microseconds per batched step.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tf_agents.metrics import py_metric, py_metrics
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

Reduction = Callable[[Any], Any]

FIRST, LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)


class EpisodeStatistics(tf.train.experimental.PythonState):
    """Counts steps and episodes over all lanes and keeps the latest episodes' returns.

    A `tf.train.Checkpoint` keeps what `state` returns.

    Args:
      buffer_size: How many of the latest episodes the window holds.
    """

    def __init__(self, buffer_size: int = 10) -> None:
        if buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1, got {buffer_size}")
        self._buffer_size = buffer_size
        self._seen: trajectory_lib.Trajectory | None = None
        self._lane_returns = np.zeros(0)  # [lanes], of the running episodes
        self._lane_lengths = np.zeros(0, np.int64)
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
        step_type, next_step_type = trajectory.step_type, trajectory.next_step_type
        reward = trajectory.reward
        num_lanes = np.size(step_type)
        if num_lanes != len(self._lane_returns):
            self._lane_returns = np.zeros(num_lanes, np.float64)
            self._lane_lengths = np.zeros(num_lanes, np.int64)
        if np.ndim(step_type) == 0:
            step_type, next_step_type, reward = map(
                np.atleast_1d, (step_type, next_step_type, reward)
            )
        if np.count_nonzero(step_type) < num_lanes:  # FIRST is 0.
            starting = np.equal(step_type, FIRST)
            np.putmask(self._lane_returns, starting, 0.0)
            np.putmask(self._lane_lengths, starting, 0)
        # Boundary steps carry no reward and end up in lanes that FIRST is about to clear.
        self._lane_returns += reward
        self._lane_lengths += 1
        boundary = np.equal(step_type, LAST)
        self.environment_steps += num_lanes - int(np.count_nonzero(boundary))
        last = np.equal(next_step_type, LAST)
        if not np.count_nonzero(last):
            return
        ended = np.flatnonzero(last > boundary)
        self.episodes += len(ended)
        ended = ended[-self._buffer_size :]  # The window would drop the others at once.
        self.returns.extend(self._lane_returns[ended].tolist())
        self.lengths.extend(self._lane_lengths[ended].tolist())

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

    def serialize(self) -> str:
        return json.dumps(self.state())

    def deserialize(self, string_value: str) -> None:
        self.restore(json.loads(string_value))


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

"""Counts of steps and episodes, taken from many steps at a time."""

from __future__ import annotations

import collections
import functools
import json
import threading
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

FIRST, LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)

_MAX_ROWS = 120  # Their numbers are small ones, of eight bits.
_ROWS = np.arange(_MAX_ROWS)[:, np.newaxis]
_ROW_NUMBERS = np.arange(1, _MAX_ROWS + 1, dtype=np.int8)[:, np.newaxis]


def _rows_of_a_block(num_lanes: int) -> int:
    """Steps that are kept before they are counted.

    NumPy's cost is per call until there are some thousand numbers, and then per number, more so if
    these leave the processor's cache.
    """
    return max(32, min(_MAX_ROWS, 2**14 // max(1, num_lanes)))


class _Group:
    """Steps of the lanes of one group that were not counted yet, and their running episodes.

    Attributes:
      seen: The latest step.
      num_lanes: Of the group.
      num_rows: Steps that are kept.
    """

    def __init__(self) -> None:
        self.seen: trajectory_lib.Trajectory | None = None
        self.make_room(0)

    def make_room(self, num_lanes: int) -> None:
        """Begins with other lanes, in none of which an episode has begun."""
        self.num_lanes = num_lanes
        self.num_rows = 0
        self._max_rows = _rows_of_a_block(num_lanes)
        self._step_types = np.empty((self._max_rows, num_lanes), np.int8)
        self._next_step_types = np.empty((self._max_rows, num_lanes), np.int8)
        self._rewards = np.empty((self._max_rows, num_lanes))
        self._lane_returns = np.zeros(num_lanes)  # Of the running episodes.
        self._lane_lengths = np.zeros(num_lanes, np.int64)

    def keep(self, trajectory: trajectory_lib.Trajectory) -> bool:
        """Copies a step; returns whether as many are kept as there is room for."""
        row = self.num_rows
        self._step_types[row] = trajectory.step_type
        self._next_step_types[row] = trajectory.next_step_type
        self._rewards[row] = trajectory.reward
        self.num_rows = row + 1
        return self.num_rows == self._max_rows

    def count(self, max_episodes: int) -> tuple[int, int, list[float], list[int]]:
        """Counts the steps that are kept, and keeps none any more.

        Args:
          max_episodes: How many are described, the latest ones.

        Returns:
          Environment steps, episodes that have ended, and the returns and lengths of these.
        """
        num_rows, self.num_rows = self.num_rows, 0
        step_types = self._step_types[:num_rows]
        boundary = step_types == LAST
        # One more than the row that an episode begins in, 0 in all others.
        starts = (step_types == FIRST) * _ROW_NUMBERS[:num_rows]
        ended = np.flatnonzero((self._next_step_types[:num_rows] == LAST) > boundary)
        returns, lengths = [], []
        if len(ended):
            rows, lanes = np.divmod(ended[-max_episodes:], self.num_lanes)
            described = self._measure(starts[:, lanes], rows, lanes)
            returns, lengths = (values.tolist() for values in described)
        # Boundary steps carry no reward and end up in lanes that FIRST is about to clear.
        self._lane_returns, self._lane_lengths = self._measure(starts, num_rows - 1, slice(None))
        steps = boundary.size - int(np.count_nonzero(boundary))
        return steps, len(ended), returns, lengths

    def _measure(
        self, starts: np.ndarray, rows: np.ndarray | int, lanes: np.ndarray | slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the episodes that are in some rows of some lanes, to those rows.

        Args:
          starts: `[rows, n]`, one more than the row that an episode begins in, 0 in all others.
          rows: `[n]`, or one for all.
          lanes: `[n]`.
        """
        index = _ROWS[: len(starts)]
        until = index <= rows
        began = np.where(until, starts, 0).max(axis=0).astype(np.int64) - 1  # -1 before the rows.
        within = until & (index >= began)
        returns = np.where(within, self._rewards[: len(starts), lanes], 0.0).sum(axis=0)
        lengths = rows + 1 - np.maximum(began, 0)
        before = began < 0
        returns += np.where(before, self._lane_returns[lanes], 0.0)
        lengths += np.where(before, self._lane_lengths[lanes], 0)
        return returns, lengths


class EpisodeStatistics(tf.train.experimental.PythonState):
    """Counts steps and episodes over all lanes and keeps the latest episodes' returns.

    A step is only copied when it is handed over, and counted with others, at the latest when
    somebody asks. One thread may hand over steps while others ask. A `tf.train.Checkpoint` keeps
    what `state` returns.

    Args:
      buffer_size: How many of the latest episodes the window holds.
    """

    def __init__(self, buffer_size: int = 10) -> None:
        if buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1, got {buffer_size}")
        self._buffer_size = buffer_size
        self._lock = threading.Lock()
        self._groups = {0: _Group()}
        self.reset()

    def reset(self) -> None:
        """Forgets all counts and the window; running episodes go on being measured."""
        with self._lock:
            self._count()
            self._environment_steps = 0
            self._episodes = 0
            self._returns: collections.deque = collections.deque(maxlen=self._buffer_size)
            self._lengths: collections.deque = collections.deque(maxlen=self._buffer_size)

    @property
    def environment_steps(self) -> int:
        """Environment steps taken; boundary steps do not count."""
        with self._lock:
            self._count()
            return self._environment_steps

    @environment_steps.setter
    def environment_steps(self, value: int) -> None:
        with self._lock:
            self._count()
            self._environment_steps = value

    @property
    def episodes(self) -> int:
        """Episodes finished."""
        with self._lock:
            self._count()
            return self._episodes

    @episodes.setter
    def episodes(self, value: int) -> None:
        with self._lock:
            self._count()
            self._episodes = value

    @property
    def returns(self) -> collections.deque:
        """The window: returns of the latest episodes, the latest last."""
        with self._lock:
            self._count()
            return self._returns

    @property
    def lengths(self) -> collections.deque:
        """The lengths of the same episodes."""
        with self._lock:
            self._count()
            return self._lengths

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Takes in one step, `[lanes]` or without a lane dimension.

        The same trajectory object handed over again, by another metric, is not counted again.
        """
        self._take(self._groups[0], trajectory)

    def for_group(self, group: int) -> Callable[[trajectory_lib.Trajectory], None]:
        """Takes in the steps of one group of a ring, whose lanes have episodes of their own."""
        return functools.partial(self._take, self._groups.setdefault(group, _Group()))

    def _take(self, group: _Group, trajectory: trajectory_lib.Trajectory) -> None:
        if trajectory is group.seen:
            return
        group.seen = trajectory
        num_lanes = np.size(trajectory.step_type)
        with self._lock:
            if num_lanes != group.num_lanes:
                self._count()
                group.make_room(num_lanes)
            if group.keep(trajectory):
                self._count()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain JSON types; running episodes are not part of it."""
        with self._lock:
            self._count()
            return {
                "environment_steps": self._environment_steps,
                "episodes": self._episodes,
                "returns": list(self._returns),
                "lengths": list(self._lengths),
            }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned in an earlier process."""
        with self._lock:
            self._count()
            self._environment_steps = state["environment_steps"]
            self._episodes = state["episodes"]
            self._returns = collections.deque(state["returns"], maxlen=self._buffer_size)
            self._lengths = collections.deque(state["lengths"], maxlen=self._buffer_size)

    def serialize(self) -> str:
        return json.dumps(self.state())

    def deserialize(self, string_value: str) -> None:
        self.restore(json.loads(string_value))

    def _count(self) -> None:
        """Counts the steps that are kept; the lock is held."""
        for group in self._groups.values():
            if group.num_rows:
                steps, episodes, returns, lengths = group.count(self._buffer_size)
                self._environment_steps += steps
                self._episodes += episodes
                self._returns.extend(returns)
                self._lengths.extend(lengths)

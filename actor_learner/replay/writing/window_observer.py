"""Writes one item per window of one lane, for tables that give each transition a priority."""

from __future__ import annotations

import collections
from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import rows
from actor_learner.replay.writing import lane_observer
from actor_learner.support import reverb_calls

LAST = int(ts.StepType.LAST)


STEP = "step"
"""Where the step stands in an item's rows, beside `rows.VERSION`."""

_CHUNK_ROWS = 8
"""Rows of small fields that Reverb keeps together in a chunk, to each of which it adds about 500
bytes. An item is sent when the chunk of its last row is full, or at a flush."""


class ItemLayout:
    """The columns of an item, `[window, 1, ...]` each: rows of one lane.

    The version is part of the record: a column of its own costs 400 bytes of every item.

    Args:
      data_spec: Spec of one step of one lane.
      num_lanes: Lanes of the steps that are packed.
    """

    def __init__(self, data_spec: Any, num_lanes: int = 1) -> None:
        spec = {STEP: data_spec, rows.VERSION: tf.TensorSpec([], tf.int64)}
        self._lanes = rows.RowLayout(spec, num_lanes)
        self._item = rows.RowLayout(spec, 1)

    def signature(self, window: int) -> dict[str, tf.TensorSpec]:
        """Signature of a table whose items are `window` consecutive rows."""
        signature = self._item.signature(window)
        del signature[rows.VERSION]
        return signature

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes into columns `[lanes, ...]`."""
        versions = np.full(self._lanes.num_lanes, version, np.int64)
        columns = self._lanes.row({STEP: trajectory, rows.VERSION: versions}, 0)
        del columns[rows.VERSION]
        return columns

    def unpack(self, columns: dict[str, tf.Tensor]) -> tuple[Any, tf.Tensor]:
        """Sampled columns `[batch, window, 1, ...]` as `(trajectory, version [batch])`."""
        step = self._item.unpack(
            {name: tf.squeeze(column, axis=2) for name, column in columns.items()}
        )
        return step[STEP], step[rows.VERSION][:, 0]


class WindowObserver(lane_observer.LaneObserver):
    """Makes an item of each window of each lane that begins with a step inside an episode.

    Windows that begin with a boundary step (LAST to the next episode's FIRST), or at whose
    beginning the environment was reset from outside, are not written: every item of the table is a
    transition. A window may reach beyond its episode's end, which `n_step.fold` sees to.

    One writer serves all lanes, with a column for each: a quarter of the cost of one writer per
    lane. Windows share their rows, so that an observation is stored once.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items; its signature must be
        `ItemLayout(data_spec).signature(window)`.
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`.
      num_lanes: Lanes per step.
      window: Rows per item: n + 1 for n-step transitions.
      priority: Returns the priority that new items get.
      max_in_flight_items: Items that may be unconfirmed before a call waits.
      flush_seconds: Items are pushed to the server at least this often while steps come in.
      timeout_seconds: How long a call may wait for the server.
      version: Returns the train step of the policy that acts; items carry it.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        data_spec: Any,
        num_lanes: int,
        window: int = 2,
        *,
        priority: Callable[[], float],
        max_in_flight_items: int = 1_000,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        if window < 2:
            raise ValueError(f"a window needs at least 2 rows, got {window}")
        self._priority = priority
        self._item_layout = ItemLayout(data_spec, num_lanes)
        # (step_type, next_step_type) of the rows that the next window may hold.
        self._types: collections.deque[tuple[np.ndarray, np.ndarray]] = collections.deque(
            maxlen=window
        )
        self._history: dict[str, Any] | None = None
        super().__init__(
            client,
            table_name,
            data_spec,
            num_lanes,
            window,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
            version=version,
        )

    def reset(self) -> None:
        self._types.clear()
        super().reset()

    def close(self) -> None:
        self._types.clear()
        super().close()

    def _item_signature(self) -> dict[str, tf.TensorSpec]:
        return self._item_layout.signature(self._window)

    def _open_writer(self) -> reverb.TrajectoryWriter:
        self._history = None
        # Validation fetches the table's signature, which would wait for ever.
        writer = reverb_calls.call_with_deadline(
            lambda: self._client.trajectory_writer(self._window, validate_items=True),
            self._timeout_seconds,
            lambda: reverb_calls.no_answer(self._client.server_address, self._timeout_seconds),
        )
        for lane in range(self._layout.num_lanes):
            writer.configure(
                (rows.RECORD, lane),
                num_keep_alive_refs=max(self._window, _CHUNK_ROWS),
                max_chunk_length=_CHUNK_ROWS,
            )
        return writer

    def _append(self, trajectory: trajectory_lib.Trajectory) -> int:
        row = self._item_layout.row(trajectory, self._version())
        lanes = range(self._layout.num_lanes)
        self._writer.append(
            {name: [column[lane : lane + 1] for lane in lanes] for name, column in row.items()}
        )
        if self._history is None:
            # Filled and emptied in place, so it can be kept; asking for it rebuilds a nest.
            self._history = self._writer.history
        self._types.append((np.array(trajectory.step_type), np.array(trajectory.next_step_type)))
        if len(self._types) < self._window:
            return 0
        (first_type, first_next), (second_type, _) = self._types[0], self._types[1]
        starts = np.flatnonzero((first_type != LAST) & (first_next == second_type))
        priority = self._priority() if len(starts) else 0.0
        for lane in starts.tolist():
            item = {name: column[lane][-self._window :] for name, column in self._history.items()}
            self._writer.create_item(self._table_name, priority, item)
        return len(starts)

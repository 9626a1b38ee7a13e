"""Writes windows of consecutive steps: of all lanes together, or of each lane."""

from __future__ import annotations

import collections
from typing import Any, Callable

import numpy as np
import reverb
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import codec, window_layout
from actor_learner.replay.writing import item_observer
from actor_learner.support import configurable

LAST = int(ts.StepType.LAST)

_CHUNK_ROWS = 8
"""Rows of small fields that Reverb keeps together in a chunk, to each of which it adds about 500
bytes. An item is sent when the chunk of its last row is full, or at a flush."""


@configurable.register
class LaneObserver(item_observer.ItemObserver):
    """Appends each step of all lanes as one row; each window of rows becomes one item.

    Items hold `[window, lanes, ...]`, overlap by all but one row and share their data, so that an
    observation is stored once. Episode ends inside a window are left to the reader.

    A call blocks only when `max_in_flight_items` items are unconfirmed by the server.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items; its signature must be `layout.signature()`.
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`.
      num_lanes: Lanes per step.
      window: Rows per item: 2 for one-step transitions, n + 1 for n-step ones; 1 for readers that
        put windows together themselves.

    The other arguments are those of `ItemObserver`.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        data_spec: Any,
        num_lanes: int,
        window: int = 2,
        *,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            client,
            table_name,
            window_layout.RowLayout(data_spec, num_lanes, window),
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
            version=version,
        )
        self._writer = self._open_writer(window, self._layout.columns)

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        self._writer.append(self._layout.row(trajectory, self._version()))
        self._writer.make_room()


class WindowObserver(item_observer.ItemObserver):
    """Makes an item of each window of each lane that begins with a step inside an episode.

    Windows that begin with a boundary step (LAST to the next episode's FIRST), or at whose
    beginning the environment was reset from outside, are not written: every item of the table is a
    transition. A window may reach beyond its episode's end, which `n_step.fold` sees to.

    One writer serves all lanes, with a column for each: a quarter of the cost of one writer per
    lane. Windows share their rows, so that an observation is stored once.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items.
      layout: Layout of the items, the reader's.
      priority: Returns the priority that new items get.
      max_in_flight_items: Items that may be unconfirmed before a call waits; those of one step of
        all lanes may come on top.

    The other arguments are those of `ItemObserver`.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        layout: window_layout.WindowLayout,
        *,
        priority: Callable[[], float],
        max_in_flight_items: int = 1_000,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        self._priority = priority
        # (step_type, next_step_type) of the rows that the next window may hold.
        self._types: collections.deque[tuple[np.ndarray, np.ndarray]] = collections.deque(
            maxlen=layout.window
        )
        super().__init__(
            client,
            table_name,
            layout,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
            version=version,
        )
        self._writer = self._open_writer(layout.window, configure=self._set_chunks)

    def reset(self) -> None:
        self._types.clear()
        super().reset()

    def close(self) -> None:
        self._types.clear()
        super().close()

    def _set_chunks(self, writer: reverb.TrajectoryWriter) -> None:
        for lane in range(self._layout.num_lanes):
            writer.configure(
                (codec.RECORD, lane),
                num_keep_alive_refs=max(self._layout.window, _CHUNK_ROWS),
                max_chunk_length=_CHUNK_ROWS,
            )

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        row = self._layout.row(trajectory, self._version())
        lanes = range(self._layout.num_lanes)
        self._writer.append(
            {name: [column[lane : lane + 1] for lane in lanes] for name, column in row.items()}
        )
        self._types.append((np.array(trajectory.step_type), np.array(trajectory.next_step_type)))
        if len(self._types) < self._layout.window:
            return
        (first_type, first_next), (second_type, _) = self._types[0], self._types[1]
        starts = np.flatnonzero((first_type != LAST) & (first_next == second_type)).tolist()
        priority = self._priority() if starts else 0.0
        columns = self._writer.columns
        for lane in starts:
            item = {name: column[lane][-self._layout.window :] for name, column in columns.items()}
            self._writer.create_item(item, priority)
        self._writer.make_room()

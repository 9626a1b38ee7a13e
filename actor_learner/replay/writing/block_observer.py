"""Writes lane-batched items: a few rows of all lanes per Reverb item, every row stored once."""

from __future__ import annotations

import collections
import time
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import numpy as np
import reverb
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import blocks, codec, frame_stacks
from actor_learner.replay.writing import item_observer
from actor_learner.support import configurable, nest_access, reverb_calls

_ROOMY = 4
"""A table is roomy while less than so many parts of it are filled."""

_PATIENCE = 60
"""How many times longer rows may wait where the table is not roomy."""

Leaf = Callable[[Any], Any]  # From a step to one of its fields, for all lanes.


class _Cell(NamedTuple):
    """A cell in the writer's memory.

    Attributes:
      rows: The rows that it has room for.
      sources: Columns `[rows, lanes, ...]` of the fields, and where in a step their values are.
      versions: The column of the policy's version.
    """

    rows: blocks.Rows
    sources: list[tuple[np.ndarray, Leaf]]
    versions: np.ndarray

    @classmethod
    def of(cls, rows: blocks.Rows, layout: blocks.BlockLayout, leaves: Mapping[str, Leaf]) -> _Cell:
        sources = []
        for path, leaf in leaves.items():
            if path in layout.stacks:
                leaf = _newest_frame(layout.stacks[path], leaf)
            sources.append((rows.fields[path], leaf))
        return cls(rows, sources, rows.fields[codec.VERSION])


def _newest_frame(stack: frame_stacks.FrameStack, leaf: Leaf) -> Leaf:
    return lambda step: stack.newest(leaf(step))


@configurable.register
class BlockObserver(item_observer.ItemObserver):
    """Gathers rows into cells (`blocks.BlockLayout`), each of which becomes one item.

    Items are created as cells fill up: the latest rows, fewer than `rows_per_item + n_step`, may
    still be in the observer's memory. `flush()` leaves them there while they are young, unless not
    a single item has been written yet, so that a learner always finds something; `reset()` and
    `close()` write all. Episode ends are left to the reader (`datasets.lane_transitions`), which
    knows which transitions are valid.

    Rows that have waited for `flush_seconds` are written in a cell that is filled up with fillers,
    and the next cell continues behind them. That item holds fewer transitions than others, each as
    likely to be drawn as any, but takes up as much of the table's capacity. So once a quarter of
    the table is filled, rows wait 60 times as long before they are written like this.

    A call blocks only when `max_in_flight_items` items are unconfirmed by the server.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items.
      layout: Layout of the items, the reader's.
      flush_seconds: Items are pushed to the server at least this often while steps come in, and
        cells that are not full as said above; infinity waits until they are.

    The other arguments are those of `ItemObserver`.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        layout: blocks.BlockLayout,
        *,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        # As many as an item refers to, by turns: the last rows are still there when a segment ends.
        self._leaves = dict(
            zip(
                (field.path for field in layout.observed.fields),
                nest_access.getters(layout.data_spec),
            )
        )
        self._cells = [
            _Cell.of(layout.empty_rows(layout.rows_per_item), layout, self._leaves)
            for _ in range(layout.cells_per_item)
        ]
        self._cell = self._cells[0]
        self._rows_in_cell = 0
        self._segment_rows = 0  # Rows since the last reset, those of older frames not counted.
        self._segment_cells = 0
        # When the cells were begun whose rows are in no item yet.
        self._begun: collections.deque[float] = collections.deque()
        self._wrote_any = False
        self._is_roomy, self._looked_at = True, -float("inf")
        self._watches = {
            path: frame_stacks.StackWatch(stack, table_name)
            for path, stack in layout.stacks.items()
        }
        super().__init__(
            client,
            table_name,
            layout,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
            version=version,
        )
        self._writer = self._open_writer(layout.cells_per_item, layout.columns)

    def flush(self) -> None:
        """Waits until the server has confirmed every item.

        If there is none yet, or rows have waited too long, the rows observed so far are made into
        items.

        Raises:
          errors.ReplayTimeoutError: If that takes longer than `timeout_seconds`.
        """
        if self._has_unwritten_transitions() and (not self._wrote_any or self._rows_are_old()):
            tail = self._last_rows()
            self._end_segment()
            super().reset()
            self._resume(tail)
        super().flush()

    def reset(self) -> None:
        """Writes and confirms all that was observed and starts again: no item spans the call."""
        self._end_segment()
        super().reset()
        for watch in self._watches.values():
            watch.reset()

    def close(self) -> None:
        """Writes and confirms all that was observed, then as all observers do."""
        try:
            self._end_segment()
        finally:
            super().close()

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        if not self._segment_rows and self._layout.cells_before:
            self._write_history(self._older_frames(trajectory))
        self._fill_row(trajectory)
        self._add_row()
        self._writer.make_room()

    def _fill_row(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Puts one step of all lanes into the cell."""
        cell, row = self._cell, self._rows_in_cell
        for column, leaf in cell.sources:
            column[row] = leaf(trajectory)
        cell.versions[row] = self._version()
        if self._watches:
            fields = cell.rows.fields
            for path, watch in self._watches.items():
                fields[self._layout.padding_path(path)][row] = watch.paddings(
                    self._leaves[path](trajectory),
                    fields[blocks.STEP_TYPE][row],
                    fields[blocks.NEXT_STEP_TYPE][row],
                )

    def _add_row(self) -> None:
        """Counts the row that was put into the cell, and writes the cell once it is full."""
        if not self._rows_in_cell:
            self._begun.append(time.monotonic())
        self._segment_rows += 1
        self._rows_in_cell += 1
        if self._rows_in_cell == self._layout.rows_per_item:
            self._write_cell()

    def _write_cell(self) -> None:
        """Appends the cell, which makes an item once those that it needs are there."""
        self._append_cell()
        self._segment_cells += 1
        if self._segment_cells > self._layout.cells_after:
            self._begun.popleft()
            self._wrote_any = True

    def _append_cell(self) -> None:
        self._writer.append(self._cell.rows.cell())
        self._cells.append(self._cells.pop(0))
        self._cell = self._cells[0]
        self._rows_in_cell = 0

    def _has_unwritten_transitions(self) -> bool:
        """Whether transitions are complete that no item holds yet."""
        layout = self._layout
        num_items = max(0, self._segment_cells - layout.cells_after)
        return self._segment_rows - layout.n_step > num_items * layout.rows_per_item

    def _rows_are_old(self) -> bool:
        """Whether the rows that are in no item yet have waited too long."""
        now = time.monotonic()
        age = now - self._begun[0]
        if age < self._flush_seconds:
            return False
        if now - self._looked_at >= self._flush_seconds:
            self._looked_at = now
            table = reverb_calls.fetch_table(self._client, self._table_name, self._timeout_seconds)
            self._is_roomy = _ROOMY * table.current_size < table.max_size
        return self._is_roomy or age >= _PATIENCE * self._flush_seconds

    def _last_rows(self) -> blocks.Rows:
        """Copies of the rows that the next segment begins with.

        Those have not started complete transitions yet, or give their frames to stacks.
        """
        layout, size = self._layout, self._layout.rows_per_item
        count = layout.history_rows + layout.n_step
        # The current cell comes first, the others from the oldest to the latest.
        ordered = [cell.rows for cell in (*self._cells[1:], self._cell)]
        end = (len(ordered) - 1) * size + self._rows_in_cell
        tail = layout.empty_rows(count)
        for index, row in enumerate(range(end - count, end)):
            tail.put(index, ordered[row // size], row % size)
        return tail

    def _end_segment(self) -> None:
        """Fills up with fillers what is needed for the last complete transitions."""
        layout = self._layout
        last_start = self._segment_rows - 1 - layout.n_step
        if last_start >= 0:
            needed = last_start // layout.rows_per_item + 1 + layout.cells_after
            while self._segment_cells < needed:
                if not self._rows_in_cell:
                    self._begun.append(time.monotonic())
                self._cell.rows.fill_up(self._rows_in_cell)
                self._write_cell()
        self._begun.clear()
        self._segment_rows = self._segment_cells = self._rows_in_cell = 0

    def _resume(self, tail: blocks.Rows) -> None:
        """Continues after the last rows of a segment that has ended, which are written again."""
        self._write_history(tail)
        for row in range(self._layout.n_step):
            self._cell.rows.put(self._rows_in_cell, tail, self._layout.history_rows + row)
            self._add_row()

    def _write_history(self, source: blocks.Rows) -> None:
        """Writes the first rows, which only give their frames to the stacks of later ones."""
        for row in range(self._layout.history_rows):
            self._cell.rows.put(self._rows_in_cell, source, row)
            self._rows_in_cell += 1
            if self._rows_in_cell == self._layout.rows_per_item:
                self._append_cell()

    def _older_frames(self, trajectory: trajectory_lib.Trajectory) -> blocks.Rows:
        """Rows before the first one of a stream, which hold the older frames of its stacks."""
        history = self._layout.empty_rows(self._layout.history_rows)
        for path, stack in self._layout.stacks.items():
            frames = stack.oldest_first(self._leaves[path](trajectory))
            history.fields[path][-(stack.size - 1) :] = np.moveaxis(frames[:, :-1], 1, 0)
        return history

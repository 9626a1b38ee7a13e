"""Writes overlapping sequences of each lane's episodes, for agents with memory."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import reverb
import tree
from absl import logging
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience as experience_lib
from actor_learner.replay.layouts import codec, frame_stacks, sequence_layout
from actor_learner.replay.writing import item_observer
from actor_learner.support import configurable, errors

_FIRST, _LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)


@configurable.register
class SequenceObserver(item_observer.ItemObserver):
    """Gathers the steps of all lanes and makes an item of every `period` steps of an episode.

    An item holds `sequence_length` consecutive rows of one episode: the first item begins with
    the episode's first step, each further one `period` rows later. It has the policy state that its
    row 0 was computed from. The last block of an episode includes the LAST step, whose observation
    is the true final one, and is filled up; so is an episode that is shorter than a sequence. Steps
    beyond the last full block of an episode that has not ended are not written.

    A step of all lanes costs one assignment per column, whatever the number of lanes; only lanes
    that finish a block are looked at one by one. A call blocks only when a lane has
    `max_in_flight_items` items that the server has not confirmed.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items.
      layout: Layout of the items, the reader's.
      initial_priorities: Computes the priorities `[n]` of new items from sequences `[n,
        sequence_length, ...]` of NumPy arrays, without observations and states. None: they are 1.
      priority_offset: Added to them, so that no item has the priority 0 and is never drawn; must be
        what `PriorityUpdater` adds to those of the learner. In gin `SequenceReplay.priority_offset`
        is both.
      max_in_flight_items: Items of one lane that may be unconfirmed before a call waits.
      version: Returns the train step of the policy that acts; items carry that of their first row.

    The other arguments are those of `ItemObserver`.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        layout: sequence_layout.SequenceLayout,
        *,
        initial_priorities: Callable[[experience_lib.Sequence], np.ndarray] | None = None,
        priority_offset: float = 1e-3,
        max_in_flight_items: int = 10,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        self._initial_priorities = initial_priorities
        self._priority_offset = priority_offset
        self._watches = {
            path: frame_stacks.StackWatch(stack, table_name, "SequenceReplay")
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
        self._lanes = np.arange(layout.num_lanes)
        for _ in self._lanes:
            self._open_writer(layout.cells_per_item)
        self._position = np.zeros_like(self._lanes)  # Row of the block that comes next.
        self._num_blocks = np.zeros_like(self._lanes)  # Finished ones of the episode.
        # By column: the latest rows of each lane, the block that is being filled at the end.
        self._rows = {
            name: column
            for length in (layout.block_length, layout.sequence_length)
            for name, column in layout.rows.zeros([layout.num_lanes, length]).items()
            if layout.kept_rows(name) == length
        }
        self._starts: dict[str, np.ndarray] = {}  # By column, [lanes, ...], of the blocks' rows 0.
        self._padding = layout.padding()

    def reset(self) -> None:
        """Confirms what was written and starts again; steps of unfinished blocks are dropped."""
        self._position[:] = 0
        self._num_blocks[:] = 0
        for watch in self._watches.values():
            watch.reset()
        super().reset()

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        step, state = codec.split_state(trajectory)
        self._watch_stacks(step)
        step, older = self._layout.split_frames(step)
        interrupted = (step.step_type == _FIRST) & (self._position + self._num_blocks > 0)
        if interrupted.any():
            self._drop(np.flatnonzero(interrupted))
        length = self._layout.block_length
        packed = self._layout.rows.pack(step)
        for name, buffer in self._rows.items():
            offset = buffer.shape[1] - length
            buffer[self._lanes, offset + self._position] = packed[name]
        starting = self._position == 0
        if starting.any():
            self._remember_starts(state, older, starting)
        # A row of LAST that ends nothing is that of a slot whose agent is out.
        is_out = (step.step_type == _LAST) & (self._position + self._num_blocks == 0)
        self._position += ~is_out
        last = (step.step_type == _LAST) & ~is_out
        finished = last | (self._position == length)
        if finished.any():
            self._finish_blocks(np.flatnonzero(finished), last)

    def _watch_stacks(self, step: trajectory_lib.Trajectory) -> None:
        """Refuses observations that are not stacks of the latest frames."""
        if self._watches:
            leaves = tree.flatten(step)
            for field, leaf in zip(self._layout.observed.fields, leaves):
                if field.path in self._watches:
                    watch = self._watches[field.path]
                    watch.paddings(leaf, step.step_type, step.next_step_type)

    def _remember_starts(
        self, state: Any, older: dict[str, np.ndarray], starting: np.ndarray
    ) -> None:
        packed = self._layout.start.pack(self._layout.start_of(state, self._version(), older))
        for name in self._layout.start.columns:
            if name not in self._starts:
                # Not like the packed one, which may be a view with the strides of a stack.
                self._starts[name] = np.zeros(packed[name].shape, packed[name].dtype)
            self._starts[name][starting] = packed[name][starting]

    def _finish_blocks(self, lanes: np.ndarray, last: np.ndarray) -> None:
        """Appends a cell for each of `lanes`, and makes those items that are now complete."""
        cells_per_item = self._layout.cells_per_item
        for lane in lanes[last[lanes]]:
            self._fill_up(lane, self._position[lane])
        for lane in lanes:
            self._append_cell(lane)
        for lane in lanes[last[lanes]]:  # Episodes shorter than a sequence, or that end within one.
            for _ in range(self._layout.missing_blocks(self._num_blocks[lane])):
                self._shift(lane)
                self._fill_up(lane, 0)
                if self._layout.padded:
                    self._append_cell(lane)
        if cells_per_item == 1 and (self._num_blocks[lanes] > 1).any():
            logging.log_first_n(
                logging.WARNING,
                "An episode is longer than a sequence, and sequences do not overlap: the last step "
                "of each is never learned from. Make SequenceReplay.period (%d) smaller than "
                "sequence_length. Said once.",
                1,
                self._layout.period,
            )
        complete = self._complete(lanes, last)
        if complete.size:
            for lane, priority in zip(complete, self._priorities(complete)):
                writer = self._writers[lane]
                size = min(cells_per_item, int(self._num_blocks[lane]))
                item = {name: cells[-size:] for name, cells in writer.columns.items()}
                writer.create_item(item, float(priority))
                writer.make_room()
        for lane in lanes:
            self._shift(lane)
        self._position[lanes] = 0
        self._num_blocks[last] = 0

    def _complete(self, lanes: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Those of `lanes` whose finished block completes an item."""
        layout = self._layout
        if not layout.whole_episodes:
            return lanes[[not layout.missing_blocks(n) for n in self._num_blocks[lanes]]]
        over = last[lanes]
        if (self._num_blocks[lanes] + ~over > layout.cells_per_item).any():
            raise errors.ConfigError(
                "send_full_trajectory is set, but an episode has more than "
                f"{layout.sequence_length} rows, the final observation among them: raise "
                "SequenceReplay.sequence_length, or the sum of burn_in_steps, sample_steps and "
                "bootstrap_steps; or end episodes sooner (AgentSpec.max_num_steps, a TimeLimit)"
            )
        return lanes[over]

    def _append_cell(self, lane: int) -> None:
        length = self._layout.block_length
        block = {name: buffer[lane, -length:] for name, buffer in self._rows.items()}
        start = {name: column[lane] for name, column in self._starts.items()}
        self._writers[lane].append(self._layout.cell(block, start))
        self._num_blocks[lane] += 1

    def _fill_up(self, lane: int, position: int) -> None:
        """Fills the lane's current block from `position` on."""
        missing = self._layout.block_length - position
        if missing:
            for name, buffer in self._rows.items():
                buffer[lane, -missing:] = self._padding[name][:missing]

    def _shift(self, lane: int) -> None:
        """Makes room for the lane's next block."""
        length = self._layout.block_length
        for buffer in self._rows.values():
            if buffer.shape[1] > length:
                buffer[lane, :-length] = buffer[lane, length:]

    def _priorities(self, lanes: np.ndarray) -> np.ndarray:
        if self._initial_priorities is None:
            return np.ones(lanes.size)
        length = self._layout.sequence_length
        columns = {
            name: buffer[lanes]
            for name, buffer in self._rows.items()
            if self._layout.kept_rows(name) == length
        }
        priorities = self._initial_priorities(self._layout.sequences(columns))
        # Experience that is not finite is for the learner to refuse, which tells of what it was.
        priorities = np.where(np.isfinite(priorities), priorities, 1.0)
        return priorities + self._priority_offset

    def _drop(self, lanes: np.ndarray) -> None:
        """Forgets steps whose episode never ended, so that no item spans a foreign reset."""
        logging.log_first_n(
            logging.WARNING,
            "A new episode began in lane %d before the last one ended; the %d steps of its last "
            "block are dropped. Something else resets the environment, such as a second actor. "
            "Said once.",
            1,
            int(lanes[0]),
            int(self._position[lanes[0]]),
        )
        self._position[lanes] = 0
        self._num_blocks[lanes] = 0

"""Observers that write trajectories to Reverb: the names and items of TF-Agents' `reverb_utils`.

Each takes trajectories of one lane (`[...]`) or of many (`[lanes, ...]`); many lanes give exactly
the items that as many observers of one lane would. Every wait has a deadline, and every item is
checked against its table's signature before it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import reverb
from absl import logging

from actor_learner import configurable
from actor_learner.replay import lane_streams, lane_writer, trajectory_layout

FIRST = trajectory_layout.FIRST
LAST = trajectory_layout.LAST


@configurable.register
class ReverbAddEpisodeObserver(lane_streams.LaneStreams):
    """Writes one item per episode: all its steps, the boundary step (LAST→FIRST) included.

    Items vary in length. An unfinished episode stays cached until `reset` writes it.
    """

    def __init__(
        self,
        py_client: reverb.Client,
        table_name: str | Sequence[str],
        max_sequence_length: int,
        priority: float | int = 1,
        bypass_partial_episodes: bool = False,
        *,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
    ):
        """Connects to the server.

        Args:
          py_client: Client of the server.
          table_name: The table, or tables, that every item goes to.
          max_sequence_length: Steps of the longest episode, its boundary step included.
          priority: Priority of new items.
          bypass_partial_episodes: What to do with longer episodes: skip them and log an error,
            or raise ValueError.
          max_in_flight_items: Writing waits when so many items of a lane are not yet confirmed.
          flush_seconds: Items are pushed to the server at least this often while steps come in.
          timeout_seconds: The longest any call waits for the server.

        Raises:
          ValueError: If `max_sequence_length` is not positive.
          errors.ReplayTimeoutError: If the server does not answer.
        """
        if max_sequence_length <= 0:
            raise ValueError(f"max_sequence_length is {max_sequence_length}; it must be 1 or more")
        self._max_sequence_length = max_sequence_length
        self._bypass_partial_episodes = bypass_partial_episodes
        super().__init__(
            py_client,
            table_name,
            priority=priority,
            sequence_length=None,
            num_keep_alive_refs=max_sequence_length + 1,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
        )

    def update_priority(self, priority: float | int) -> None:
        """Sets the priority of items to come."""
        self._priority = priority

    def _observe(self, lane, leaves, step_type, next_step_type) -> None:
        if step_type == FIRST and lane.cached_steps:
            self._drop_unfinished_episode(lane)
        if lane.cached_steps >= self._max_sequence_length and not lane.overflowed:
            self._overflow(lane)
        if not lane.overflowed:
            self._append(lane, leaves, next_step_type)
        if step_type == LAST:
            if not lane.overflowed:
                self._write_episode(lane)
            lane.end_episode()

    def _overflow(self, lane: lane_writer.LaneWriter) -> None:
        lane.overflowed = True
        cause = f"an episode has more than max_sequence_length={self._max_sequence_length} steps"
        if not self._bypass_partial_episodes:
            raise ValueError(
                f"{cause}, its boundary step included. Raise max_sequence_length, or skip such "
                f"episodes with bypass_partial_episodes=True"
            )
        logging.error("Skipped: %s. Raise max_sequence_length to keep such episodes.", cause)

    def _write_episode(self, lane: lane_writer.LaneWriter) -> None:
        if lane.cached_steps:
            lane.create_item(lane.cached_steps, self._priority)

    def _write_cached_steps(self) -> None:
        for lane in self._lanes:
            if not lane.overflowed:
                self._write_episode(lane)


@configurable.register
class ReverbAddTrajectoryObserver(lane_streams.LaneStreams):
    """Writes windows of fixed length within episodes.

    With `L = sequence_length`, an item is made once an episode has L steps (its boundary step
    counts) and then after every `stride_length` more. A shorter episode, and the steps after the
    last full stride, give nothing unless episodes are padded.
    """

    def __init__(
        self,
        py_client: reverb.Client,
        table_name: str | Sequence[str],
        sequence_length: int,
        stride_length: int = 1,
        priority: float | int = 1,
        pad_end_of_episodes: bool = False,
        tile_end_of_episodes: bool = False,
        *,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
    ):
        """Connects to the server.

        Args:
          py_client: Client of the server.
          table_name: The table, or tables, that every item goes to; the data are stored once.
          sequence_length: Steps of a window.
          stride_length: Steps between the starts of windows.
          priority: Priority of new items.
          pad_end_of_episodes: Whether to append boundary steps of zeros (LAST→FIRST) to an episode
            shorter than a window, so that it gives one.
          tile_end_of_episodes: With padding: pads every episode by L - 1 steps, so that windows
            start at its last steps too: for F M L and L = 3 also (M L P) and (L P P).
          max_in_flight_items: Writing waits when so many items of a lane are not yet confirmed.
          flush_seconds: Items are pushed to the server at least this often while steps come in.
          timeout_seconds: The longest any call waits for the server.

        Raises:
          ValueError: If `tile_end_of_episodes` is set without `pad_end_of_episodes`, or a length
            is not positive.
          errors.ReplayTimeoutError: If the server does not answer.
          errors.SpecMismatchError: If a table holds windows of another length.
        """
        if tile_end_of_episodes and not pad_end_of_episodes:
            raise ValueError(
                "tile_end_of_episodes tiles the padding: set pad_end_of_episodes=True as well"
            )
        for name, value in (("sequence_length", sequence_length), ("stride_length", stride_length)):
            if value <= 0:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        self._sequence_length = sequence_length
        self._stride_length = stride_length
        self._pad_end_of_episodes = pad_end_of_episodes
        self._tile_end_of_episodes = tile_end_of_episodes
        super().__init__(
            py_client,
            table_name,
            priority=priority,
            sequence_length=sequence_length,
            num_keep_alive_refs=sequence_length + 1,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
        )

    def _observe(self, lane, leaves, step_type, next_step_type) -> None:
        if step_type == FIRST and lane.cached_steps:
            self._drop_unfinished_episode(lane)
        self._append(lane, leaves, next_step_type)
        self._write_window(lane)
        if step_type == LAST:
            if self._pad_end_of_episodes:
                self._pad(lane)
            lane.end_episode()

    def _window_is_complete(self, lane: lane_writer.LaneWriter) -> bool:
        beyond = lane.cached_steps - self._sequence_length
        return beyond >= 0 and beyond % self._stride_length == 0

    def _write_window(self, lane: lane_writer.LaneWriter) -> None:
        if self._window_is_complete(lane):
            lane.create_item(self._sequence_length, self._priority)

    def _pad(self, lane: lane_writer.LaneWriter) -> None:
        if self._tile_end_of_episodes:
            missing = self._sequence_length - 1
        else:
            missing = self._sequence_length - lane.cached_steps
        for _ in range(missing):
            self._append(lane, self._layout.padding(), FIRST)
            self._write_window(lane)

    def _write_cached_steps(self) -> None:
        # A complete window was written with its last step, so without padding there is nothing to
        # add, and steps that fill no window would be lost without the caller's consent.
        cached = [lane for lane in self._lanes if lane.cached_steps]
        if self._pad_end_of_episodes:
            for lane in cached:
                self._pad(lane)
        elif not all(self._window_is_complete(lane) for lane in cached):
            steps = [lane.cached_steps for lane in self._lanes]
            raise ValueError(
                f"the cached steps ({steps} per lane) do not end on a window of "
                f"{self._sequence_length} with stride {self._stride_length}: pass "
                f"write_cached_steps=False to drop them, or set pad_end_of_episodes=True"
            )


@configurable.register
class ReverbTrajectorySequenceObserver(ReverbAddTrajectoryObserver):
    """Writes windows of fixed length that may span episodes: a boundary can be anywhere in them.

    Otherwise like `ReverbAddTrajectoryObserver`. Boundary steps count as steps of a window, while
    actors do not count them: with `stride_length = sequence_length`, n collected steps fill more
    than n steps of windows. Also takes flattened trajectories, of one lane.
    """

    _needs_step_types = False

    def __init__(
        self,
        py_client: reverb.Client,
        table_name: str | Sequence[str],
        sequence_length: int,
        stride_length: int = 1,
        priority: float | int = 1,
        pad_end_of_episodes: bool = False,
        tile_end_of_episodes: bool = False,
        *,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
    ):
        """Connects to the server; see `ReverbAddTrajectoryObserver`.

        Padding happens only in `reset`, where the stream of a lane ends.
        """
        # All passed on, so that gin bindings of the parent do not reach this class.
        super().__init__(
            py_client,
            table_name,
            sequence_length,
            stride_length,
            priority,
            pad_end_of_episodes,
            tile_end_of_episodes,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
        )

    def _observe(self, lane, leaves: list[Any], step_type, next_step_type) -> None:
        if step_type == FIRST and lane.next_step_type not in (None, FIRST):
            self._drop_unfinished_episode(lane)
        self._append(lane, leaves, next_step_type)
        self._write_window(lane)

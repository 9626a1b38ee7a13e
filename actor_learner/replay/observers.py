"""Observers that write trajectories to Reverb: the names and items of TF-Agents' `reverb_utils`.

Each takes trajectories of one lane (`[...]`) or of many (`[lanes, ...]`); many lanes give exactly
the items that as many observers of one lane would. Every wait has a deadline, and every item is
checked against its table's signature before it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import reverb
import tree
from absl import logging

from actor_learner.replay.layouts import trajectory_layout
from actor_learner.replay.writing import lane_streams, lane_writer
from actor_learner.support import configurable

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

    def _observe(self, lane: Any, leaves: Any, step_type: Any, next_step_type: Any) -> None:
        if step_type == FIRST and lane.cached_steps:
            self._drop_unfinished_episode(lane)
        if lane.cached_steps >= self._max_sequence_length and not lane.overflowed:
            self._overflow(lane)
        if not lane.overflowed:
            self._append(lane, leaves, next_step_type)
        if step_type == LAST:
            self._write_remaining_steps()
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

    @property
    def _overflow_episode(self) -> bool:
        return self._lane.overflowed

    @_overflow_episode.setter
    def _overflow_episode(self, value: bool) -> None:
        self._lane.overflowed = value

    @property
    def _writer_has_data(self) -> bool:
        return self._lane.has_new_steps

    @_writer_has_data.setter
    def _writer_has_data(self, value: bool) -> None:
        self._lane.has_new_steps = value

    def _write_cached_steps(self) -> None:
        """Makes an item of the episode's steps, unless they are in one; keeps the cache."""
        if self._lane.has_new_steps and self._cached_steps:
            self._lane.make_item(self._cached_steps, self._priority)

    def _write_remaining_steps(self) -> None:
        if not self._lane.overflowed:
            self._write_cached_steps()


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

    def _observe(self, lane: Any, leaves: Any, step_type: Any, next_step_type: Any) -> None:
        if step_type == FIRST and lane.cached_steps:
            self._drop_unfinished_episode(lane)
        self._append(lane, leaves, next_step_type)
        self._write_cached_steps()
        if step_type == LAST:
            if self._pad_end_of_episodes:
                self._pad()
            lane.end_episode()

    def _sequence_lengths_reached(self) -> bool:
        """Whether a window ends with the last step."""
        beyond = self._cached_steps - self._sequence_length
        return beyond >= 0 and beyond % self._stride_length == 0

    def _write_cached_steps(self) -> None:
        """Makes an item if a window ends with the last step; keeps the cache."""
        if self._sequence_lengths_reached():
            self._lane.make_item(self._sequence_length, self._priority)

    def _get_padding_step(self, example_trajectory: Any) -> Any:
        """The step that episodes are padded with: a boundary step of zeros, like the example."""
        zeros = tree.map_structure(lambda leaf: np.zeros_like(np.asarray(leaf)), example_trajectory)
        if not hasattr(zeros, "step_type"):
            return zeros
        return zeros._replace(
            step_type=np.full_like(zeros.step_type, LAST),
            next_step_type=np.full_like(zeros.next_step_type, FIRST),
        )

    def _pad(self) -> None:
        step = self._get_padding_step(self._last_trajectory)
        padding = [np.asarray(leaf) for leaf in tree.flatten(step)]
        if self._tile_end_of_episodes:
            missing = self._sequence_length - 1
        else:
            missing = self._sequence_length - self._cached_steps
        for _ in range(missing):
            self._lane.add(padding, self._layout)
            self._write_cached_steps()

    def _write_remaining_steps(self) -> None:
        if self._last_trajectory is None:
            return
        if self._pad_end_of_episodes:
            self._pad()
        elif not self._sequence_lengths_reached():
            raise ValueError(
                f"the {self._cached_steps} cached steps do not end on a window of "
                f"{self._sequence_length} with stride {self._stride_length}: pass "
                f"write_cached_steps=False to drop them, or set pad_end_of_episodes=True"
            )
        elif self._lane.has_new_steps:  # Else the window was written with its last step.
            self._write_cached_steps()


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

    def _observe(self, lane: Any, leaves: list[Any], step_type: Any, next_step_type: Any) -> None:
        if step_type == FIRST and lane.next_step_type not in (None, FIRST):
            self._drop_unfinished_episode(lane)
        self._append(lane, leaves, next_step_type)
        self._write_cached_steps()

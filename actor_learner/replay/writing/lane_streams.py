"""`LaneStreams`: what all observers here share: lanes, checks against tables, life cycle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import reverb
import tree
from absl import logging

from actor_learner.replay.layouts import trajectory_layout
from actor_learner.replay.server import signatures
from actor_learner.replay.writing import item_writer, lane_writer
from actor_learner.support import errors

# So many unfinished episodes in one lane are more than actors that take over from one another.
_DROPS_TO_WARN = 3


class LaneStreams:
    """Base of the observers: one stream of steps, and one writer, per lane.

    Ours write `_observe` (one step of one lane), `_write_cached_steps` (the item that the steps of
    a lane make, if they do) and `_write_remaining_steps` (what they still make when their stream
    ends). Subclasses that were written for TF-Agents' observers find the attributes that those
    have, with the same meaning: of the lane that is being observed, and outside of a call of the
    first one. Their `_writer` is a `StepWriter`, and cannot be replaced.
    """

    # Trajectories may have a leading [lanes] dimension; without it they are of one lane.
    accepts_lanes = True
    _needs_step_types = True

    def __init__(
        self,
        py_client: reverb.Client,
        table_name: str | Sequence[str],
        *,
        priority: float,
        sequence_length: int | None,
        num_keep_alive_refs: int,
        max_in_flight_items: int,
        flush_seconds: float,
        timeout_seconds: float,
    ):
        self._table_names = [table_name] if isinstance(table_name, str) else list(table_name)
        if not self._table_names:
            raise errors.ConfigError("table_name is empty; name at least one table")
        self._py_client = py_client
        self._priority = priority
        self._num_keep_alive_refs = num_keep_alive_refs
        self._max_in_flight_items = max_in_flight_items
        self._flush_seconds = flush_seconds
        self._last_flush = time.monotonic()
        self._timeout_seconds = timeout_seconds
        self._layout: Any = None  # A TrajectoryLayout, from the first trajectory on.
        self._step_signatures = self._fetch_step_signatures(sequence_length)
        self._lanes = [self._open_lane()]
        self._lane = self._lanes[0]  # The one that is being observed.
        self._closed = False
        self._step_writer = lane_writer.StepWriter(
            lambda: self._lane, lambda trajectory: self._layout or self._begin(trajectory, False)
        )

    @property
    def py_client(self) -> reverb.Client:
        """The client that the items are written with."""
        return self._py_client

    def get_table_signature(self) -> Any:
        """The signature of the first table; None if it has none."""
        table = self._table_names[0]
        return item_writer.fetch_table(self._py_client, table, self._timeout_seconds).signature

    def __call__(self, trajectory: Any) -> None:
        """Writes one step of one lane, or of all lanes.

        Args:
          trajectory: A `Trajectory` of NumPy arrays or eager tensors, `[...]` or `[lanes, ...]`,
            of the same layout in every call. The arrays are copied.

        Raises:
          errors.SpecMismatchError: If it does not fit the tables' signatures or the first one.
          errors.ReplayTimeoutError: If the server does not take the items in time.
        """
        self._require_open()
        self._observe_lanes(trajectory)
        # Reverb keeps an item back until its last chunk is full, that is, until more steps come.
        if time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def also_into(self, tables: Sequence[str]) -> None:
        """Makes every item in these tables too; call it before the first step."""
        self._table_names.extend(tables)
        for lane in self._lanes:
            lane.also_into(tables)

    def flush(self) -> None:
        """Waits until the server has confirmed all items made so far.

        Raises:
          errors.ReplayTimeoutError: If that takes too long; the message says what blocks.
        """
        self._require_open()
        for lane in self._lanes:
            lane.flush()
        self._last_flush = time.monotonic()

    def reset(self, write_cached_steps: bool = True) -> None:
        """Ends the stream of every lane, e.g. after collection; not needed between episodes.

        Args:
          write_cached_steps: Whether to make the items that the cached steps still allow, rather
            than to drop them.
        """
        if self._closed:
            self.open()
            return
        if write_cached_steps:
            for lane in self._lanes:
                self._lane = lane
                self._write_remaining_steps()
        for lane in self._lanes:
            lane.end_episode()
        self._lane = self._lanes[0]

    def open(self) -> None:
        """Opens the observer again after `close`; does nothing if it is open."""
        if not self._closed:
            return
        for lane in self._lanes:
            lane.start()
        self._closed = False

    def close(self) -> None:
        """Sends pending items and releases the writers; cached steps are dropped.

        May be called twice. Where the server is gone it warns and returns within seconds.

        Raises:
          errors.ReplayTimeoutError: If the server is there but did not take all items in time.
        """
        if self._closed:
            return
        self._closed = True
        item_writer.close_all(self._lanes, self._py_client, self._timeout_seconds)

    def abandon(self) -> None:
        """Releases the writers at once, instead of `close`; unconfirmed items may be lost."""
        self._closed = True
        for lane in self._lanes:
            lane.abandon()

    def __enter__(self) -> LaneStreams:
        return self

    def __exit__(self, exception_type, exception, traceback) -> None:
        try:
            self.close()
        except errors.ReplayError as error:
            if exception_type is None:
                raise
            logging.error("While closing an observer after another error: %s", error)

    @property
    def _cached_steps(self) -> int:
        """Steps appended since the episode, or the stream, began."""
        return self._lane.cached_steps

    @_cached_steps.setter
    def _cached_steps(self, value: int) -> None:
        self._lane.cached_steps = value

    @property
    def _last_trajectory(self) -> Any:
        """The last step observed, as the caller nested it; None at the start of an episode."""
        step = self._lane.last_step
        if isinstance(step, list) and self._layout is not None:
            return tree.unflatten_as(self._layout.step, step)
        return step

    @_last_trajectory.setter
    def _last_trajectory(self, trajectory: Any) -> None:
        self._lane.last_step = trajectory

    @property
    def _writer(self) -> lane_writer.StepWriter | None:
        return None if self._closed else self._step_writer

    def _get_writer(self) -> lane_writer.StepWriter:
        self._require_open()
        return self._step_writer

    def _observe_lanes(self, trajectory: Any) -> None:
        layout = self._layout or self._begin(trajectory, self._needs_step_types)
        leaves = layout.leaves(trajectory)
        if layout.num_lanes is None:
            types = (
                (int(trajectory.step_type), int(trajectory.next_step_type))
                if layout.has_step_types
                else (None, None)
            )
            self._observe(self._lanes[0], leaves, *types)
            return
        step_types = np.asarray(trajectory.step_type).tolist()
        next_step_types = np.asarray(trajectory.next_step_type).tolist()
        for index, lane in enumerate(self._lanes):
            self._lane = lane
            step = [leaf[index] for leaf in leaves]
            self._observe(lane, step, step_types[index], next_step_types[index])
        self._lane = self._lanes[0]

    def _observe(
        self,
        lane: lane_writer.LaneWriter,
        leaves: list[Any],
        step_type: int | None,
        next_step_type: int | None,
    ) -> None:
        raise NotImplementedError

    def _write_cached_steps(self) -> None:
        raise NotImplementedError

    def _write_remaining_steps(self) -> None:
        raise NotImplementedError

    def _append(
        self, lane: lane_writer.LaneWriter, leaves: list[Any], next_step_type: int | None
    ) -> None:
        lane.add(leaves, self._layout)
        lane.next_step_type = next_step_type
        lane.last_step = leaves

    def _drop_unfinished_episode(self, lane: lane_writer.LaneWriter) -> None:
        """Forgets steps whose episode never ended, so that no item spans a foreign reset."""
        lane.dropped_episodes += 1
        if lane.dropped_episodes < _DROPS_TO_WARN:
            logging.log_first_n(
                logging.INFO,
                "An episode began before the last one had ended, as when a second actor takes over "
                "the environment; the %d steps cached of the last one are dropped.",
                1,
                lane.cached_steps,
            )
        else:
            logging.log_first_n(
                logging.WARNING,
                "An episode began before the last one had ended, and %d times before: something "
                "keeps resetting the environment, and each time the cached steps are dropped. Give "
                "actors that take turns environments and observers of their own. Said once.",
                1,
                lane.dropped_episodes - 1,
            )
        lane.end_episode()

    def _require_open(self) -> None:
        if self._closed:
            raise errors.ReplayError(
                f"this {type(self).__name__} is closed; call open() to write to it again"
            )

    def _open_lane(self) -> lane_writer.LaneWriter:
        return lane_writer.LaneWriter(
            self._py_client,
            self._table_names,
            window=self._num_keep_alive_refs,
            max_in_flight_items=self._max_in_flight_items,
            timeout_seconds=self._timeout_seconds,
        )

    def _begin(self, trajectory: Any, needs_step_types: bool) -> trajectory_layout.TrajectoryLayout:
        """Fixes the layout to that of the first trajectory, once it fits every table."""
        layout = trajectory_layout.TrajectoryLayout(trajectory, needs_step_types)
        for table, signature in self._step_signatures.items():
            if not layout.has_step_types:  # Flattened: the names are lost, positions remain.
                signature = signatures.flat(signature)
            lines = signatures.describe_mismatch(
                signature, layout.step if layout.has_step_types else signatures.flat(layout.step)
            )
            if lines:
                raise errors.SpecMismatchError(
                    f"trajectories do not fit table {table!r} at {self._py_client.server_address}; "
                    f"per step:\n  " + "\n  ".join(lines) + "\nBuild the table's signature from "
                    "the same spec as the data, e.g. signatures.window_signature("
                    "agent.collect_data_spec, sequence_length)"
                )
        while len(self._lanes) < (layout.num_lanes or 1):
            self._lanes.append(self._open_lane())
        self._layout = layout
        return layout

    def _fetch_step_signatures(self, sequence_length: int | None) -> dict[str, Any]:
        """Per table with a signature, the signature of one step."""
        found = {}
        for table in self._table_names:
            info = item_writer.fetch_table(self._py_client, table, self._timeout_seconds)
            if not signatures.is_signature(info.signature):
                continue
            where = f"table {table!r} at {self._py_client.server_address}"
            try:
                found[table] = signatures.without_time(info.signature)
            except ValueError as error:
                raise errors.SpecMismatchError(f"{where} cannot hold windows: {error}") from error
            for length in signatures.window_lengths(info.signature) - {None, sequence_length}:
                if sequence_length is not None:
                    raise errors.SpecMismatchError(
                        f"{where} holds windows of {length} steps, but this observer writes "
                        f"windows of {sequence_length}: give both the same sequence_length"
                    )
        return found

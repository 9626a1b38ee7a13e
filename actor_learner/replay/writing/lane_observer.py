"""Writes lane-batched items: one Reverb item per batched step, whatever the number of lanes."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
import tree
from reverb import structured_writer
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import rows
from actor_learner.replay.server import signatures, state
from actor_learner.support import configurable, errors, reverb_calls


@configurable.register
class LaneObserver:
    """Appends each step of all lanes as one row; each window of rows becomes one item.

    Items hold `[window, lanes, ...]`, overlap by all but one row and share their data, so that an
    observation is stored once. Episode ends inside a window are left to the reader
    (`datasets.lane_transitions`), which knows which transitions are valid.

    A call blocks only when `max_in_flight_items` items are unconfirmed by the server.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items; its signature must be `layout.signature(window)`.
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`.
      num_lanes: Lanes per step.
      window: Rows per item: 2 for one-step transitions, n + 1 for n-step ones; 1 for readers that
        put windows together themselves.
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
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        if window < 1:
            raise ValueError(f"a window needs at least 1 row, got {window}")
        self._client = client
        self._table_name = table_name
        self._layout = rows.RowLayout(data_spec, num_lanes)
        self._window = window
        self._max_in_flight_items = max_in_flight_items
        self._flush_seconds = flush_seconds
        self._timeout_ms = int(timeout_seconds * 1000)
        self._version = version or (lambda: 0)
        self._timeout_seconds = timeout_seconds
        self._writer: reverb.StructuredWriter | reverb.TrajectoryWriter | None = None
        self._checked = False
        self._unflushed = 0
        self._last_flush = time.monotonic()
        self._check_table(timeout_seconds)

    @property
    def layout(self) -> rows.RowLayout:
        return self._layout

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Appends one step, leaves `[lanes, ...]`, or without lanes if there is only one."""
        if self._layout.num_lanes == 1 and np.ndim(trajectory.step_type) == 0:
            trajectory = tree.map_structure(lambda leaf: np.asarray(leaf)[None], trajectory)
        if not self._checked:
            self._layout.check(trajectory, self._table_name)
            self._checked = True
        if self._writer is None:
            self._writer = self._open_writer()
        self._unflushed += self._append(trajectory)
        # Waiting for half of them at a time costs one wait per half instead of one per item.
        left = self._max_in_flight_items // 2
        if self._unflushed >= self._max_in_flight_items - left:
            self._flush(left)
        elif time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Waits until the server has confirmed every item.

        Raises:
          errors.ReplayTimeoutError: If that takes longer than `timeout_seconds`.
        """
        self._flush(0)

    def reset(self) -> None:
        """Confirms what was written and begins anew: no window spans the call."""
        if self._writer is not None:
            self._flush(0)
            self._wait(
                lambda timeout_ms: self._writer.end_episode(
                    clear_buffers=True, timeout_ms=timeout_ms
                )
            )

    def close(self) -> None:
        """Confirms what was written and gives the writer up; safe to call twice.

        Raises:
          errors.ReplayTimeoutError: If that takes longer than `timeout_seconds`; items that the
            server has not confirmed may be lost.
        """
        if self._writer is not None:
            try:
                self._flush(0)
            except BaseException:
                _abandon(self._writer)
                raise
            finally:
                self._writer = None

    def _item_signature(self) -> dict[str, tf.TensorSpec]:
        """What the table's items look like; subclasses that write other items say so."""
        return self._layout.signature(self._window)

    def _open_writer(self) -> reverb.StructuredWriter | reverb.TrajectoryWriter:
        reference = structured_writer.create_reference_step(dict.fromkeys(self._layout.columns))
        pattern = {name: reference[name][-self._window :] for name in self._layout.columns}
        config = structured_writer.create_config(pattern, self._table_name)
        return self._client.structured_writer([config])

    def _append(self, trajectory: trajectory_lib.Trajectory) -> int:
        """Writes one step of all lanes; returns how many items that made, at most."""
        self._writer.append(self._layout.row(trajectory, self._version()))
        return 1

    def _flush(self, remaining: int) -> None:
        if self._writer is None:
            return
        self._wait(lambda timeout_ms: self._writer.flush(remaining, timeout_ms))
        self._unflushed = 0
        self._last_flush = time.monotonic()

    def _wait(self, call: Callable[[int], None]) -> None:
        """Runs a call of the writer that waits for the server, and says so if it waits too long."""
        try:
            reverb_calls.wait_in_slices(call, self._timeout_ms / 1000)
        except reverb.errors.ReverbError as error:
            table = state.table_state(self._client, self._table_name, timeout_seconds=5.0)
            raise errors.ReplayTimeoutError(
                f"an actor has waited {self._timeout_ms / 1000:g} s for the replay server to take "
                f"its items: {table.describe()}"
            ) from error

    def _check_table(self, timeout_seconds: float) -> None:
        """Refuses a table that is made for other data, before a single row is written."""
        info = reverb_calls.fetch_table(self._client, self._table_name, timeout_seconds)
        expected = self._item_signature()
        if info.signature is None:
            raise errors.SpecMismatchError(
                f"table '{self._table_name}' has no signature to check items against; make it with "
                "the `tables()` of the sample stream, or with the signature of the layout"
            )
        # The names hold the layout's digest: equal shapes may still be other fields.
        if info.signature != expected:
            differences = signatures.describe_mismatch(info.signature, expected) or [
                "the same bytes, but of other fields"
            ]
            raise errors.SpecMismatchError(
                f"table '{self._table_name}' holds other data than this actor writes: the run's "
                "environment, agent, lanes or n_step differ from the actor's.\n  "
                + "\n  ".join(differences)
            )


def _abandon(writer: reverb.StructuredWriter | reverb.TrajectoryWriter) -> None:
    """Gives up a writer whose items the server does not take."""
    if isinstance(writer, reverb.TrajectoryWriter):
        writer.close()
        return
    # A structured writer cannot be closed, and its destructor waits for the server for ever, with
    # the interpreter's lock held: it must live as long as the process.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(writer))

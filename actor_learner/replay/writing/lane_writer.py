"""`LaneWriter`: the items of one lane on their way to the server, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import reverb
from reverb import errors as reverb_errors

from actor_learner.replay.layouts import trajectory_layout
from actor_learner.replay.server import state
from actor_learner.support import errors, reverb_calls


class LaneWriter:
    """Appends the steps of one lane and makes items of the most recent ones.

    `create_item` waits once `max_in_flight_items` are not yet confirmed by the server.

    Attributes:
      cached_steps: Steps appended since the episode, or the stream, began.
      has_new_steps: Whether steps were appended since the last item.
      columns: What items are slices of, one per leaf; None before the first step.
      overflowed: For the observer: the episode is longer than allowed.
      next_step_type: For the observer: what the last appended step announced; None at the start.
      last_step: For the observer: the last step of the episode, as leaves or as a nest; None at the
        start.
      dropped_episodes: For the observer: how many episodes were cut off by a foreign reset.
    """

    def __init__(
        self,
        client: reverb.Client,
        tables: Sequence[str],
        *,
        num_keep_alive_refs: int,
        max_in_flight_items: int,
        timeout_seconds: float,
    ):
        """Opens the writer.

        Args:
          client: Client of the server.
          tables: Where each item goes.
          num_keep_alive_refs: The most steps an item may span.
          max_in_flight_items: The most items that are written but not confirmed.
          timeout_seconds: The longest any call waits for the server.
        """
        self._client = client
        self._tables = tables
        self._timeout_seconds = timeout_seconds
        # Waiting for half of them at a time costs one wait per half instead of one per item.
        self._leave_in_flight = max_in_flight_items // 2
        self._flush_after = max_in_flight_items - self._leave_in_flight
        self._created_since_flush = 0
        self.columns: list[Any] | None = None
        self.dropped_episodes = 0
        # Validation fetches the tables' signatures, which would wait for ever.
        self._writer = reverb_calls.call_with_deadline(
            lambda: client.trajectory_writer(
                num_keep_alive_refs=num_keep_alive_refs, validate_items=True
            ),
            timeout_seconds,
            lambda: reverb_calls.no_answer(client.server_address, timeout_seconds),
        )
        self.start()

    def start(self) -> None:
        """Forgets the cached steps; what was appended before is no longer part of any item."""
        self.cached_steps = 0
        self.has_new_steps = False
        self.overflowed = False
        self.next_step_type: int | None = None
        self.last_step: Any = None

    def append(self, leaves: list[Any], layout: trajectory_layout.TrajectoryLayout) -> None:
        """Adds one step, the arrays of one lane, which Reverb copies, and counts it."""
        self.write(leaves, layout)
        self.cached_steps += 1

    def write(self, leaves: list[Any], layout: trajectory_layout.TrajectoryLayout) -> None:
        """Adds one step, as `append` does, without counting it."""
        try:
            self._writer.append(leaves)
        except ValueError as error:
            raise errors.SpecMismatchError(
                f"a step does not look like the first one written to {self._name_tables()}: "
                + ("; ".join(layout.describe_step(leaves)) or str(error))
            ) from error
        if self.columns is None:
            # The columns are filled and emptied in place, so they can be kept; looking them up
            # rebuilds a nest each time.
            self.columns = list(self._writer.history)
        self.has_new_steps = True

    def create_item(self, num_steps: int, priority: float) -> None:
        """Makes an item of the last `num_steps` steps in every table."""
        item = [column[-num_steps:] for column in self.columns]
        self.create_item_of(item, self._tables, priority)

    def create_item_of(self, item: list[Any], tables: Sequence[str], priority: float) -> None:
        """Makes an item of slices of `columns` in these tables."""
        for table in tables:
            try:
                self._writer.create_item(table=table, trajectory=item, priority=priority)
            except ValueError as error:
                raise errors.SpecMismatchError(
                    f"an item of {len(item[0])} steps does not fit table {table!r} at "
                    f"{self._client.server_address}: {error}"
                ) from error
        self.has_new_steps = False
        self._created_since_flush += len(tables)
        if self._created_since_flush >= self._flush_after:
            self._flush(self._leave_in_flight)

    def flush(self) -> None:
        """Waits until the server has confirmed all items."""
        self._flush(0)

    def end_episode(self) -> None:
        """Waits as `flush` does, then starts an empty cache under a new episode id."""
        self.start()
        self.clear()

    def clear(self) -> None:
        """Waits as `flush` does, then empties the columns; the counts stay as they are."""
        self._wait(lambda timeout_ms: self._writer.end_episode(timeout_ms=timeout_ms))
        self._created_since_flush = 0

    def close(self) -> None:
        """Sends what is pending, then releases the writer.

        Raises:
          errors.ReplayTimeoutError: If the server did not take all items in time.
        """
        try:
            self.end_episode()
        finally:
            self._writer.close()

    def abandon(self) -> None:
        """Releases the writer at once; items that are not confirmed may be lost."""
        self._writer.close()

    def _flush(self, leave_in_flight: int) -> None:
        self._wait(lambda timeout_ms: self._writer.flush(leave_in_flight, timeout_ms))
        self._created_since_flush = 0

    def _wait(self, call: Callable[[int], None]) -> None:
        try:
            reverb_calls.wait_in_slices(call, self._timeout_seconds)
        except reverb_errors.DeadlineExceededError as error:
            raise errors.ReplayTimeoutError(
                f"the Reverb server at {self._client.server_address} did not take the items "
                f"written to {self._name_tables()} within {self._timeout_seconds:g} s: "
                f"{self._explain()}"
            ) from error
        except RuntimeError as error:
            raise errors.ReplayError(
                f"the Reverb server at {self._client.server_address} refused items written to "
                f"{self._name_tables()}: {error}"
            ) from error

    def _explain(self) -> str:
        """Why items are not taken, in the words of the tables' state."""
        try:
            states = [state.table_state(self._client, table) for table in self._tables]
        except errors.ReplayError as error:
            return str(error)
        waiting = [table for table in states if table.blocked == "inserting"]
        lines = "; ".join(table.describe() for table in waiting or states)
        if waiting:
            return lines + ". Is the learner running? In a loop of one thread, use a min_size limit"
        return lines + ". Nothing blocks inserts now: the server is slow, or was just unblocked"

    def _name_tables(self) -> str:
        return ", ".join(f"table {table!r}" for table in self._tables)

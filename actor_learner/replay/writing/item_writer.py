"""`ItemWriter`: the one way in which rows and items reach a Reverb table."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable

import reverb
import tree
from absl import logging
from reverb import errors as reverb_errors
from reverb import structured_writer

from actor_learner.replay.server import signatures, state, tables
from actor_learner.support import errors, reverb_calls

# How long to look for a server before deciding that it is gone for good.
_PROBE_SECONDS = 5.0


class ItemWriter:
    """Appends rows and makes items of them, a bounded number at a time.

    ```python
    writer = ItemWriter(client, ["experience"], window=2)
    writer.append({"x": np.zeros(3)})
    writer.append({"x": np.ones(3)})
    writer.create_item({"x": writer.columns["x"][-2:]}, priority=1.0)
    writer.make_room()  # Waits only if too many items are unconfirmed.
    writer.close()
    ```

    The connection is opened by the first `append`, also after `close`. Every method that talks to
    the server raises `errors.ReplayTimeoutError` once `timeout_seconds` have passed, with the
    tables' state; `errors.OtherRunError` if the server has no such table any more; and
    `errors.ReplayError` if it refuses items. `reverb_calls.giving_up_when` cuts every wait short.

    Args:
      client: Client of the replay server.
      tables: Where items go.
      window: The most rows that an item refers to.
      pattern: Names of columns. If given, every appended row makes an item by itself, of the last
        `window` rows of these columns, at half the cost of `create_item`.
      configure: Called with each `reverb.TrajectoryWriter` that is opened.
      max_in_flight_items: Items that may be unconfirmed before `make_room` waits.
      timeout_seconds: The longest that any call waits for the server.
    """

    def __init__(
        self,
        client: reverb.Client,
        tables: Sequence[str],
        *,
        window: int,
        pattern: Sequence[str] | None = None,
        configure: Callable[[reverb.TrajectoryWriter], None] | None = None,
        max_in_flight_items: int = 50,
        timeout_seconds: float = 60.0,
    ) -> None:
        if max_in_flight_items < 1:
            raise errors.ConfigError(
                f"max_in_flight_items is {max_in_flight_items}; it must be 1 or more"
            )
        if timeout_seconds <= 0:
            raise errors.ConfigError(f"timeout_seconds is {timeout_seconds}; it must be above 0")
        self._client = client
        self._tables = list(tables)
        self._window = window
        self._pattern = pattern
        self._configure = configure
        # Waiting for half of them at a time costs one wait per half instead of one per item.
        self._left_in_flight = max_in_flight_items // 2
        self._max_created = max_in_flight_items - self._left_in_flight
        self._timeout_seconds = timeout_seconds
        self._writer: reverb.StructuredWriter | reverb.TrajectoryWriter | None = None
        self._columns: Any = None
        self._num_rows = 0  # Since the columns were empty.
        self._num_created = 0  # Items since the last flush, at most.
        self._all_confirmed = True

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def columns(self) -> Any:
        """What items are slices of, nested like the rows; None before the first row."""
        return self._columns

    def also_into(self, tables: Sequence[str]) -> None:
        """Makes every item in these tables too; call it before the first row."""
        self._tables.extend(tables)

    def append(self, row: Any) -> None:
        """Adds one row, a nest of arrays, which Reverb copies.

        Raises:
          errors.SpecMismatchError: If it does not look like the first one.
        """
        if self._writer is None:
            self._writer = self._open()
        try:
            self._writer.append(row)
        except ValueError as error:
            raise errors.SpecMismatchError(
                f"a step does not look like the first one written to {self._name_tables()}: {error}"
            ) from error
        except RuntimeError as error:
            raise self._explain(error) from error
        self._num_rows += 1
        if self._pattern is not None:
            if self._num_rows >= self._window:
                self._num_created += 1
                self._all_confirmed = False
        elif self._columns is None:
            # Filled and emptied in place, so it can be kept; asking for it rebuilds a nest.
            self._columns = self._writer.history

    def create_item(self, item: Any, priority: float, tables: Sequence[str] | None = None) -> None:
        """Makes an item of slices of `columns`, in all tables or in those given; does not wait.

        Raises:
          errors.SpecMismatchError: If it does not fit a table's signature.
        """
        for table in self._tables if tables is None else tables:
            try:
                self._writer.create_item(table, priority, item)
            except ValueError as error:
                raise errors.SpecMismatchError(
                    f"an item of {len(tree.flatten(item)[0])} steps does not fit table {table!r} "
                    f"at {self._client.server_address}: {error}"
                ) from error
            except RuntimeError as error:
                raise self._explain(error) from error
            self._num_created += 1
            self._all_confirmed = False

    def make_room(self) -> None:
        """Waits for the server if `max_in_flight_items` may be unconfirmed."""
        if self._num_created >= self._max_created:
            self.flush(self._left_in_flight)

    def flush(self, left_in_flight: int = 0) -> None:
        """Waits until the server has confirmed all items, or all but so many.

        Costs nothing if there was none since all were confirmed.
        """
        if self._writer is not None and not self._all_confirmed:
            self._wait(lambda timeout_ms: self._writer.flush(left_in_flight, timeout_ms))
            self._num_created = 0
            self._all_confirmed = left_in_flight == 0

    def clear(self) -> None:
        """Waits as `flush` does, then empties `columns`: no later item spans the call."""
        if self._writer is None:
            return
        if self._pattern is not None:
            self.flush()  # So that the next call, which is repeated while it waits, need not.
        self._all_confirmed = False  # Whatever the server has said: it may not take the end.
        self._wait(lambda timeout_ms: self._writer.end_episode(True, timeout_ms))
        self._num_rows = self._num_created = 0
        self._all_confirmed = True

    def close(self) -> None:
        """Waits as `flush` does and releases the connection in any case; safe to call twice."""
        try:
            self.flush()
        except BaseException:
            self.abandon()
            raise
        self._release(confirmed=True)

    def abandon(self) -> None:
        """Releases the connection at once; items that are not confirmed may be lost."""
        self._release(confirmed=False)

    def _open(self) -> reverb.StructuredWriter | reverb.TrajectoryWriter:
        self._num_rows = self._num_created = 0
        self._all_confirmed = True
        if self._pattern is not None:
            reference = structured_writer.create_reference_step(dict.fromkeys(self._pattern))
            pattern = {name: reference[name][-self._window :] for name in self._pattern}
            writer = self._client.structured_writer(
                [structured_writer.create_config(pattern, table) for table in self._tables]
            )
            # The destructor of such a writer waits for the server for ever, with the interpreter's
            # lock held, if items are under way: it must not run before all are confirmed.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(writer))
            return writer
        # Validation fetches the tables' signatures, which would wait for ever.
        writer = reverb_calls.call_with_deadline(
            lambda: self._client.trajectory_writer(self._window, validate_items=True),
            self._timeout_seconds,
            lambda: reverb_calls.no_answer(self._client.server_address, self._timeout_seconds),
        )
        if self._configure is not None:
            self._configure(writer)
        return writer

    def _release(self, confirmed: bool) -> None:
        writer, self._writer, self._columns = self._writer, None, None
        if isinstance(writer, reverb.TrajectoryWriter):
            writer.close()
        elif writer is not None and confirmed:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(writer))

    def _wait(self, call: Callable[[int], None]) -> None:
        try:
            reverb_calls.wait_in_slices(call, self._timeout_seconds, self._say_that_it_waits)
        except (reverb_errors.ReverbError, RuntimeError) as error:
            raise self._explain(error) from error

    def _say_that_it_waits(self) -> None:
        logging.warning(
            "The actor waits for the replay server at %s to take items for %s: it is away, or full "
            "because the learner is slower.",
            self._client.server_address,
            self._name_tables(),
        )

    def _explain(self, error: Exception) -> errors.ReplayError:
        """What it means that the server does not take items; gives up a writer that is broken.

        Asks the server for its tables instead of reading Reverb's text.
        """
        late = isinstance(error, reverb_errors.DeadlineExceededError)
        if not late:
            self.abandon()  # Reverb's writers do not recover from other errors.
        address = self._client.server_address
        waited = (
            f"an actor has waited {self._timeout_seconds:g} s for the replay server at {address} "
            "to take its items"
        )
        try:
            found = reverb_calls.fetch_tables(self._client, _PROBE_SECONDS)
        except errors.ReplayTimeoutError as no_answer:
            return errors.ReplayTimeoutError(f"{waited}: {no_answer}") if late else no_answer
        for table in self._tables:
            if table not in found:
                return _other_run(self._client, table)
        if not late:
            return errors.ReplayError(
                f"the replay server at {address} refused items written to {self._name_tables()}: "
                f"{error}"
            )
        states = [state.from_table_info(found[table]) for table in self._tables]
        blocked = [table for table in states if table.blocked == "inserting"]
        lines = "; ".join(table.describe() for table in blocked or states)
        return errors.ReplayTimeoutError(
            f"{waited}: {lines}. "
            + (
                "The learner takes them out: is it running, and fast enough? In a loop of one "
                "thread, use a min_size limit"
                if blocked
                else "Nothing blocks inserts now: the server is slow, or was just unblocked"
            )
        )

    def _name_tables(self) -> str:
        return ", ".join(f"table {table!r}" for table in self._tables)


def close_all(writers: Sequence[ItemWriter], client: reverb.Client, timeout_seconds: float) -> None:
    """Closes writers to one server; where the server is gone, warns and returns within seconds.

    Raises:
      errors.ReplayTimeoutError: If the server is there but does not take all items in time; the
        writers after the one that waited are not waited for.
    """
    unsent = [writer for writer in writers if writer.is_open]
    try:
        while unsent:
            try:
                reverb_calls.fetch_tables(client, min(_PROBE_SECONDS, timeout_seconds))
            except errors.ReplayTimeoutError as error:
                logging.warning("Items that are not confirmed are lost: %s.", error)
                return
            unsent.pop(0).close()
    finally:
        for writer in unsent:
            writer.abandon()


def fetch_table(
    client: reverb.Client, table: str, timeout_seconds: float
) -> reverb.reverb_types.TableInfo:
    """Asks the server for a table that is to be written to.

    Raises:
      errors.OtherRunError: If the name carries a run's id and the server has no such table.
      reverb_calls.UnknownTableError: If another table is missing.
      errors.ReplayTimeoutError: If the server does not answer in time.
    """
    try:
        return reverb_calls.fetch_table(client, table, timeout_seconds)
    except reverb_calls.UnknownTableError as error:
        if tables.carries_run(table):
            raise _other_run(client, table) from error
        raise


def check_table(
    client: reverb.Client, table: str, signature: dict[str, Any], timeout_seconds: float
) -> None:
    """Refuses a table that is missing or made for other data, before a single row is written.

    Args:
      client: Client of the replay server.
      table: The table's name.
      signature: What items look like, as the layout says.
      timeout_seconds: How long the server may take to answer.

    Raises:
      errors.SpecMismatchError: Naming the columns that differ.
    """
    found = fetch_table(client, table, timeout_seconds).signature
    if found is None:
        raise errors.SpecMismatchError(
            f"table '{table}' has no signature to check items against; make it with the `tables()` "
            "of the sample stream, or with the signature of the layout"
        )
    # The names hold the layout's digest: equal shapes may still be other fields.
    if found != signature:
        differences = signatures.describe_mismatch(found, signature) or [
            "the same bytes, but of other fields"
        ]
        raise errors.SpecMismatchError(
            f"table '{table}' holds other data than this actor writes: its environment, agent, "
            "lanes, n_step, unroll_length, sequence_length or period differ from the run's.\n  "
            + "\n  ".join(differences)
        )


def _other_run(client: reverb.Client, table: str) -> errors.OtherRunError:
    return errors.OtherRunError(
        f"the server at {client.server_address} has no table {table!r} of this run: another run's "
        "server has taken its port, or the address is wrong"
    )

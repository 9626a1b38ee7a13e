"""The highest priority that a table has seen, which new items get, shared by all processes."""

from __future__ import annotations

import math
import time
from typing import Callable, TypeVar

import reverb
from absl import logging

from actor_learner.replay.writing import item_writer
from actor_learner.support import errors, reverb_calls

T = TypeVar("T")

_NOTHING = 0  # An item must hold something; the value is the item's own priority.


def table_for(table_name: str) -> str:
    """Name of the table that holds the highest priority of the items of `table_name`."""
    return f"{table_name}_highest_priority"


def make_table(table_name: str) -> reverb.Table:
    """The table of one item whose priority is the highest one of `table_name`'s items so far."""
    return reverb.Table(
        name=table_for(table_name),
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )


class HighestPriority:
    """Reads the highest priority so far, as learners have published it.

    Args:
      client: Client of the replay server, or a list of those that hold the table together.
      table_name: The table whose items have priorities.
      initial: The value until a higher one is published.
      refresh_seconds: The server is asked at most this often.
      timeout_seconds: How long it may take to answer; if it does not, the value stays as it is.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        initial: float,
        *,
        refresh_seconds: float = 1.0,
        timeout_seconds: float = 5.0,
    ) -> None:
        self._clients = list(client) if isinstance(client, (list, tuple)) else [client]
        self._table_name = table_for(table_name)
        self._value = initial
        self._refresh_seconds = refresh_seconds
        self._timeout_seconds = timeout_seconds
        self._asked_at = -math.inf

    def __call__(self) -> float:
        """The highest priority; asks the server if that was last done `refresh_seconds` ago."""
        if time.monotonic() - self._asked_at >= self._refresh_seconds:
            for client in self._clients:
                self._ask(client)
            self._asked_at = time.monotonic()
        return self._value

    def _ask(self, client: reverb.Client) -> None:
        try:
            published = read(client, self._table_name, self._timeout_seconds)
            self._value = max(self._value, published or 0.0)
        except errors.ReplayTimeoutError as error:
            # Whoever writes the items will find out whether the server is gone for good.
            logging.warning("New items keep getting a priority of %g: %s.", self._value, error)


def read(client: reverb.Client, highest_table: str, timeout_seconds: float) -> float | None:
    """The published value; None if there is none yet.

    Raises:
      errors.ReplayTimeoutError: If the server does not answer in time.
      errors.OtherRunError: If it is another run's.
    """
    if not item_writer.fetch_table(client, highest_table, timeout_seconds).current_size:
        return None
    (sample,) = _call(
        lambda: list(client.sample(highest_table, 1)), client, highest_table, timeout_seconds
    )
    return float(sample[0].info.priority)


def publish(
    client: reverb.Client, highest_table: str, value: float, timeout_seconds: float
) -> None:
    """Makes `value` the highest priority that others read.

    Raises:
      errors.ReplayTimeoutError: If the server does not answer in time.
    """
    _call(
        lambda: client.insert(_NOTHING, {highest_table: value}),
        client,
        highest_table,
        timeout_seconds,
    )


def _call(
    call: Callable[[], T], client: reverb.Client, highest_table: str, timeout_seconds: float
) -> T:
    def no_answer() -> errors.ReplayTimeoutError:
        return errors.ReplayTimeoutError(
            f"the Reverb server at {client.server_address} did not answer about table "
            f"'{highest_table}' within {timeout_seconds:g} s: it has stopped, or is overloaded"
        )

    try:
        return reverb_calls.call_with_deadline(call, timeout_seconds, no_answer)
    except RuntimeError as error:  # The connection broke off.
        raise no_answer() from error

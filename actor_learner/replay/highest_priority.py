"""The highest priority that a table has seen, which new items get, shared by all processes."""

from __future__ import annotations

import math
import time

import reverb

from actor_learner import errors, reverb_calls

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
      client: Client of the replay server.
      table_name: The table whose items have priorities.
      initial: The value until a higher one is published.
      refresh_seconds: The server is asked at most this often.
      timeout_seconds: How long it may take to answer.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        initial: float,
        *,
        refresh_seconds: float = 1.0,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._client = client
        self._table_name = table_for(table_name)
        self._value = initial
        self._refresh_seconds = refresh_seconds
        self._timeout_seconds = timeout_seconds
        self._asked_at = -math.inf

    def __call__(self) -> float:
        """The highest priority, at most `refresh_seconds` old; asks the server when it is older.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer in time.
        """
        now = time.monotonic()
        if now - self._asked_at >= self._refresh_seconds:
            self._asked_at = now
            published = read(self._client, self._table_name, self._timeout_seconds)
            self._value = max(self._value, published or 0.0)
        return self._value


def read(client: reverb.Client, highest_table: str, timeout_seconds: float) -> float | None:
    """The published value; None if there is none yet."""
    if not reverb_calls.fetch_table(client, highest_table, timeout_seconds).current_size:
        return None
    samples = reverb_calls.call_with_deadline(
        lambda: list(client.sample(highest_table, 1)),
        timeout_seconds,
        lambda: _no_answer(client, highest_table, timeout_seconds),
    )
    return float(samples[0][0].info.priority)


def publish(
    client: reverb.Client, highest_table: str, value: float, timeout_seconds: float
) -> None:
    """Makes `value` the highest priority that others read."""
    reverb_calls.call_with_deadline(
        lambda: client.insert(_NOTHING, {highest_table: value}),
        timeout_seconds,
        lambda: _no_answer(client, highest_table, timeout_seconds),
    )


def _no_answer(
    client: reverb.Client, highest_table: str, timeout_seconds: float
) -> errors.ReplayTimeoutError:
    return errors.ReplayTimeoutError(
        f"the Reverb server at {client.server_address} did not answer about table "
        f"'{highest_table}' within {timeout_seconds:g} s: it has stopped, or is overloaded"
    )

"""`ShardWriter`: spreads rows and items over the tables of several replay servers."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import reverb
import tree

from actor_learner.replay.writing import item_writer

_WINDOWS = 32  # Rows written to a server before the next one's turn, in windows.


class ShardWriter:
    """Looks like one `ItemWriter`, and writes to several servers by turns.

    Rows that later items may refer to are written to the next server again when its turn comes, so
    that every item is made as by a single writer: once, and whole. That costs one row in
    `_WINDOWS`. Where items refer to one row only, each goes to another server.

    Turns change in `make_room` and `flush`, when the caller has made its items of the latest row.

    Args:
      clients: Of the servers, all of which have the tables.
      tables: Where items go.
      window: The most rows that an item refers to.
      first: Which server's turn is first, counted round.
      max_in_flight_items: Items that may be unconfirmed before `make_room` waits, over all servers;
        one of each server at least.
      **settings: As of `ItemWriter`.
    """

    def __init__(
        self,
        clients: Sequence[reverb.Client],
        tables: Sequence[str],
        *,
        window: int,
        first: int = 0,
        max_in_flight_items: int = 50,
        **settings: Any,
    ) -> None:
        most = max(1, max_in_flight_items // len(clients))
        self._writers = [
            item_writer.ItemWriter(
                client, tables, window=window, max_in_flight_items=most, **settings
            )
            for client in clients
        ]
        self._turn = first % len(clients)
        self._rows_per_turn = max(1, _WINDOWS * (window - 1))
        self._rows = 0  # Of this turn.
        self._kept: collections.deque[Any] = collections.deque(maxlen=window - 1)

    @property
    def writers(self) -> list[item_writer.ItemWriter]:
        """One for each server, in the order of `clients`."""
        return self._writers

    @property
    def is_open(self) -> bool:
        return any(writer.is_open for writer in self._writers)

    @property
    def columns(self) -> Any:
        """What items are slices of; None before the first row."""
        return self._writers[self._turn].columns

    def append(self, row: Any) -> None:
        """As `ItemWriter.append`."""
        self._writers[self._turn].append(row)
        self._rows += 1
        if self._kept.maxlen:
            self._kept.append(tree.map_structure(np.array, row))  # The caller may reuse its arrays.

    def create_item(self, item: Any, priority: float, tables: Sequence[str] | None = None) -> None:
        """As `ItemWriter.create_item`."""
        self._writers[self._turn].create_item(item, priority, tables)

    def make_room(self) -> None:
        """As `ItemWriter.make_room`."""
        self._writers[self._turn].make_room()
        self._turn_if_due()

    def flush(self, left_in_flight: int = 0) -> None:
        """As `ItemWriter.flush`; what may be left under way is that of the server whose turn is."""
        for number, writer in enumerate(self._writers):
            writer.flush(left_in_flight if number == self._turn else 0)
        self._turn_if_due()

    def clear(self) -> None:
        """As `ItemWriter.clear`."""
        self.flush()
        self._writers[self._turn].clear()
        self._kept.clear()

    def close(self) -> None:
        """As `ItemWriter.close`; releases all connections, whichever server does not answer."""
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """As `ItemWriter.abandon`."""
        for writer in self._writers:
            writer.abandon()

    def _turn_if_due(self) -> None:
        """Turns to the next server; if that does not answer, the turn stays where it is."""
        if self._rows < self._rows_per_turn:
            return
        turn = (self._turn + 1) % len(self._writers)
        following = self._writers[turn]
        following.clear()  # Of the rows of its last turn, or of a turn that failed to begin.
        for row in self._kept:
            following.append(row)
        self._turn, self._rows = turn, 0

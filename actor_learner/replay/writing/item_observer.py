"""`ItemObserver`: what the observers of all sample streams share."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import reverb
import tree
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import codec
from actor_learner.replay.writing import item_writer, shard_writer


class ItemObserver(abc.ABC):
    """Takes steps of all lanes; subclasses say which rows and items they make.

    A subclass opens its writers with `_open_writer` and writes `_add`.

    Args:
      client: Client of the replay server; a sequence of them where several servers hold the table,
        over which the items are spread.
      table_name: Table that gets the items; its signature must be `layout.signature()`.
      layout: Layout of the items, the reader's.
      max_in_flight_items: Items of one writer that may be unconfirmed before a call waits.
      flush_seconds: Items are pushed to the server at least this often while steps come in.
      timeout_seconds: How long a call may wait for the server.
      version: Returns the train step of the policy that acts; items carry it.

    Raises:
      errors.SpecMismatchError: If the table is made for other data.
      errors.ReplayError: If there is no such table, or the server does not answer.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        layout: codec.Layout,
        *,
        max_in_flight_items: int,
        flush_seconds: float,
        timeout_seconds: float,
        version: Callable[[], int] | None,
    ) -> None:
        self._clients = list(client) if isinstance(client, (list, tuple)) else [client]
        self._client = self._clients[0]
        self._table_name = table_name
        self._layout: Any = layout
        self._max_in_flight_items = max_in_flight_items
        self._flush_seconds = flush_seconds
        self._timeout_seconds = timeout_seconds
        self._version = version or (lambda: 0)
        self._writers: list[Any] = []  # Of type `ItemWriter`, or `ShardWriter`.
        self._checked = False
        self._last_flush = time.monotonic()
        for one in self._clients:
            item_writer.check_table(one, table_name, layout.signature(), timeout_seconds)

    @property
    def layout(self) -> Any:
        """The layout of the items."""
        return self._layout

    def also_into(self, tables: Sequence[str]) -> None:
        """Makes every item in these tables too; call it before the first step.

        Raises:
          errors.SpecMismatchError: If one is made for other data.
          errors.ReplayError: If one is missing, or the server does not answer.
        """
        for table in tables:
            item_writer.check_table(
                self._client, table, self._layout.signature(), self._timeout_seconds
            )
        for writer in self._writers:
            writer.also_into(tables)

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Takes one step, leaves `[lanes, ...]`, or without lanes if there is only one.

        Raises:
          errors.SpecMismatchError: If the first one does not look as the spec says.
          errors.ReplayTimeoutError: If the server does not take items in time.
          errors.OtherRunError: If it has become another run's server.
        """
        if self._layout.num_lanes == 1 and np.ndim(trajectory.step_type) == 0:
            trajectory = tree.map_structure(lambda leaf: np.asarray(leaf)[None], trajectory)
        if not self._checked:
            self._layout.check(trajectory, self._table_name)
            self._checked = True
        self._add(trajectory)
        if time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Waits until the server has confirmed every item.

        Raises:
          errors.ReplayTimeoutError: If that takes longer than `timeout_seconds`.
        """
        for writer in self._writers:
            writer.flush()
        self._last_flush = time.monotonic()

    def reset(self) -> None:
        """Confirms what was written and starts again: no item spans the call."""
        for writer in self._writers:
            writer.clear()

    def close(self) -> None:
        """Confirms what was written and releases the connection; safe to call twice.

        Where the server is gone it warns and returns within seconds.

        Raises:
          errors.ReplayTimeoutError: If the server does not take all items in time; those that it
            has not confirmed may be lost.
        """
        if len(self._clients) == 1:
            item_writer.close_all(self._writers, self._client, self._timeout_seconds)
            return
        try:
            for number, client in enumerate(self._clients):
                writers = [writer.writers[number] for writer in self._writers]
                item_writer.close_all(writers, client, self._timeout_seconds)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Releases the connection at once, instead of `close`; unconfirmed items may be lost."""
        for writer in self._writers:
            writer.abandon()

    @abc.abstractmethod
    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Writes one step of all lanes, and the items that it completes."""

    def _open_writer(
        self,
        window: int,
        pattern: Sequence[str] | None = None,
        configure: Callable[[reverb.TrajectoryWriter], None] | None = None,
    ) -> Any:
        settings: dict[str, Any] = {
            "window": window,
            "pattern": pattern,
            "configure": configure,
            "max_in_flight_items": self._max_in_flight_items,
            "timeout_seconds": self._timeout_seconds,
        }
        writer: Any
        if len(self._clients) == 1:
            writer = item_writer.ItemWriter(self._client, [self._table_name], **settings)
        else:
            # Not all writers begin with the same server.
            writer = shard_writer.ShardWriter(
                self._clients, [self._table_name], first=len(self._writers), **settings
            )
        self._writers.append(writer)
        return writer

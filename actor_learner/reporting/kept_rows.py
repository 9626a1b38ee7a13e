"""A logger that keeps its rows while the disk is full, and writes them once there is room."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from typing import Callable

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import disk_space, unsaved

_MOST_ROWS = 10_000
"""About ten megabytes, or three hours of a row per second."""


class KeptRows:
    """Hands rows on to a logger, which it makes again after a full disk has stopped it.

    Args:
      what: What the rows are called to the user: `metrics.csv`.
      where: A path on the file system that they go to.
      make: Makes the logger. One made before may have failed, and left a torn line behind.
      most_rows: How many are kept in memory; beyond it the oldest are lost, which the user is told.

    Raises:
      What `make` raises, unless the disk is full.
    """

    def __init__(
        self,
        what: str,
        where: str | os.PathLike,
        make: Callable[[], logger_lib.Logger],
        *,
        most_rows: int = _MOST_ROWS,
    ) -> None:
        self._what = what
        self._where = where
        self._make = make
        self._most_rows = most_rows
        self._rows: collections.deque[logger_lib.Row] = collections.deque()
        self._logger: logger_lib.Logger | None = None
        # The ledger of what is unsaved may try again from another thread.
        self._writing = threading.RLock()
        self._attempt()

    def write(self, row: logger_lib.Row) -> None:
        row = logger_lib.plain_row(row)
        with self._writing:
            self._rows.append(row)
            if len(self._rows) > self._most_rows:
                self._rows.popleft()
                unsaved.ledger().lose(f"rows of {self._what}", 1)
            self._attempt(if_due=True)

    def close(self) -> None:
        """Attempts to write what is left, and closes the logger; what is left then is lost."""
        with self._writing:
            self._attempt()
            logger, self._logger = self._logger, None
            if logger is not None:
                logger.close()

    def _attempt(self, if_due: bool = False) -> None:
        unsaved.ledger().attempt(
            self._what,
            self._write_all,
            where=self._where,
            if_due=if_due,
            detail=lambda: f"{len(self._rows):,} rows wait" if self._rows else "",
        )

    def _write_all(self) -> None:
        with self._writing:
            self._write_rows()

    def _write_rows(self) -> None:
        if self._logger is None:
            self._logger = self._make()
        while self._rows:
            try:
                self._logger.write(self._rows[0])
            except Exception as error:
                if not disk_space.is_out_of_space(error, self._where):
                    self._rows.popleft()  # It would fail for ever, and hold up the others.
                    raise
                failed, self._logger = self._logger, None
                with contextlib.suppress(Exception):  # Of the same cause, which is raised below.
                    failed.close()
                raise
            self._rows.popleft()

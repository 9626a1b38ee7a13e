"""Keeps the results of an actor's games where they outlive its process."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct

from absl import logging

from actor_learner.jobs.workers import journal_files
from actor_learner.league import payoff

FOLDER = "games"

# A pair and its counts. Of a size that divides that of a page: a write within a page is never torn.
_ROW = struct.Struct("=116s116sqqq")


class GameJournal:
    """Counts games by pair in a file, as they end.

    As of `StepJournal`, what is written survives `kill -9`, and the successor of a killed process
    reports it in its name.

    Args:
      directory: The job's own; None where there is none: then nothing outlives the process.
      incarnation: Of this process.

    Attributes:
      incarnation: As given.
      table: The games of this process.
      earlier: Those of the latest processes of this actor, by incarnation.
    """

    def __init__(self, directory: pathlib.Path | None, incarnation: str) -> None:
        self.incarnation = incarnation
        self.table = payoff.PayoffTable()
        self._places: dict[payoff.Pair, int] = {}
        self._file, files = journal_files.begin(directory, FOLDER, incarnation, "Games")
        self.earlier = {left.incarnation: _table(left) for left in files}

    def count(self, player: str, opponent: str, record: payoff.Record) -> None:
        """Counts games of a pair."""
        self.table.add(player, opponent, record)
        place = self._places.setdefault((player, opponent), len(self._places))
        if self._file is not None:
            row = _ROW.pack(
                player.encode(), opponent.encode(), *self.table.record(player, opponent)
            )
            # A full disk does not keep the actor from acting; the next game of the pair tries
            # again.
            with contextlib.suppress(OSError):
                os.pwrite(self._file.fileno(), row, place * _ROW.size)


def _table(left: journal_files.EarlierFile) -> payoff.PayoffTable:
    table = payoff.PayoffTable()
    if len(left.content) % _ROW.size:
        logging.warning("%s does not end with a whole row; what is behind is left out.", left.path)
    whole = len(left.content) // _ROW.size * _ROW.size
    for player, opponent, *counts in _ROW.iter_unpack(left.content[:whole]):
        if player.strip(b"\0"):  # Else a row that a full disk has left out.
            names = (name.rstrip(b"\0").decode() for name in (player, opponent))
            table.add(*names, counts)
    return table

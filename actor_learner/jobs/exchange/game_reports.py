"""The games in an actor's reports: totals, as long as the learner has not counted them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actor_learner.league import payoff
from actor_learner.messaging import messages

MAX_ROWS = 2_000
"""Of one report; more follow in the next."""

Row = list[Any]
"""`[process, player, opponent, wins, draws, losses]`."""


class GameReports:
    """Knows which games of an actor's processes the learner has counted.

    Args:
      tables: The games by process, that of this process among them, which grows.
    """

    def __init__(self, tables: Mapping[str, payoff.PayoffTable]) -> None:
        self._tables = dict(tables)
        self._counted: dict[tuple[str, str, str], list[int]] = {}
        self._sent: list[Row] = []

    def begin_again(self) -> None:
        """Forgets what was counted: another learner asks."""
        self._counted = {}

    def rows(self) -> list[Row]:
        """What to report now: totals of pairs that have changed, as many as fit."""
        self._sent = []
        for process, table in self._tables.items():
            for (player, opponent), record in table.records.items():
                if self._counted.get((process, player, opponent)) != list(record):
                    self._sent.append([process, player, opponent, *record])
                    if len(self._sent) == MAX_ROWS:
                        return self._sent
        return self._sent

    def note_counted(self) -> None:
        """Notes that the learner has counted the last `rows`."""
        for process, player, opponent, *counts in self._sent:
            self._counted[process, player, opponent] = counts
        self._sent = []

    @property
    def are_counted(self) -> bool:
        """Whether the learner has counted everything."""
        return all(
            self._counted.get((process, *pair)) == list(record)
            for process, table in self._tables.items()
            for pair, record in table.records.items()
        )


def checked(value: Any) -> list[Row]:
    """Returns the rows of a report.

    Raises:
      messages.BadMessageError: If they are something else.
    """
    if not isinstance(value, list) or not all(map(_is_row, value)):
        raise messages.BadMessageError("games of a report is not a list of pairs with counts")
    return value


def _is_row(value: Any) -> bool:
    kinds = [str, str, str, int, int, int]
    if not isinstance(value, list) or [type(item) for item in value] != kinds:
        return False
    return min(value[3:]) >= 0

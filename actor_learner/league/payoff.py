"""Who has played whom, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Pair = tuple[str, str]
"""A player and its opponent, by their names."""


class Record(NamedTuple):
    """Games of a player against an opponent, counted by how they ended for the player."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Points: the wins, and half of the draws."""
        return self.wins + self.draws / 2

    def plus(self, other: Iterable[int]) -> Record:
        """The sum of two records."""
        return Record(*(one + another for one, another in zip(self, other)))

    def reversed(self) -> Record:
        """The same games as the opponent sees them."""
        return Record(self.losses, self.draws, self.wins)

    @classmethod
    def of(cls, result: float) -> Record:
        """One game, by what the player got: more than 0 is a win, less a loss."""
        return cls(int(result > 0), int(result == 0), int(result < 0))


Table = Mapping[Pair, Record]


class PayoffTable:
    """Records of pairs, in the order in which the pairs first met.

    A pair is counted the way round it was reported; `against` looks both ways.
    """

    def __init__(self, records: Table | None = None) -> None:
        self._records: dict[Pair, Record] = dict(records or {})

    @property
    def records(self) -> dict[Pair, Record]:
        """A copy of all records."""
        return dict(self._records)

    @property
    def games(self) -> int:
        return sum(record.games for record in self._records.values())

    @property
    def players(self) -> list[str]:
        """All who have played, in the order of their first game."""
        return list(dict.fromkeys(name for pair in self._records for name in pair))

    def add(self, player: str, opponent: str, record: Iterable[int]) -> None:
        """Adds games of a pair."""
        self._records[player, opponent] = self.record(player, opponent).plus(record)

    def record(self, player: str, opponent: str) -> Record:
        """The games of a pair, as this player reported them."""
        return self._records.get((player, opponent), Record())

    def against(self, player: str, opponent: str) -> Record:
        """All games of a player against an opponent, whoever of them reported them."""
        there = self.record(player, opponent)
        if player == opponent:
            return there
        return there.plus(self.record(opponent, player).reversed())

    def total(self, player: str) -> Record:
        """All games that a player reported."""
        total = Record()
        for (each, _), record in self._records.items():
            if each == player:
                total = total.plus(record)
        return total

    def rows(self) -> list[list]:
        """As JSON types: `[player, opponent, wins, draws, losses]` each."""
        return [[*pair, *record] for pair, record in self._records.items()]

    @classmethod
    def from_rows(cls, rows: Iterable[list]) -> PayoffTable:
        """What `rows` returned."""
        return cls({(row[0], row[1]): Record(*row[2:]) for row in rows})

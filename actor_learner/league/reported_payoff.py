"""The payoff table of a run whose games are played in several processes, any of which may die."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actor_learner.league import payoff

_REMEMBERED_PER_ACTOR = 16
"""Processes of one actor: twice as many as it reports again in the name of its earlier ones."""

Totals = Iterable[Iterable[Any]]
"""Rows `[player, opponent, wins, draws, losses]`: all games of a process so far, of some pairs."""


class ReportedPayoff:
    """Adds up what processes report.

    A report holds totals of its process, so that a repeated one changes nothing and a lost one is
    made good by the next. What a restored learner has forgotten is reported to it again, and
    counts once. Not thread-safe.

    Attributes:
      table: The sum over all processes.
    """

    def __init__(self) -> None:
        self.table = payoff.PayoffTable()
        # Of each actor its processes, in the order in which they appeared, with their totals.
        self._processes: dict[str, dict[str, payoff.PayoffTable]] = {}

    def take(self, actor: str, process: str, totals: Totals) -> int:
        """Counts what is new in a report; returns the number of games.

        Args:
          actor: Who reports.
          process: Which of its processes has played these games.
          totals: Its games so far; pairs that are left out have not changed.
        """
        processes = self._processes.setdefault(actor, {})
        known = processes.get(process)
        if known is None:
            known = processes[process] = payoff.PayoffTable()
            while len(processes) > _REMEMBERED_PER_ACTOR:
                del processes[next(iter(processes))]  # Its games stay in the table.
        added = 0
        for player, opponent, *counts in totals:
            before = known.record(player, opponent)
            new = payoff.Record(*(now - then for now, then in zip(counts, before)))
            if min(new) < 0 or not new.games:
                continue  # An older report, or one that is known.
            known.add(player, opponent, new)
            self.table.add(player, opponent, new)
            added += new.games
        return added

    def state(self) -> dict[str, Any]:
        """All of it as JSON types."""
        return {
            "table": self.table.rows(),
            "processes": {
                actor: {process: table.rows() for process, table in processes.items()}
                for actor, processes in self._processes.items()
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes back to what `state` returned, in this process or an earlier one."""
        self.table = payoff.PayoffTable.from_rows(state["table"])
        self._processes = {
            actor: {
                process: payoff.PayoffTable.from_rows(rows) for process, rows in processes.items()
            }
            for actor, processes in state["processes"].items()
        }

"""Elo ratings: how strong each player is, from all games that were played."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from actor_learner.league import payoff

ANCHOR = 1000.0
"""The rating of one player, which the others are relative to."""

SCALE = 400.0
"""A player who is this much stronger wins ten games for each that it loses."""

_PRIOR_GAMES = 1.0
_STEPS = 200
_PRECISE = 1e-9


def ratings(table: payoff.PayoffTable, anchor: str | None = None) -> dict[str, float]:
    """The ratings under which the results of a table are the most likely.

    Not the running update of chess federations: the order of games does not matter, so that a
    table always gives the same ratings. A draw is half a win. Each pair that has met counts as
    having drawn one game more, which keeps the rating of who never lost finite.

    Args:
      table: Who has played whom.
      anchor: The player who is rated `ANCHOR`; None is the first one. Players who are linked to it
        by no games have `ANCHOR` as the mean of their own.

    Returns:
      Ratings by player, in the table's order.
    """
    players = table.players
    score, games = _matrices(table, players)
    strength = np.zeros(len(players))  # Natural logarithms of odds.
    first = players.index(anchor) if anchor in players else 0
    for linked in _components(games):
        part = _most_likely(score[np.ix_(linked, linked)], games[np.ix_(linked, linked)])
        strength[linked] = part - (part[linked.index(first)] if first in linked else part.mean())
    return dict(zip(players, (ANCHOR + SCALE / np.log(10.0) * strength).tolist()))


def expected_score(rating: float, other: float) -> float:
    """Wins, and half of the draws, per game of one player against another."""
    return 1.0 / (1.0 + 10.0 ** ((other - rating) / SCALE))


def standings(rated: Mapping[str, float]) -> list[str]:
    """Players from the strongest to the weakest."""
    return sorted(rated, key=lambda name: -rated[name])


def _matrices(table: payoff.PayoffTable, players: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and numbers of games of each player against each, the prior's included."""
    index = {name: number for number, name in enumerate(players)}
    score = np.zeros((len(players), len(players)))
    for (one, other), record in table.records.items():
        i, j = index[one], index[other]
        if i != j and record.games:
            score[i, j] += record.score
            score[j, i] += record.reversed().score
    met = (score + score.T) > 0
    score += met * _PRIOR_GAMES / 2
    return score, score + score.T


def _components(games: np.ndarray) -> list[list[int]]:
    """Players who are linked by games, in groups."""
    left, groups = list(range(len(games))), []
    while left:
        group, pending = [], [left[0]]
        while pending:
            player = pending.pop()
            if player in left:
                left.remove(player)
                group.append(player)
                pending.extend(np.flatnonzero(games[player] > 0).tolist())
        groups.append(sorted(group))
    return groups


def _most_likely(score: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Strengths by Newton's method, which the concave likelihood of Bradley and Terry allows."""
    strength = np.zeros(len(score))
    if len(score) == 1:
        return strength
    for _ in range(_STEPS):
        expected = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
        slope = (score - games * expected).sum(axis=1)
        weight = games * expected * (1.0 - expected)
        curvature = np.diag(weight.sum(axis=1)) - weight
        # The first player stays where it is: only differences count.
        step = np.zeros_like(strength)
        step[1:] = np.linalg.solve(curvature[1:, 1:], slope[1:])
        strength += np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < _PRECISE:
            break
    return strength

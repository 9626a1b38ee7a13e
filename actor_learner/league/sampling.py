"""Whom to play next: a probability for each player of a league."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from actor_learner.league import payoff
from actor_learner.support import errors

LATEST, UNIFORM, PRIORITIZED, RANDOM = "latest", "uniform", "prioritized", "random"
TAG = "tag:"

_PRIOR_GAMES = 2.0


class Candidate(NamedTuple):
    """A player who may be played, and how often.

    Attributes:
      name: Of the player.
      probability: That it is drawn.
    """

    name: str
    probability: float


def check_mixture(mixture: Mapping[str, float]) -> dict[str, float]:
    """Returns a mixture of kinds of opponents if it is one.

    Raises:
      errors.ConfigError: If a kind is unknown or a weight is not a number of at least 0.
    """
    kinds = (LATEST, UNIFORM, PRIORITIZED, RANDOM)
    if not isinstance(mixture, Mapping) or not mixture:
        raise errors.ConfigError(
            f"League.opponents is {mixture!r}: it must be a dictionary of kinds and weights, such "
            "as {'latest': 0.5, 'uniform': 0.5}"
        )
    for kind, weight in mixture.items():
        if kind not in kinds and not (str(kind).startswith(TAG) and len(kind) > len(TAG)):
            raise errors.ConfigError(
                f"League.opponents has the kind {kind!r}: it must be one of "
                f"{', '.join(map(repr, kinds))} or '{TAG}NAME'"
            )
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not 0 <= weight < np.inf:
            raise errors.ConfigError(
                f"League.opponents[{kind!r}] is {weight!r}: a weight is a number of at least 0"
            )
    if not sum(mixture.values()) > 0:
        raise errors.ConfigError(f"League.opponents is {dict(mixture)}: all weights are 0")
    return dict(mixture)


def candidates(
    mixture: Mapping[str, float],
    past: Sequence[str],
    win_rates: Mapping[str, float],
    tagged: Mapping[str, str],
    *,
    power: float,
) -> list[Candidate]:
    """All players who may be drawn, with their probabilities, which sum to 1.

    Args:
      mixture: Weights of kinds. `latest` is the newest of `past`; `uniform` any of `past`;
        `prioritized` is any of `past`, in proportion to `(1 - win rate) ** power`; `random` plays
        at random; `tag:NAME` is the version that has the tag.
      past: The learner's earlier selves, the newest last; at least one.
      win_rates: How often the learner beats each of `past`; those it has not met count as 0.5.
      tagged: Player of each tag that exists. The weight of one that does not, yet, goes to the
        other kinds, or to `latest` if there is none.
      power: How much more often those are played who are hard to beat.
    """
    chances: dict[str, float] = {}

    def give(names: Sequence[str], shares: np.ndarray, weight: float) -> None:
        for name, share in zip(names, weight * shares / shares.sum()):
            if share > 0:
                chances[name] = chances.get(name, 0.0) + float(share)

    one = np.ones(1)
    for kind, weight in mixture.items():
        if kind == LATEST:
            give(past[-1:], one, weight)
        elif kind == UNIFORM:
            give(past, np.ones(len(past)), weight)
        elif kind == PRIORITIZED:
            give(past, _priorities(past, win_rates, power), weight)
        elif kind == RANDOM:
            give([RANDOM], one, weight)
        elif kind[len(TAG) :] in tagged:
            give([tagged[kind[len(TAG) :]]], one, weight)
    if not chances:
        chances[past[-1]] = 1.0
    total = sum(chances.values())
    return [Candidate(name, chance / total) for name, chance in chances.items()]


def thinned(past: Sequence[str], most: int) -> list[str]:
    """At most so many of the past, evenly spread, the oldest and the newest among them."""
    if len(past) <= most:
        return list(past)
    if most == 1:
        return [past[-1]]
    return [past[i] for i in np.linspace(0, len(past) - 1, most).round().astype(int)]


def win_rate(record: payoff.Record) -> float:
    """Score per game, drawn towards 0.5 while there are few games."""
    return (record.score + _PRIOR_GAMES / 2) / (record.games + _PRIOR_GAMES)


def draw(players: Sequence[Candidate], number: int, random: np.random.Generator) -> list[str]:
    """Draws so many players, one by one."""
    chances = np.array([player.probability for player in players])
    drawn = random.choice(len(players), size=number, p=chances / chances.sum())
    return [players[index].name for index in drawn]


def _priorities(past: Sequence[str], win_rates: Mapping[str, float], power: float) -> np.ndarray:
    hard = np.array([(1.0 - win_rates.get(name, 0.5)) ** power for name in past])
    return hard if hard.sum() > 0 else np.ones(len(past))

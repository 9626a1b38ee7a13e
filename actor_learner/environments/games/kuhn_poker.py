"""Kuhn poker, and how exploitable a strategy for it is, exactly.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from actor_learner.environments.games import turn_based
from actor_learner.support import configurable, errors

PASS, BET = 0, 1
NUM_CARDS = 3
HISTORIES = ("", "pb", "p", "b")
"""What may have been played when a player decides: the first two are the first player's, the others
the second's. `p` is a pass, `b` a bet."""

_ENDS = ("pp", "pbp", "pbb", "bp", "bb")
_DEALS = tuple(itertools.permutations(range(NUM_CARDS), 2))

InformationSet = tuple[int, str]
"""What a player knows: its card, from 0, and what was played."""

INFORMATION_SETS: tuple[InformationSet, ...] = tuple(
    (card, history) for history in HISTORIES for card in range(NUM_CARDS)
)

Strategy = Mapping[InformationSet, float]
"""The probability to bet, of each information set of both players."""


@configurable.register
class KuhnPoker(turn_based.TurnBasedGame):
    """Poker with three cards, one each, and one bet; rewards are chips won or lost.

    Both put in one chip. A player may pass (0) or bet one chip (1). After a bet, passing folds and
    betting calls. The observation has 7 elements: one for each card, the player's own set, and one
    for each of `HISTORIES`, the present one set. With best play the first player loses 1/18 of a
    chip a game.
    """

    metadata = {**turn_based.TurnBasedGame.metadata, "name": "kuhn_poker"}

    def __init__(self) -> None:
        super().__init__(2, NUM_CARDS + len(HISTORIES))

    def _begin(self, random: np.random.Generator) -> None:
        self._cards = _DEALS[random.integers(len(_DEALS))]
        self._history = ""

    def _player(self) -> int:
        return len(self._history) % 2

    def _legal(self) -> np.ndarray:
        return np.ones(2, np.bool_)

    def _play(self, move: int) -> None:
        self._history += "pb"[move]

    def _payoffs(self) -> tuple[float, float] | None:
        if self._history not in _ENDS:
            return None
        won = _won(self._cards, self._history)
        return won, -won

    def _view(self, player: int) -> np.ndarray:
        return observation_of((self._cards[player], self._history))


def observation_of(known: tuple[int, str]) -> np.ndarray:
    """What a player sees who has a card after some history, float32 `[7]`."""
    card, history = known
    observation = np.zeros(NUM_CARDS + len(HISTORIES), np.float32)
    observation[card] = 1.0
    if history in HISTORIES:
        observation[NUM_CARDS + HISTORIES.index(history)] = 1.0
    return observation


def expected_value(first: Strategy, second: Strategy) -> float:
    """Chips a game that the first player wins on average; each strategy plays its own seat."""
    return sum(_value(first, second, deal, "") for deal in _DEALS) / len(_DEALS)


def best_response_value(strategy: Strategy, seat: int) -> float:
    """What a player in `seat` can win at most, on average, against a strategy in the other seat.

    Some pure strategy is a best response; all 64 of a seat are tried.
    """
    own = [known for known in INFORMATION_SETS if len(known[1]) % 2 == seat]
    best = -np.inf
    for moves in itertools.product((0.0, 1.0), repeat=len(own)):
        pure = dict(zip(own, moves))
        value = expected_value(pure, strategy) if seat == 0 else -expected_value(strategy, pure)
        best = max(best, value)
    return float(best)


def exploitability(strategy: Strategy) -> float:
    """What a player who knows the strategy wins on average against it, over both seats, in chips.

    0 for an equilibrium, and only there.

    Raises:
      errors.SpecMismatchError: If the strategy is not one of Kuhn poker.
    """
    wrong = [known for known in INFORMATION_SETS if not 0.0 <= strategy.get(known, -1.0) <= 1.0]
    if wrong:
        raise errors.SpecMismatchError(
            f"a strategy needs a probability to bet for each of {INFORMATION_SETS}; of {wrong} it "
            "has none"
        )
    return (best_response_value(strategy, 0) + best_response_value(strategy, 1)) / 2


def equilibrium(bluff: float) -> dict[InformationSet, float]:
    """An equilibrium, where the first player bluffs with the lowest card with this probability.

    All equilibria are of this form, with `bluff` from 0 to 1/3.
    """
    low, middle, high = range(NUM_CARDS)
    return {
        (low, ""): bluff, (middle, ""): 0.0, (high, ""): 3 * bluff,
        (low, "pb"): 0.0, (middle, "pb"): bluff + 1 / 3, (high, "pb"): 1.0,
        (low, "p"): 1 / 3, (middle, "p"): 0.0, (high, "p"): 1.0,
        (low, "b"): 0.0, (middle, "b"): 1 / 3, (high, "b"): 1.0,
    }  # fmt: skip


def average(strategies: Sequence[Strategy]) -> dict[InformationSet, float]:
    """The one strategy that plays as one of several does, drawn at the beginning of each game.

    What a strategy does where it would never be counts as little as it is often there.
    """
    averaged = {}
    for card, history in INFORMATION_SETS:
        reached = bet = 0.0
        for strategy in strategies:
            # Only the second decision of the first player has one of its own before it.
            reach = 1.0 - strategy[card, ""] if history == "pb" else 1.0
            reached += reach
            bet += reach * strategy[card, history]
        averaged[card, history] = bet / reached if reached else 0.5
    return averaged


def _value(first: Strategy, second: Strategy, deal: tuple[int, int], history: str) -> float:
    if history in _ENDS:
        return _won(deal, history)
    player = len(history) % 2
    bet = (first, second)[player][deal[player], history]
    value = 0.0
    for probability, move in ((1.0 - bet, "p"), (bet, "b")):
        if probability:
            value += probability * _value(first, second, deal, history + move)
    return value


def _won(deal: tuple[int, int], history: str) -> float:
    """Chips that the first player has won."""
    if history == "pbp":
        return -1.0
    if history == "bp":
        return 1.0
    stake = 1.0 if history == "pp" else 2.0
    return stake if deal[0] > deal[1] else -stake

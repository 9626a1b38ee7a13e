"""Tic-tac-toe, and a player of it that never loses.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from actor_learner.environments.games import turn_based
from actor_learner.support import configurable

CELLS = 9
_LINES = (
    (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6),
)  # fmt: skip
_WINNING = tuple(sum(1 << cell for cell in line) for line in _LINES)
_FULL = (1 << CELLS) - 1


@configurable.register
class TicTacToe(turn_based.TurnBasedGame):
    """Three in a row on a board of three by three; the winner gets 1, the loser -1, a draw 0.

    A move is a cell, row by row. The observation has 18 elements: the cells that the player who
    looks has taken, then those of the other. Played well by both, it is a draw.
    """

    metadata = {**turn_based.TurnBasedGame.metadata, "name": "tic_tac_toe"}

    def __init__(self) -> None:
        super().__init__(CELLS, 2 * CELLS)

    def _begin(self, random: np.random.Generator) -> None:
        self._taken = [0, 0]  # Bits of the cells, by player.

    def _player(self) -> int:
        return bin(self._taken[0] | self._taken[1]).count("1") % 2

    def _legal(self) -> np.ndarray:
        return ~_cells(self._taken[0] | self._taken[1])

    def _play(self, move: int) -> None:
        self._taken[self._player()] |= 1 << move

    def _payoffs(self) -> tuple[float, float] | None:
        if _wins(self._taken[0]):
            return 1.0, -1.0
        if _wins(self._taken[1]):
            return -1.0, 1.0
        return (0.0, 0.0) if self._taken[0] | self._taken[1] == _FULL else None

    def _view(self, player: int) -> np.ndarray:
        own, other = self._taken[player], self._taken[1 - player]
        return np.concatenate([_cells(own), _cells(other)]).astype(np.float32)


@configurable.register
def optimal_tic_tac_toe(observation: Any, random: np.random.Generator) -> np.ndarray:
    """Plays perfectly: moves to the best end it can force, at random among equally good moves.

    Args:
      observation: Of a batch of games in which the player is to move, leaves `[games, ...]`.
      random: Draws among equally good moves.

    Returns:
      Moves, int64 `[games]`.
    """
    boards = np.asarray(observation["observation"]).reshape(-1, 2, CELLS) > 0.5
    bits = boards @ (1 << np.arange(CELLS))
    return np.array(
        [random.choice(best_moves(int(own), int(other))) for own, other in bits], np.int64
    )


@functools.cache
def value(own: int, other: int) -> int:
    """The best end that the player to move can force: 1 to win, 0 to draw, -1 to lose.

    Args:
      own: Cells taken by the player to move, as bits.
      other: Cells taken by the other.
    """
    if _wins(other):
        return -1
    free = _free(own, other)
    return max((-value(other, own | 1 << cell) for cell in free), default=0)


@functools.cache
def best_moves(own: int, other: int) -> tuple[int, ...]:
    """The moves that force the best end, of a game that is not over; arguments as of `value`."""
    worth = {cell: -value(other, own | 1 << cell) for cell in _free(own, other)}
    return tuple(cell for cell, each in worth.items() if each == max(worth.values()))


def _free(own: int, other: int) -> list[int]:
    return [cell for cell in range(CELLS) if not (own | other) >> cell & 1]


def _wins(taken: int) -> bool:
    return any(taken & line == line for line in _WINNING)


def _cells(taken: int) -> np.ndarray:
    return (taken >> np.arange(CELLS) & 1).astype(np.bool_)

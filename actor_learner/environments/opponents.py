"""Who plays the other seats of a game: the protocol, and players that need no policy."""

from __future__ import annotations

from typing import Any, Callable, Protocol

import numpy as np

MASK = "action_mask"

Player = Callable[[Any, np.random.Generator], np.ndarray]
"""Chooses moves for a batch of observations, `[games, ...]`, with a generator to draw from."""


class Opponents(Protocol):
    """Plays all seats but the learner's, in every lane.

    Of each lane the calls are `begin`, then any number of `act`, then `end`, and so on.
    """

    def begin(self, lanes: np.ndarray) -> None:
        """Takes note that episodes begin in `lanes`, an array of indices: draws who plays them."""

    def act(self, lanes: np.ndarray, observation: Any) -> np.ndarray:
        """Chooses the moves of those lanes, `[len(lanes), ...]`; observations alike."""

    def end(self, lanes: np.ndarray, returns: np.ndarray) -> None:
        """Takes note that episodes have ended, with the learner's returns, `[len(lanes)]`."""


class OnePlayer:
    """The same player in all lanes.

    Args:
      player: Chooses the moves.
      seed: Of what it draws.
    """

    def __init__(self, player: Player, seed: int | None) -> None:
        self._player = player
        self._random = np.random.default_rng(seed)

    def begin(self, lanes: np.ndarray) -> None:
        pass

    def act(self, lanes: np.ndarray, observation: Any) -> np.ndarray:
        return np.asarray(self._player(observation, self._random))

    def end(self, lanes: np.ndarray, returns: np.ndarray) -> None:
        pass


def uniform_player(observation: Any, random: np.random.Generator) -> np.ndarray:
    """Any legal move, each as likely as the others; see `Player`."""
    legal = np.asarray(observation[MASK]) > 0
    # The highest of random numbers is in each legal place with the same probability.
    return np.argmax(np.where(legal, random.random(legal.shape), -1.0), axis=-1)

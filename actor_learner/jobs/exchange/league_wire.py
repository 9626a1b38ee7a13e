"""Brings a league over the wire: the learner tells whom to play, actors fetch their parameters."""

from __future__ import annotations

import time
from concurrent import futures
from typing import Any

import numpy as np
from absl import logging

from actor_learner.jobs.exchange import news as news_lib
from actor_learner.jobs.exchange import peer as peer_lib
from actor_learner.league import sampling
from actor_learner.messaging import messages, protocol
from actor_learner.parameters import parameter_errors, variables
from actor_learner.runs.league import league_keeper, league_opponents

LINEUP, PLAYER = "lineup", "player"
"""Requests to the learner: whom to play, and for the parameters of a player."""

_ASK_SECONDS = 1.0
_TIMEOUT_SECONDS = 10.0


def answer(wire: protocol.Server, keeper: league_keeper.LeagueKeeper) -> None:
    """Answers actors from now on, in the wire's thread."""

    def tell_lineup(request: protocol.Request) -> None:
        lineup = keeper.lineup()
        request.answer(
            {"player": lineup.player, "candidates": [list(each) for each in lineup.candidates]}
        )

    def tell_player(request: protocol.Request) -> None:
        try:
            name = news_lib.checked(request.body, {"name": str})["name"]
            values = keeper.values(name)
        except (messages.BadMessageError, parameter_errors.ParameterError) as error:
            request.refuse(str(error))
            return
        request.answer({"name": name}, values)

    wire.handle(LINEUP, tell_lineup)
    wire.handle(PLAYER, tell_player)


class LeagueFollower:
    """Keeps an actor's opponents up to date.

    It asks every second whom to play, and for players whom it does not have. Nothing waits for the
    answers: until all players of a new lineup are there, the one before is played.

    Args:
      learner: The learner's wire.
      others: The opponents in the actor's environment.
      policy: Of the same kind as the players'; only shapes and types of its variables count.
    """

    def __init__(
        self, learner: peer_lib.Peer, others: league_opponents.LeagueOpponents, policy: Any
    ) -> None:
        self._learner = learner
        self._others = others
        self._specs = {
            name: messages.ArraySpec(variable.dtype.as_numpy_dtype, list(variable.shape))
            for name, variable in variables.named_variables(policy).items()
        }
        self._coming: league_opponents.Lineup | None = None
        self._asked: futures.Future[messages.Message] | None = None
        self._asked_at = -np.inf

    @property
    def is_ready(self) -> bool:
        """Whether there is somebody to play."""
        return self._others.lineup is not None

    def follow(self, wait_seconds: float = 0.0) -> None:
        """Takes an answer, if one has come, and asks for the next thing; between turns.

        Args:
          wait_seconds: How long to wait for the answer.
        """
        if self._asked is not None:
            if not self._asked.done():
                futures.wait([self._asked], wait_seconds)
                if not self._asked.done():
                    return
            asked, self._asked = self._asked, None
            try:
                self._take(asked.result())
            except protocol.NoAnswerError:
                self._coming = None  # Asks the learner of that time from the beginning.
            except (protocol.RefusedError, messages.BadMessageError) as error:
                self._coming = None
                logging.log_first_n(
                    logging.WARNING,
                    "The learner's answer about the league is refused: %s",
                    3,
                    error,
                )
        if self._coming is not None:
            missing = self._others.missing(self._coming)
            if missing:
                self._ask(PLAYER, {"name": missing[0]})
                return
            self._others.line_up(self._coming)
            self._coming = None
        if time.monotonic() - self._asked_at >= _ASK_SECONDS:
            self._ask(LINEUP)

    def _ask(self, kind: str, body: dict[str, Any] | None = None) -> None:
        self._asked_at = time.monotonic()
        self._asked = self._learner.submit(kind, body, timeout_seconds=_TIMEOUT_SECONDS)

    def _take(self, message: messages.Message) -> None:
        if "candidates" in message.body:
            coming = _lineup(message.body)
            # What has not changed needs nothing done.
            self._coming = None if coming == self._others.lineup else coming
            return
        messages.require_arrays(message, self._specs)
        name = news_lib.checked(message.body, {"name": str})["name"]
        self._others.add(name, message.arrays)


def _lineup(body: Any) -> league_opponents.Lineup:
    """Reads whom to play.

    Raises:
      messages.BadMessageError: If it is something else.
    """
    fields = news_lib.checked(body, {"player": str, "candidates": list})
    candidates = []
    for each in fields["candidates"]:
        if not isinstance(each, list) or [type(item) for item in each] != [str, float]:
            raise messages.BadMessageError(f"{each!r:.80} is not a player with a probability")
        candidates.append(sampling.Candidate(*each))
    if not candidates or not 0.99 < sum(each.probability for each in candidates) < 1.01:
        raise messages.BadMessageError("probabilities of players do not sum to 1")
    return league_opponents.Lineup(fields["player"], tuple(candidates))

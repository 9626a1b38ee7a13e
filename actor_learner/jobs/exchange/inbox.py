"""Receives the reports of actors and the results of evaluators for the learner."""

from __future__ import annotations

import bisect
import collections
import math
import time
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf
from absl import logging

from actor_learner.acting import turn_times
from actor_learner.jobs.exchange import game_reports
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.messaging import messages, protocol
from actor_learner.runs.progress import reported_statistics
from actor_learner.support import counters, fault_points

_MAX_WAITING = 10_000
_PAUSE_SECONDS, _PAUSE_PER_ACTOR = 0.05, 0.001
_RESTART_SECONDS = 30.0  # An actor that vanished may be back by then.

_REPORT = {"actor": int, "incarnation": str, "total": int, "episodes": int, "last": bool}
_LISTS = {"returns": {int, float}, "lengths": {int}}


class Inbox:
    """Receives messages in the wire's thread; processes and answers them when the learner calls it.

    Args:
      wire: The learner's; it must have the topic of the news before the first `take_all`.
      epoch: Of this learner.
      statistics: Counts what is reported.
      environment_step: Increased by the reported steps.
      known_steps: Returns the environment steps counted so far, for the answers.
      on_result: Called with the request of an evaluator, which it must answer.
      on_games: Called with an actor, one of its processes, and the totals of its games by pair.

    Attributes:
      steps: Environment steps that were reported to this learner.
      actors: Indices of the actors that follow the news and have more to report, in order.
      left: Indices of the evaluators that were told to end.
      lets_go: Whether learners of further policies that have saved all may end; the learner of
        `main` sets it when nobody needs them any more.
      let_go: Names of the policies whose learners were told so.
    """

    def __init__(
        self,
        wire: protocol.Server,
        *,
        epoch: int,
        statistics: reported_statistics.ReportedStatistics,
        environment_step: tf.Variable,
        known_steps: Callable[[], int],
        on_result: protocol.Handler,
        on_games: Callable[[str, str, Sequence[Any]], Any] = lambda actor, process, totals: None,
    ) -> None:
        self._wire = wire
        self._epoch = epoch
        self._statistics = statistics
        self._environment_step = environment_step
        self._known_steps = known_steps
        self._on_result = on_result
        self._on_games = on_games
        self._waiting: collections.deque[protocol.Request] = collections.deque()
        self._taken_at = -math.inf
        self._followers: Sequence[str] = ()
        self._ranks: dict[int, int] = {}
        self.steps = 0
        self.actors: list[int] = []
        self.left: set[int] = set()
        self.lets_go = False
        self.let_go: set[str] = set()
        self._gone: set[int] = set()  # Actors that have reported for the last time.
        self._vanished: dict[int, float] = {}  # When those did that have not.
        self._leaving: list[protocol.Request] = []

    def open(self) -> None:
        """Receives requests from now on."""
        self._wire.handle(news_lib.REPORT, self._receive)
        self._wire.handle(news_lib.RESULT, self._receive)
        self._wire.handle(news_lib.LEAVE, self._receive)
        self._wire.handle(news_lib.SAVED, self._receive)

    def take_all(self) -> None:
        """Processes all messages that have arrived, and updates who is there.

        With many actors it does so at most twenty times per second: processing many reports at
        once costs a fraction of processing them one by one.
        """
        now = time.monotonic()
        if now - self._taken_at < min(_PAUSE_SECONDS, len(self.actors) * _PAUSE_PER_ACTOR):
            return
        self._taken_at = now
        self._look_who_is_there()
        before = self.steps
        try:
            for _ in range(len(self._waiting)):
                self._take(self._waiting.popleft())
        finally:
            if self.steps > before:
                # Once for all reports: it takes as long as everything else for one of them.
                counters.add(self._environment_step, self.steps - before)

    @property
    def lost(self) -> list[int]:
        """Actors that have vanished without a last report, so lately that they may come back."""
        since = time.monotonic() - _RESTART_SECONDS
        return sorted(actor for actor, at in self._vanished.items() if at > since)

    def answer_leaving(self, save: Callable[[], Any]) -> None:
        """Answers actors that have reported for the last time, if there are any.

        Args:
          save: Called first: they end when they are answered, and could not report again to a
            learner that is restored from an earlier checkpoint.
        """
        if self._leaving:
            save()
            leaving, self._leaving = self._leaving, []
            for request in leaving:
                self._answer_report(request)

    def present(self, kind: str) -> list[int]:
        """Returns the indices of the jobs of a kind that follow the news."""
        found = set()
        for who in self._wire.followers(news_lib.TOPIC):
            name, _, index = who.rpartition("-")
            if name == kind and index.isdecimal():
                found.add(int(index))
        return sorted(found)

    def _look_who_is_there(self) -> None:
        followers = self._wire.followers(news_lib.TOPIC)
        if followers == self._followers:
            return
        self._followers = followers
        present = [index for index in self.present("actor") if index not in self._gone]
        if present != self.actors:
            logging.info("Actors now: %s.", ", ".join(map(str, present)) or "none")
        now = time.monotonic()
        for actor in set(self.actors).difference(present, self._gone):
            self._vanished[actor] = now
        for actor in self._gone.union(present):
            self._vanished.pop(actor, None)
        self.actors = present
        self._ranks = {actor: rank for rank, actor in enumerate(present)}

    def _receive(self, request: protocol.Request) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            request.refuse("the learner has too many messages waiting: try again later")
            return
        self._waiting.append(request)

    def _take(self, request: protocol.Request) -> None:
        try:
            if request.message.kind == news_lib.REPORT:
                self._take_report(request)
            elif request.message.kind == news_lib.SAVED:
                self._take_saved(request)
            else:
                self._take_evaluators(request)
        except messages.BadMessageError as error:
            request.refuse(str(error))

    def _take_evaluators(self, request: protocol.Request) -> None:
        evaluator = news_lib.checked(request.body, {"evaluator": int})["evaluator"]
        if request.message.kind == news_lib.LEAVE:
            self.left.add(evaluator)
            request.answer()
        else:
            self.left.discard(evaluator)  # It was started again.
            self._on_result(request)

    def _take_saved(self, request: protocol.Request) -> None:
        policy = news_lib.checked(request.body, {"policy": str})["policy"]
        if self.lets_go:
            self.let_go.add(policy)
        request.answer({"may_end": self.lets_go})

    def _take_report(self, request: protocol.Request) -> None:
        report = _report(request.body)
        actor = report["actor"]
        if report["last"] != (actor in self._gone):
            (self._gone.add if report["last"] else self._gone.discard)(actor)
            self._followers = ()  # Forces an update of who is there.
        for process, *totals in report["games"]:
            self._on_games(str(actor), process, [totals])
        steps = self._statistics.take(report)
        if steps:
            self.steps += steps
            fault_points.reach(fault_points.REPORT_COUNTED)
        if report["last"]:
            fault_points.reach(fault_points.LAST_REPORT_COUNTED)
            self._leaving.append(request)
        else:
            self._answer_report(request)

    def _answer_report(self, request: protocol.Request) -> None:
        rank, num_actors = self._rank(request.body["actor"])
        request.answer(
            {
                "epoch": self._epoch,
                "environment_step": self._known_steps(),
                "rank": rank,
                "num_actors": num_actors,
            }
        )

    def _rank(self, actor: int) -> tuple[int, int]:
        """Returns the rank of an actor among all, and their number, itself included."""
        rank = self._ranks.get(actor)
        if rank is not None:
            return rank, len(self.actors)
        return bisect.bisect(self.actors, actor), len(self.actors) + 1


def _report(body: Any) -> dict[str, Any]:
    """Reads an actor's report.

    Raises:
      messages.BadMessageError: If it is something else.
    """
    report = news_lib.checked(body, _REPORT)
    for name, kinds in _LISTS.items():
        values = body.get(name)
        if not isinstance(values, list) or not kinds.issuperset(map(type, values)):
            raise messages.BadMessageError(f"{name} of a report is not a list of numbers")
        report[name] = values
    report["earlier"] = body.get("earlier", [])
    if not isinstance(report["earlier"], list) or not all(map(_is_process, report["earlier"])):
        raise messages.BadMessageError("earlier of a report is not a list of processes")
    report["games"] = game_reports.checked(body.get("games", []))
    lag = body.get("version_lag_seconds")
    report["version_lag_seconds"] = float(lag) if isinstance(lag, (int, float)) else None
    shares = body.get("time")
    report["time"] = {
        str(kind): float(share)
        for kind, share in (shares.items() if isinstance(shares, dict) else ())
        if isinstance(share, (int, float)) and kind in turn_times.ALL
    }
    return report


def _is_process(value: Any) -> bool:
    """Whether a value is an incarnation with its counts of steps and episodes."""
    return isinstance(value, list) and [type(item) for item in value] == [str, int, int]

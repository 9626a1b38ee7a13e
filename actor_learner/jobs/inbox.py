"""What actors and evaluators send to the learner: their counts, their results."""

from __future__ import annotations

import collections
from typing import Any, Callable

import tensorflow as tf
from absl import logging

from actor_learner.jobs import news as news_lib
from actor_learner.messaging import messages, protocol
from actor_learner.runs import reported_statistics
from actor_learner.support import counters, fault_points

_MAX_WAITING = 10_000

_REPORT = {"actor": int, "incarnation": str, "total": int, "episodes": int, "last": bool}
_LISTS = {"returns": (int, float), "lengths": (int,)}


class Inbox:
    """Receives in the wire's thread; takes in, and answers, when the learner says so.

    Args:
      wire: The learner's, which has the topic of the news by the time of the first `take_all`.
      epoch: Of this learner.
      statistics: Takes the reports.
      environment_step: Raised by the steps that are reported.
      known_steps: Returns the environment steps that the learner knows of, for the answers.
      on_result: Called with the request of an evaluator, which it answers.

    Attributes:
      steps: Environment steps that were reported to this learner.
      actors: Indices of the actors that follow the news and have more to report, in order.
      left: Indices of the evaluators that were told to end.
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
    ) -> None:
        self._wire = wire
        self._epoch = epoch
        self._statistics = statistics
        self._environment_step = environment_step
        self._known_steps = known_steps
        self._on_result = on_result
        self._waiting: collections.deque[protocol.Request] = collections.deque()
        self.steps = 0
        self.actors: list[int] = []
        self.left: set[int] = set()
        self._gone: set[int] = set()  # Actors that have reported for the last time.

    def open(self) -> None:
        """Has requests received from now on."""
        self._wire.handle(news_lib.REPORT, self._receive)
        self._wire.handle(news_lib.RESULT, self._receive)
        self._wire.handle(news_lib.LEAVE, self._receive)

    def take_all(self) -> None:
        """Takes in all that has come, and looks who is there."""
        present = [index for index in self.present("actor") if index not in self._gone]
        if present != self.actors:
            logging.info("Actors now: %s.", ", ".join(map(str, present)) or "none")
        self.actors = present
        for _ in range(len(self._waiting)):
            request = self._waiting.popleft()
            try:
                self._take(request)
            except messages.BadMessageError as error:
                request.refuse(str(error))

    def _take(self, request: protocol.Request) -> None:
        if request.message.kind == news_lib.REPORT:
            self._take_report(request)
            return
        evaluator = news_lib.checked(request.body, {"evaluator": int})["evaluator"]
        if request.message.kind == news_lib.LEAVE:
            self.left.add(evaluator)
            request.answer()
        else:
            self.left.discard(evaluator)  # It was started again.
            self._on_result(request)

    def present(self, kind: str) -> list[int]:
        """The indices of the jobs of a kind that follow the news."""
        found = set()
        for who in self._wire.followers(news_lib.TOPIC):
            name, _, index = who.rpartition("-")
            if name == kind and index.isdecimal():
                found.add(int(index))
        return sorted(found)

    def _receive(self, request: protocol.Request) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            request.refuse("the learner has more messages than it can take: try again later")
            return
        self._waiting.append(request)

    def _take_report(self, request: protocol.Request) -> None:
        report = _report(request.body)
        (self._gone.add if report["last"] else self._gone.discard)(report["actor"])
        steps = self._statistics.take(report)
        if steps:
            self.steps += steps
            counters.add(self._environment_step, steps)
            fault_points.reach(fault_points.REPORT_COUNTED)
        everyone = sorted({*self.actors, report["actor"]})
        request.answer(
            {
                "epoch": self._epoch,
                "environment_step": self._known_steps(),
                "rank": everyone.index(report["actor"]),
                "num_actors": len(everyone),
            }
        )


def _report(body: Any) -> dict[str, Any]:
    """An actor's report, checked.

    Raises:
      messages.BadMessageError: If it is something else.
    """
    report = news_lib.checked(body, _REPORT)
    for name, kinds in _LISTS.items():
        values = body.get(name)
        if not isinstance(values, list) or not all(isinstance(v, kinds) for v in values):
            raise messages.BadMessageError(f"{name} of a report is not a list of numbers")
        report[name] = values
    lag = body.get("version_lag_seconds")
    report["version_lag_seconds"] = float(lag) if isinstance(lag, (int, float)) else None
    return report

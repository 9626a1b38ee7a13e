"""Actors that do nothing but talk: they follow the news, pull the policy, report. No TensorFlow.

python -m benchmarks.wire_actors LEARNER_ADDRESS FIRST_INDEX COUNT TURN_SECONDS
"""

from __future__ import annotations

import collections
import heapq
import statistics
import sys
import threading
import time
from concurrent import futures
from typing import Any

import zmq

from actor_learner.jobs.exchange import news as news_lib
from actor_learner.messaging import client, messages

_TIMEOUT_SECONDS = 10.0
_FIRST_SECONDS = 120.0
_STEPS_PER_TURN = 64
_EPISODES = 20


class WireActor:
    """One actor's end of the wire; talks as `jobs.follower` and `jobs.reports` do.

    Args:
      address: Of the learner's wire.
      index: Which actor.
      context: Of ZeroMQ, shared by all of this process.

    Attributes:
      delays: Seconds that each news was on its way, since the last `clear`.
      ages: Seconds, when each news came, since the one before was told: how old what this actor
        knew had become by then.
      counts: Of news, policies pulled and reports answered.
    """

    def __init__(self, address: str, index: int, context: zmq.Context) -> None:
        self._index = index
        self._news: news_lib.News | None = None
        self._version = -1
        self._policy: futures.Future[messages.Message] | None = None
        self._report: futures.Future[messages.Message] | None = None
        self._turns = 0
        self._reported_at = 0.0
        self.has_policy = threading.Event()
        self.clear()
        self._wire = client.Client(address, who=f"actor-{index}", context=context)
        self._wire.follow(news_lib.TOPIC, self._hear)

    def clear(self) -> None:
        """Forgets what was measured."""
        self.delays: list[float] = []
        self.ages: list[float] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def turn(self) -> None:
        """What an actor does between two turns of acting; waits for nothing."""
        self._take_policy()
        news = self._news
        if news is None:
            return
        if self._policy is None and news.version != self._version:
            self._policy = self._wire.submit(news_lib.POLICY, timeout_seconds=_TIMEOUT_SECONDS)
        self._turns += 1
        if self._report is not None and self._report.done():
            self._report.result()  # Raises what went wrong.
            self._report = None
            self.counts["reports"] += 1
        pause = news_lib.report_seconds(news.num_actors)
        if self._report is None and time.monotonic() - self._reported_at >= pause:
            self._send_report()

    def _send_report(self) -> None:
        self._reported_at = time.monotonic()
        self._report = self._wire.submit(
            news_lib.REPORT,
            {
                "actor": self._index,
                "incarnation": f"process-{self._index}",
                "total": self._turns * _STEPS_PER_TURN,
                "last": False,
                "episodes": self._turns,
                "version_lag_seconds": 0.125,
                "returns": [123.456789] * _EPISODES,
                "lengths": [123] * _EPISODES,
            },
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def _take_policy(self) -> None:
        if self._policy is None or not self._policy.done():
            return
        pulled, self._policy = self._policy.result(), None
        self._version = pulled.body["version"]
        self.counts["policies"] += 1
        self.has_policy.set()

    def _hear(self, message: messages.Message) -> None:
        now = time.monotonic()
        before, news = self._news, news_lib.News.of(message.body)
        if before is not None:
            if news.train_step == before.train_step:
                return  # What is sent again to whoever might have missed it.
            self.ages.append(now - before.train_step / 1e6)
        self.delays.append(now - news.train_step / 1e6)
        self.counts["news"] += 1
        self._news = news


class WireActors:
    """Some actors, whose turns are taken by one thread: the acting between them costs nothing.

    Args:
      address: Of the learner's wire.
      first: Index of the first.
      count: How many.
      turn_seconds: How long a turn of each takes.
    """

    def __init__(self, address: str, first: int, count: int, turn_seconds: float) -> None:
        context = zmq.Context()
        context.max_sockets = 4 * count + 16
        self._turn_seconds = turn_seconds
        self._actors = [WireActor(address, first + i, context) for i in range(count)]
        begins = time.monotonic()
        # Out of step with one another, as processes are.
        self._due = [(begins + turn_seconds * i / count, i) for i in range(count)]
        self._late = 0.0

    def wait_for_policies(self) -> None:
        """Takes turns until every actor has a policy.

        Raises:
          RuntimeError: If that takes minutes.
        """
        deadline = time.monotonic() + _FIRST_SECONDS
        while not all(actor.has_policy.is_set() for actor in self._actors):
            if time.monotonic() > deadline:
                raise RuntimeError("some actors have no policy: is the learner at that address?")
            self.take_turn()

    def take_turn(self) -> None:
        """Waits for the next turn that is due, and takes it."""
        due, index = self._due[0]
        now = time.monotonic()
        if due > now:
            time.sleep(due - now)
        else:
            self._late = max(self._late, now - due)
        self._actors[index].turn()
        heapq.heapreplace(self._due, (max(due, now - 1.0) + self._turn_seconds, index))

    def measured(self) -> dict[str, Any]:
        """What the actors have seen since the last call."""
        counts: collections.Counter[str] = collections.Counter()
        delays, ages = [], []
        for actor in self._actors:
            if actor.delays and actor.ages:
                delays.append(statistics.median(actor.delays))
                ages.append(max(actor.ages))
            counts += actor.counts
            actor.clear()
        late, self._late = self._late, 0.0
        return {
            "delays": delays,
            "ages": ages,
            "counts": dict(counts),
            "late": late,
            "processor_seconds": time.process_time(),
        }


def main() -> None:
    from benchmarks import partner

    address, first, count, turn_seconds = sys.argv[1:]
    actors = WireActors(address, int(first), int(count), float(turn_seconds))
    actors.wait_for_policies()
    ended = partner.serve("ready", actors.measured)
    while not ended.is_set():
        actors.take_turn()


if __name__ == "__main__":
    main()

"""Sends an actor's counts to the learner, and computes its share of the steps to take."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any, Protocol

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.exchange import follower as follower_lib
from actor_learner.jobs.exchange import game_reports
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.jobs.exchange import peer as peer_lib
from actor_learner.messaging import messages, protocol

_TIMEOUT_SECONDS = 5.0
_EPISODES = 20


class Acting(Protocol):
    """The part of an acting side that is reported."""

    statistics: Any

    @property
    def steps_taken(self) -> int: ...

    def time_shares(self) -> dict[str, float]: ...


class ReportSender:
    """Reports the counts of this process, and knows which of them the learner has counted.

    A report holds totals, so that a lost one is made good by the next, and a repeated one changes
    nothing. At most one is under way; the next follows when it is answered. With many actors, each
    reports less often, unless it must wait for the learner's count.

    Args:
      job: The actor's.
      learner: The learner's wire.
      acting: Counts steps and episodes.
      follower: Has the news and the version that acts.
      earlier: What earlier processes of this actor have done, as `(incarnation, steps, episodes)`:
        they may have been killed before they reported it, or the learner before it saved it.
      games: Results of games to report; None if there are none.
    """

    def __init__(
        self,
        job: job_lib.Job,
        learner: peer_lib.Peer,
        acting: Acting,
        follower: follower_lib.Follower,
        earlier: Sequence[tuple[str, int, int]] = (),
        games: game_reports.GameReports | None = None,
    ) -> None:
        self._job = job
        self._learner = learner
        self._acting = acting
        self._follower = follower
        self._earlier = [list(process) for process in earlier]
        self._games = games
        self._sent: futures.Future[messages.Message] | None = None
        self._sent_total = self._counted = 0
        self._sent_at = -math.inf
        self._counted_by = -1  # The epoch of the learner that counted them.
        self._environment_step = 0  # That learner's count of all actors then.
        self._sent_whole = False  # Whether all was in it that only a new learner needs.
        self._is_last = False
        self.share = (0, 1)
        """This actor's rank among the actors of the run, and their number, as the learner said."""

    def steps_left(self) -> int:
        """Returns the environment steps that this actor may take now: its share of those left."""
        news = self._follower.news
        known = max(news.environment_step, self._environment_step)
        share = math.ceil((news.steps_allowed - known) / max(1, news.num_actors))
        if self._counted_by == news.epoch:
            return share - (self._acting.steps_taken - self._counted)
        # This learner may know nothing yet of this process, nor of those that died before it.
        earlier = sum(steps for _, steps, _ in self._earlier)
        return share - self._acting.steps_taken - earlier

    def check(self) -> None:
        """Takes the answer to the last report; sends another if needed."""
        self._take_answer()
        news = self._follower.news
        if self._sent is None and (
            (news is not None and self._is_new_to_learner())
            or self._counted < self._acting.steps_taken
        ):
            self.send()

    def send(self) -> None:
        """Reports, unless a report is under way or was sent just now; then `check` does later."""
        self._take_answer()
        if self._sent is None and self._is_due():
            self._send()

    def finish(self, timeout_seconds: float) -> None:
        """Reports for the last time; waits until everything is counted and saved, or times out.

        The learner then knows that this process sends nothing more. If the process is asked to end
        meanwhile, it stops waiting. Steps that are not counted by then are logged.
        """
        deadline = time.monotonic() + timeout_seconds
        was_stopping = self._job.stopping.is_set()
        if self._sent is not None:
            futures.wait([self._sent], timeout_seconds)
            self._take_answer()
        self._is_last, is_told = True, False
        while not is_told:
            left = deadline - time.monotonic()
            if left <= 0 or (self._job.stopping.is_set() and not was_stopping):
                uncounted = self._acting.steps_taken - self._counted
                if uncounted:
                    logging.warning(
                        "%s: the learner has not counted the last %d steps of this process.",
                        self._job,
                        uncounted,
                    )
                return
            if self._sent is None:
                self._send()
            futures.wait([self._sent], min(left, 1.0))
            self._learner.check()
            is_told = self._take_answer() and (self._games is None or self._games.are_counted)

    def _is_due(self) -> bool:
        news = self._follower.news
        if news is None or time.monotonic() - self._sent_at >= news_lib.report_seconds(
            news.num_actors
        ):
            return True
        return self._is_new_to_learner() or self.steps_left() <= 0

    def _is_new_to_learner(self) -> bool:
        """Whether the learner of now has not counted anything of this process yet."""
        news = self._follower.news
        return news is None or self._counted_by != news.epoch

    def _send(self) -> None:
        statistics = self._acting.statistics
        games = {}
        self._sent_whole = self._is_new_to_learner()
        if self._games is not None:
            if self._sent_whole:
                self._games.begin_again()
            games["games"] = self._games.rows()
        self._sent_total, self._sent_at = self._acting.steps_taken, time.monotonic()
        self._sent = self._learner.submit(
            news_lib.REPORT,
            {
                "actor": self._job.index,
                "incarnation": self._job.incarnation,
                "total": self._sent_total,
                "last": self._is_last,
                "earlier": self._earlier if self._sent_whole else [],
                "episodes": int(statistics.episodes),
                "time": self._acting.time_shares(),
                "version_lag_seconds": round(self._follower.lag_seconds, 3),
                "returns": [round(float(r), 6) for r in list(statistics.returns)[-_EPISODES:]],
                "lengths": [int(n) for n in list(statistics.lengths)[-_EPISODES:]],
                **games,
            },
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def _take_answer(self) -> bool:
        """Takes the answer to the last report, if it has come; returns whether it was counted."""
        if self._sent is None or not self._sent.done():
            return False
        sent, self._sent = self._sent, None
        try:
            answer = news_lib.checked(
                sent.result().body,
                {"epoch": int, "environment_step": int, "rank": int, "num_actors": int},
            )
        except protocol.NoAnswerError:
            return False  # The next report makes up for it.
        except (protocol.RefusedError, messages.BadMessageError) as error:
            logging.log_first_n(logging.WARNING, "The learner refuses a report: %s", 3, error)
            return False
        if answer["epoch"] > self._counted_by and not self._sent_whole:
            # A new learner, whose news have not come yet. It knows only what it was told now.
            self._counted_by = -1
            return False
        if answer["epoch"] >= self._counted_by:
            self._counted, self._counted_by = self._sent_total, answer["epoch"]
            self._environment_step = answer["environment_step"]
            self.share = (answer["rank"], answer["num_actors"])
            if self._games is not None:
                self._games.note_counted()
        return True

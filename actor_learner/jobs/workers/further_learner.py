"""The learner job of a policy that is trained beside `main` in a world with many agents."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from concurrent import futures
from typing import Any

from absl import logging

from actor_learner import run_directory
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.jobs.exchange import peer
from actor_learner.jobs.workers import learner, learner_ending
from actor_learner.messaging import messages, protocol
from actor_learner.parameters import store
from actor_learner.reporting import curve, logger
from actor_learner.runs import further_policy, model
from actor_learner.support import errors

_ASK_SECONDS = 5.0


class FurtherLearnerJob(learner.LearnerJob):
    """Trains one further policy, from its own tables, in `agents/POLICY` of the run directory.

    It is a learner as that of `main` is, with an epoch, versions, checkpoints and metrics of its
    own, and counts the steps of its own agents; but how long the run lasts is for the learner of
    `main` to say. Once that says that training is complete, this one takes the train steps that are
    due for the actors' last reports, saves, and stays until the evaluators need its policy no more.

    Args:
      policy: Name of the policy.
    """

    def __init__(self, policy: str) -> None:
        super().__init__()
        self._policy = policy
        self._own: run_directory.RunDirectory | None = None
        self._main: peer.Peer | None = None
        self._news: news_lib.News | None = None  # Of the learner of `main`.
        self._heard_before_end = False
        self._last_reports: learner_ending.LastReports | None = None
        self._asked: futures.Future[messages.Message] | None = None

    def configure(self) -> None:
        try:
            super().configure()
        except errors.REFUSALS:
            if self._own is not None:
                self._own.discard()
            raise
        self._main = peer.Peer(
            self.job, learner.KIND, timeout_seconds=self._settings.patience_seconds
        )
        self._closing.callback(self._main.close)
        self._main.follow(news_lib.TOPIC, self._hear)

    def poll(self) -> worker.PollResult | bool:
        self._main.check()
        if self._ending is None and self._main.silent_seconds > self._settings.patience_seconds:
            raise errors.JobTimeoutError(
                f"{self.job} has heard nothing from {self._main}, which says when training ends, "
                f"for {self._settings.patience_seconds:g} s (Jobs.patience_seconds): is it running?"
            )
        return super().poll()

    def status(self) -> dict[str, Any]:
        return {**super().status(), "policy": self._policy}

    def _hear(self, message: messages.Message) -> None:
        """Takes news of the learner of `main`, in the wire's thread."""
        news = news_lib.News.of(message.body)
        known = self._news
        if known is None or news.epoch >= known.epoch:
            self._heard_before_end |= not news.done
            self._news = news

    def _own_directory(self) -> run_directory.RunDirectory:
        self._own = further_policy.directory_of(self.job.run_dir, self._policy)
        self._own.make()
        return self._own

    def _make_model(self) -> model.Model:
        experiment, seed = self._experiment, self.job.seed
        env = experiment.make_environment(seed)  # It says how the policy is trained.
        try:
            made = self._replay.make_policy_model(experiment, env, self._policy, seed)
            self._experiment = experiment.for_policy(env.spec_of(self._policy))
        finally:
            env.close()
        return made

    def _apply_warm_start(self) -> None:
        """Does nothing: a run begins with the policy `main` of another."""

    def _describe_run(self) -> None:
        """Does nothing: the learner of `main` does."""

    def _build_evaluations(self, versions: store.ParameterStore) -> None:
        """Does nothing: evaluators rate `main`, beside whatever this policy is by then."""

    def _take_result(self, request: protocol.Request) -> None:
        request.refuse(f"results are for the learner of `main`, not for that of {self._policy}")

    def _loggers(self) -> Sequence[logger.Logger]:
        return ()

    def _further_policies(self) -> Collection[str]:
        return ()

    def _early_end(self) -> tuple[str, str] | None:
        return None

    def _last_step(self) -> int:
        return sys.maxsize

    def _all_steps_are_taken(self) -> bool:
        """Whether the learner of `main` has ended training, and all actors have reported."""
        if self._news is None or not self._news.done:
            self._last_reports = None
            return False
        if self._last_reports is None:
            self._last_reports = learner_ending.LastReports(may_rejoin=not self._heard_before_end)
        return self._last_reports.are_in(self._inbox)

    def _is_over(self) -> bool:
        """Whether the learner of `main` says that nobody needs this one, or is gone itself."""
        if self._main.silent_seconds > learner_ending.LAST_REPORTS_SECONDS:
            logging.warning("%s ends without a word of %s, which is gone.", self.job, self._main)
            return True
        if self._asked is None:
            self._asked = self._main.submit(
                news_lib.SAVED, {"policy": self._policy}, timeout_seconds=_ASK_SECONDS
            )
        if not self._asked.done():
            return False
        answer, self._asked = self._asked, None
        try:
            return bool(answer.result().body.get("may_end"))
        except (protocol.NoAnswerError, protocol.RefusedError):
            return False  # It is being restarted, or about to listen: asked again.

    def _require_rated(self) -> None:
        """Does nothing: it is `main` that is rated."""

    def _close_metrics(self) -> None:
        self._metric_files.close()
        if not self.job.displaced:
            curve.draw_run(self._run_dir, None)

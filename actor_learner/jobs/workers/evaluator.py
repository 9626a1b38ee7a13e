"""The evaluator job: rates the learner's policy as it improves, without delaying training."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import follower, peer, replay_connection
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.learning import evaluation
from actor_learner.messaging import protocol
from actor_learner.runs import further_model, further_policy
from actor_learner.runs.evaluation import rating
from actor_learner.support import counters, errors, fault_points, seeds

KIND = "evaluator"
_WAIT_SECONDS = 0.5
_DELIVERY_SECONDS = 10.0
_LAST_DELIVERY_SECONDS = 5.0
"""How long a job that was asked to end tries to deliver a result."""

_LEAVE_SECONDS = 1.0


class EvaluatorJob(worker.Worker):
    """Evaluates the greedy policy of the newest version, again and again.

    It begins an evaluation when `Evaluation.interval` environment steps have passed since the last
    one, always takes the newest version, and never leaves out the final one. Each result goes to
    the learner, which records it and ends training when the target is reached and confirmed.
    Several evaluators work independently, with different episodes. The best policy that each of
    them has rated also goes to the learner, rated again on other episodes; the learner keeps the
    best of all in `best/` and in the parameter store.
    """

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        self._evaluations = 0
        self._last_mean: float | None = None
        self._result: tuple[dict[str, Any], dict[str, Any]] | None = None  # To be delivered.

    def configure(self) -> None:
        job = self.job
        self._patience_seconds = jobs_settings.declared(job.source).patience_seconds
        self._experiment = experiment_lib.Experiment()
        replay = replay_connection.ReplayConnection(job)
        self._closing.callback(replay.close)
        self._model = replay.make_model(self._experiment, job.seed)
        self._others: list[follower.Follower] = []
        self._other_learners: list[peer.Peer] = []
        self._best = evaluation.BestScore(self._experiment.evaluation.target_return)
        self._rating = rating.Rating(
            self._experiment,
            self._model.agent.policy,
            self._best,
            seed=seeds.of(job.seed, KIND, job.index),
            life=job.incarnation,
            specs=(self._model.time_step_spec, self._model.action_spec),
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            directory=None if job.run_dir is None else job.run_dir.path,
            furnish=lambda env: self._furnish(env, replay),
        )
        replay.close()
        self._closing.callback(self._rating.close)
        self._learner = peer.Peer(job, "learner", timeout_seconds=self._patience_seconds)
        self._closing.callback(self._learner.close)
        self._follower = follower.Follower(self._learner, self._model.published_variables())
        self._next_step = self._experiment.evaluation.interval

    def poll(self) -> worker.PollResult | bool:
        self._learner.check()
        for learner in self._other_learners:
            learner.check()
        if self._result is not None:
            self._deliver()
            return False
        if self._follower.silent_seconds > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self.job} has heard nothing from the learner for {self._patience_seconds:g} s "
                "(Jobs.patience_seconds): is the learner running?"
            )
        news = self._follower.news
        final = news is not None and news.done
        if final and not self._are_others_done():
            # They still learn from the last steps.
            self.job.stopping.wait(_WAIT_SECONDS)
            return False
        if not final and not self._is_due(news):
            self._follower.wait_for(
                lambda: self._follower.news is not news, _WAIT_SECONDS, self.job.stopping
            )
            return False
        self._follower.pull()
        self._follower.apply(_WAIT_SECONDS)
        if self._follower.version < 0 or (final and not self._follower.is_current):
            return False  # It has not arrived yet.
        for other in self._others:
            other.pull()
            other.apply(_WAIT_SECONDS)
            if other.version < 0 or (final and not other.is_current):
                return False
        if final and self._rating.evaluated_at == self._follower.version:
            return True
        self._evaluate(news.environment_step)
        return False

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "version": self._follower.version,
            "evaluations": self._evaluations,
        }
        if self._follower.lag is not None:
            status["version_lag"] = self._follower.lag
            status["version_lag_seconds"] = round(self._follower.lag_seconds, 3)
        if self._last_mean is not None:
            status["message"] = f"return {self._last_mean:.1f}"
            if self._best.best is not None:
                status["message"] += f", best {self._best.best['mean']:.1f}"
        return status

    def close(self) -> None:
        self._closing.close()

    def save(self) -> None:
        """Delivers a result that is still undelivered before the job ends."""
        deadline = time.monotonic() + _LAST_DELIVERY_SECONDS
        while self._result is not None and time.monotonic() < deadline:
            self._learner.check()
            self._deliver(_LAST_DELIVERY_SECONDS)
        if self._result is not None:
            logging.warning("%s ends with an undelivered result", self.job)
        if self.job.stopping.is_set():
            # The learner, if it is there, need not wait for another result.
            with contextlib.suppress(protocol.NoAnswerError, protocol.RefusedError):
                self._learner.request(
                    news_lib.LEAVE, {"evaluator": self.job.index}, timeout_seconds=_LEAVE_SECONDS
                )

    def _furnish(self, env: Any, replay: replay_connection.ReplayConnection) -> None:
        """Installs policies that are trained beside `main`, to act greedily as they are by then."""
        for policy in further_model.trained_policies(env):
            made = replay.make_policy_model(self._experiment, env, policy, self.job.seed)
            learner = peer.Peer(
                self.job,
                jobs_settings.learner_of(policy),
                timeout_seconds=self._patience_seconds,
            )
            self._closing.callback(learner.close)
            self._other_learners.append(learner)
            self._others.append(follower.Follower(learner, made.published_variables()))
            further_policy.install_greedy(env, policy, made.agent.policy)

    def _are_others_done(self) -> bool:
        """Whether the policies beside `main` are final.

        Raises:
          errors.JobTimeoutError: If one of their learners is gone.
        """
        for learner, other in zip(self._other_learners, self._others):
            if other.silent_seconds > self._patience_seconds:
                raise errors.JobTimeoutError(
                    f"{self.job} has heard nothing from {learner} for {self._patience_seconds:g} s "
                    "(Jobs.patience_seconds): is it running?"
                )
        return all(other.news is not None and other.news.done for other in self._others)

    def _is_due(self, news: news_lib.News | None) -> bool:
        if news is None or not self._experiment.evaluation.interval:
            return False
        return (
            news.version != self._rating.evaluated_at and news.environment_step >= self._next_step
        )

    def _evaluate(self, environment_step: int) -> None:
        counters.assign(self._model.train_step, self._follower.version)
        counters.assign(self._model.environment_step, environment_step)
        result = self._rating.evaluate(on_step=self._give_up_if_asked)
        was_best = self._best.best
        self._rating.note(result)
        self._last_mean = result.mean
        self._next_step = environment_step + self._experiment.evaluation.interval
        body = {
            **result.figures(),
            "evaluator": self.job.index,
            "incarnation": self.job.incarnation,
            "train_step": result.train_step,
            "environment_step": result.environment_step,
            "confirmed": None if result.confirmed is None else result.confirmed.figures(),
        }
        is_best = self._best.best is not was_best
        self._result = (body, {"policy": self._follower.packed} if is_best else {})
        fault_points.reach(fault_points.POLICY_RATED)
        self._deliver()

    def _deliver(self, timeout_seconds: float = _DELIVERY_SECONDS) -> None:
        """Tries to deliver the result; the learner answers when it has recorded it."""
        body, arrays = self._result
        try:
            self._learner.request(news_lib.RESULT, body, arrays, timeout_seconds=timeout_seconds)
        except protocol.NoAnswerError as error:
            logging.warning("%s cannot deliver a result yet: %s", self.job, error)
            return
        except protocol.RefusedError as error:
            logging.warning("%s: the learner refuses a result: %s", self.job, error)
            self.job.stopping.wait(_WAIT_SECONDS)
            return
        self._result = None
        self._evaluations += 1
        fault_points.reach(fault_points.RESULT_DELIVERED)

    def _give_up_if_asked(self) -> None:
        if self.job.stopping.is_set():
            raise worker.Stopping(f"{self.job} was asked to end during an evaluation")

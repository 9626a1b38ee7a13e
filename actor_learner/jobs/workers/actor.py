"""The actor job: acts with the learner's latest policy and writes what it meets."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import run_settings
from actor_learner.environments import lanes
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import settings, worker
from actor_learner.jobs.exchange import follower, peer, replay_connection, reports
from actor_learner.jobs.workers import step_journal
from actor_learner.runs import acting_side, model
from actor_learner.support import errors, fault_points, reverb_calls, seeds

KIND = "actor"
_WAIT_SECONDS = 0.2
_OUTAGE_SECONDS = 1.0
_LAST_REPORT_SECONDS = 60.0  # A learner that dies now is started again by then.
_LAST_REPORT_STOPPING_SECONDS = 10.0
_GONE_SECONDS = 3.0
_LAST_ITEMS_SECONDS = 5.0
_FRESH_POLICY_SECONDS = 0.25


class ActorJob(worker.Worker):
    """Takes one turn per poll, with whole versions of the policy, applied between turns.

    Ends when the learner says that training is complete.
    """

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        self._stopping_since: float | None = None

    def configure(self) -> None:
        job = self.job
        self._patience_seconds = settings.declared(job.source).patience_seconds
        self._experiment = experiment = experiment_lib.Experiment()
        self._replay = replay_connection.ReplayConnection(job)
        self._closing.callback(self._replay.close)
        seed = seed_of(job)
        env = experiment.make_environment(seed)
        self._closing.callback(env.close)
        self._model = model.Model(
            experiment,
            env.time_step_spec(),
            env.action_spec(),
            lanes.as_lanes(env).num_lanes,
            run_id=self._replay.run_id,
            seed=seed,
        )
        self._replay.check(self._model)
        self._learner = peer.Peer(job, "learner", timeout_seconds=self._patience_seconds)
        self._closing.callback(self._learner.close)
        self._follower = follower.Follower(self._learner, self._model.published_variables())
        self._journal = step_journal.StepJournal(job.directory, job.incarnation)
        self._acting = acting_side.ActingSide(
            experiment,
            self._model.plan,
            self._model.algorithm,
            env,
            self._replay.client,
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            seed=seed,
            recording_dir=None if job.run_dir is None else job.run_dir.experience,
            policy_version=lambda: self._follower.version,
            policy_epoch=lambda: self._follower.epoch,
            observers=[self._journal],
        )
        self._closing.callback(self._close_acting)
        self._wait_for_first_policy()  # Not sooner: the learner takes longer to be built.
        self._reports = reports.ReportSender(
            job, self._learner, self._acting, self._follower, self._journal.earlier
        )
        self._closing.callback(self._report_at_the_end)
        self._environment_step = 0  # The value of the model's variable.
        self._share = (0, 1)

    def poll(self) -> worker.PollResult | bool:
        try:
            return self._poll()
        except (errors.OtherRunError, errors.ReplayMovedError):
            self._replay.give_up()  # There is nobody to write to, least of all on closing.
            raise

    def _poll(self) -> worker.PollResult | bool:
        self._learner.check()
        self._reports.check()
        if not self._replay.is_there():
            return worker.PollResult(idle_seconds=_OUTAGE_SECONDS)
        self._require_learner()
        self._hear()
        if self._follower.news.done:
            return True
        if self._must_wait():
            self._wait()
            return False
        if not self._follower.is_current:
            self._refresh_policy()
        self._take_turn()
        return False

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "steps": self._acting.steps_taken,
            "version": self._follower.version,
        }
        if self._follower.lag is not None:
            status["version_lag"] = self._follower.lag
            status["version_lag_seconds"] = round(self._follower.lag_seconds, 3)
        returns = self._acting.statistics.returns
        if returns:
            status["message"] = f"return {sum(returns) / len(returns):.1f}"
        if self._follower.silent_seconds > 10.0:
            status["message"] = (
                f"waits for the learner, silent for {self._follower.silent_seconds:.0f} s"
            )
        return status

    def save(self) -> None:
        self._acting.save_recording()

    def close(self) -> None:
        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                self._closing.close()
        except errors.ReplayTimeoutError as error:
            if not self.job.stopping.is_set():
                raise
            logging.warning(
                "%s ends; what the server has not taken by now is lost: %s", self.job, error
            )

    def _close_acting(self) -> None:
        """Writes what is left, unless nobody is there to take it: then it is lost."""
        if self._replay.is_away:
            logging.warning("%s ends without its server; what it has not taken is lost", self.job)
            self._acting.abandon()
            return
        try:
            self._acting.close()
        except errors.OtherRunError as error:
            logging.warning("%s ends; what it has not written is lost: %s", self.job, error)

    def _report_at_the_end(self) -> None:
        """Tells the learner of the last turns; one that is gone is not waited for."""
        if not self.job.stopping.is_set():
            self._reports.finish(_LAST_REPORT_SECONDS)
        elif self._follower.silent_seconds < _GONE_SECONDS:
            self._reports.finish(_LAST_REPORT_STOPPING_SECONDS)

    def _take_turn(self) -> None:
        before = self._acting.steps_taken
        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                self._acting.run()
        except errors.ReplayTimeoutError as error:
            # The server is away, or full because the learner is: what was written is on its way.
            self._replay.note_outage(error)
        self._environment_step += self._acting.steps_taken - before
        self._journal.correct(self._acting.steps_taken, int(self._acting.statistics.episodes))
        fault_points.reach(fault_points.TURN_TAKEN)
        self._reports.send()
        fault_points.reach(fault_points.TURN_REPORTED)

    def _has_no_time(self) -> bool:
        """Whether this job was asked to end, and has tried to get rid of its items since then."""
        if not self.job.stopping.is_set():
            return False
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since > _LAST_ITEMS_SECONDS

    def _wait_for_first_policy(self) -> None:
        deadline = time.monotonic() + self._patience_seconds
        while not self._follower.apply(_WAIT_SECONDS):
            if self.job.stopping.is_set():
                raise worker.Stopping(
                    f"{self.job} was asked to end while it waited for the learner"
                )
            if time.monotonic() > deadline:
                raise errors.JobTimeoutError(
                    f"{self.job} has waited {self._patience_seconds:g} s for the learner's policy: "
                    "is the learner running? Jobs.patience_seconds says how long to wait"
                )
            self._learner.check()
            self._follower.pull()
            if self._follower.news is None:
                self.job.stopping.wait(_WAIT_SECONDS / 4)
        self._model.train_step.assign(self._follower.version)

    def _require_learner(self) -> None:
        """Ends a job whose learner has been gone for too long; the wire says so long before."""
        if self._follower.silent_seconds > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self.job} has heard nothing of the learner for {self._patience_seconds:g} s "
                "(Jobs.patience_seconds): it is started again once there is one"
            )

    def _hear(self) -> None:
        """Takes over what the learner has said since the last turn."""
        news = self._follower.news
        if self._follower.apply():
            self._model.train_step.assign(self._follower.version)
        # The learner counts the steps of all actors, but hears of the latest a little later.
        if news.environment_step > self._environment_step:
            self._environment_step = news.environment_step
            self._model.environment_step.assign(news.environment_step)
        share = self._reports.share
        if share != self._share and self._model.algorithm.share_lanes is not None:
            rank, num_actors = share
            num_lanes = self._model.plan.num_lanes
            self._model.algorithm.share_lanes(rank * num_lanes, num_actors * num_lanes)
        self._share = share

    def _refresh_policy(self) -> None:
        """Asks for a newer policy; unrolls, which are used once, wait for it."""
        self._follower.pull()
        if self._model.plan.group_steps is not None:
            self._follower.apply(_FRESH_POLICY_SECONDS)
            self._model.train_step.assign(self._follower.version)

    def _must_wait(self) -> bool:
        if self._reports.steps_left() <= 0:
            return True
        most, lag = self._experiment.staleness.max_version_lag, self._follower.lag
        waits = self._experiment.staleness.when_lagging == run_settings.WAIT
        return waits and most is not None and lag is not None and lag > most

    def _wait(self) -> None:
        """Waits for news, or for the policy that they tell of."""
        self._follower.pull()
        heard = self._follower.news
        if not self._follower.apply():
            self._follower.wait_for(
                lambda: self._follower.news is not heard, _WAIT_SECONDS, self.job.stopping
            )


def seed_of(job: job_lib.Job) -> int:
    """The seed of an actor's environments; one that is started again must not repeat episodes."""
    return seeds.of(job.seed, KIND, job.index, job.incarnation)

"""The actor job: acts with the learner's latest policy and writes its experience."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings
from actor_learner.acting import ring as ring_lib
from actor_learner.environments import lanes
from actor_learner.inference import remote
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import (
    follower,
    game_reports,
    league_wire,
    peer,
    policy_servers,
    replay_connection,
    reports,
)
from actor_learner.jobs.presence import names
from actor_learner.jobs.workers import followed_model, further_actor, game_journal, step_journal
from actor_learner.runs import acting_side, further_acting, further_model, model
from actor_learner.runs.league import league_side
from actor_learner.support import counters, errors, fault_points, formatting, reverb_calls, seeds

KIND = "actor"
_WAIT_SECONDS = 0.2
_OUTAGE_SECONDS = 1.0
_LAST_REPORT_SECONDS = 10.0
_GONE_SECONDS = 3.0
_LAST_ITEMS_SECONDS = 5.0


class _TrainingIsOver(errors.JobError):
    """Ends a turn in the middle: nobody will choose its actions any more."""


class ActorJob(worker.Worker):
    """Takes one turn per poll, with whole versions of the policy, applied between turns.

    Ends when the learner says that training is complete.
    """

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        self._stopping_since: float | None = None
        self._remote: remote.RemoteInference | None = None  # If others choose the actions.
        self._league: league_wire.LeagueFollower | None = None
        self._further: list[further_actor.FurtherActor] = []

    def configure(self) -> None:
        job = self.job
        self._patience_seconds = jobs_settings.declared(job.source).patience_seconds
        self._experiment = experiment = experiment_lib.Experiment()
        self._replay = replay_connection.ReplayConnection(job)
        self._closing.callback(self._replay.close)
        seed = seed_of(job)
        env = experiment.make_acting_environment(seed)
        self._closing.callback(env.close)
        self._model = model.Model(
            experiment,
            env.time_step_spec(),
            env.action_spec(),
            ring_lib.num_lanes(env),
            run_id=self._replay.run_id,
            seed=seed,
            lanes_apart=lanes.are_apart(env),
        )
        self._replay.check(self._model)
        self._learner = peer.Peer(job, "learner", timeout_seconds=self._patience_seconds)
        self._closing.callback(self._learner.close)
        self._follower = follower.Follower(self._learner, self._model.published_variables())
        self._followed = followed_model.FollowedModel(experiment, self._model, self._follower)
        self._journal = step_journal.StepJournal(job.directory, job.incarnation)
        games = self._join_league(env, seed) if self._replay.has_league else None
        self._join_further(env, seed)
        self._acting = acting_side.ActingSide(
            experiment,
            self._model.plan,
            self._model.algorithm,
            env,
            self._replay.clients,
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            seed=seed,
            recording_dir=None if job.run_dir is None else job.run_dir.experience,
            policy_version=lambda: max(0, self._follower.version),
            policy_epoch=lambda: self._follower.epoch,
            transition_observers=[self._journal],
            remote=self._make_remote,
        )
        self._closing.callback(self._close_side, self._acting)
        self._wait_for_first_policy()  # Not sooner: the learner takes longer to be built.
        self._reports = reports.ReportSender(
            job, self._learner, self._acting, self._follower, self._journal.earlier, games
        )
        self._closing.callback(self._report_at_the_end)

    def _join_further(self, env: Any, seed: int) -> None:
        """Installs the policies that are trained beside `main`; most environments have none."""
        for policy in further_model.trained_policies(env):
            further = further_actor.FurtherActor(
                self.job,
                self._experiment,
                env,
                policy,
                self._replay,
                seed=seed,
                turn_ticks=self._model.plan.steps_per_turn // self._model.plan.num_lanes,
                patience_seconds=self._patience_seconds,
            )
            self._closing.callback(further.learner.close)
            self._closing.callback(self._close_side, further.acting)
            self._further.append(further)

    def _join_league(self, env: Any, seed: int) -> game_reports.GameReports:
        """Has the league play in the environment; returns what there is to report of it."""
        journal = game_journal.GameJournal(self.job.directory, self.job.incarnation)
        others = league_side.make_opponents(
            self._experiment, env, seed=seed, on_result=journal.count
        )
        policy = self._model.agent.policy
        self._league = league_wire.LeagueFollower(self._learner, others, policy)
        return game_reports.GameReports({**journal.earlier, journal.incarnation: journal.table})

    def poll(self) -> worker.PollResult | bool:
        try:
            return self._poll()
        except (errors.OtherRunError, errors.ReplayMovedError):
            self._replay.give_up()  # Nothing can be written any more, not even on closing.
            raise

    def _poll(self) -> worker.PollResult | bool:
        self._learner.check()
        self._reports.check()
        for further in self._further:
            further.check()
        if not self._replay.is_there():
            return worker.PollResult(idle_seconds=_OUTAGE_SECONDS)
        self._require_learner()
        self._hear()
        if self._follower.news.done:
            return True
        if self._followed.must_wait(self._reports):
            self._wait()
            return False
        for further in self._further:
            if further.must_wait():
                further.wait(_WAIT_SECONDS)
                return False
        if self._remote is None:
            self._followed.refresh()
        if self._league is not None:
            self._league.follow()
        try:
            self._take_turn()
        except _TrainingIsOver:
            return True
        return False

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "steps": self._acting.steps_taken,
            "version": self._follower.version,
            "lanes": self._acting.actor.num_lanes,
        }
        if self._follower.lag is not None:
            status["version_lag"] = self._follower.lag
            status["version_lag_seconds"] = round(self._follower.lag_seconds, 3)
        returns = self._acting.statistics.returns
        shares = self._acting.time_shares()
        if shares:
            status["time"] = shares
        words = [f"return {sum(returns) / len(returns):.1f}"] if returns else []
        words += [formatting.shares(shares)] if shares else []
        if words:
            status["message"] = "; ".join(words)
        if self._follower.silent_seconds > 10.0:
            status["message"] = (
                f"waits for the learner, which is silent for {self._follower.silent_seconds:.0f} s"
            )
        if self._further:
            status["policies"] = {further.name: further.status() for further in self._further}
        for further in self._further:
            if further.waits_for is not None:
                status["message"] = further.waits_for
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
                "%s ends; experience that the server has not confirmed is lost: %s", self.job, error
            )

    def _make_remote(self, ring: ring_lib.EnvironmentRing, policy: Any) -> remote.RemoteInference:
        """Makes the stream by which the groups of this actor ask the policy jobs."""
        job = self.job
        servers = policy_servers.PolicyServers(
            job, first_group=job.index * len(ring), check=self._check_while_waiting
        )
        stream = remote.RemoteInference(
            servers, policy, len(ring), ring.lanes_per_group, who=names.job(job.kind, job.index)
        )
        servers.sticky = stream.holds_state
        self._remote = stream
        return stream

    def _check_while_waiting(self) -> None:
        """Ends the wait of a group for its actions, if nothing is to be waited for any more."""
        self._learner.check()
        self._require_learner()
        if self.job.stopping.is_set():
            raise worker.Stopping(f"{self.job} was asked to end while it waited for actions")
        if self._follower.news is not None and self._follower.news.done:
            raise _TrainingIsOver(f"{self.job}: training is complete")

    def _close_side(self, acting: acting_side.ActingSide | further_acting.FurtherActing) -> None:
        """Writes what is left; without a server it is lost."""
        if self._replay.is_away:
            logging.warning("%s ends without its server; unconfirmed experience is lost", self.job)
            acting.abandon()
            return
        try:
            acting.close()
        except errors.OtherRunError as error:
            logging.warning(
                "%s ends; experience that it has not written is lost: %s", self.job, error
            )

    def _report_at_the_end(self) -> None:
        """Reports the last turns; does not wait for a learner that is gone."""
        news = self._follower.news
        for follower_of, sender in (
            (self._follower, self._reports),
            *((further.follower, further.reports) for further in self._further),
        ):
            if self.job.stopping.is_set() and follower_of.silent_seconds > _GONE_SECONDS:
                continue
            # A learner that dies now is restarted, and must still learn of the last turns. After a
            # failure this actor has a successor that tells it.
            is_done = news is not None and news.done and not self.job.stopping.is_set()
            sender.finish(self._patience_seconds if is_done else _LAST_REPORT_SECONDS)

    def _take_turn(self) -> None:
        before = self._acting.steps_taken
        for further in self._further:
            further.begin_turn()
        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                self._acting.run()
                for further in self._further:
                    further.acting.end_turn()
        except errors.ReplayTimeoutError as error:
            # The server is away, or full because the learner is: items stay under way.
            self._replay.note_outage(error)
        self._followed.count(self._acting.steps_taken - before)
        self._journal.correct(self._acting.steps_taken, int(self._acting.statistics.episodes))
        for further in self._further:
            further.count_turn()
        fault_points.reach(fault_points.TURN_TAKEN)
        self._reports.send()
        for further in self._further:
            further.reports.send()
        fault_points.reach(fault_points.TURN_REPORTED)

    def _has_no_time(self) -> bool:
        """Whether this job was asked to end, and has tried long enough to send its items."""
        if not self.job.stopping.is_set():
            return False
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since > _LAST_ITEMS_SECONDS

    def _wait_for_first_policy(self) -> None:
        deadline = time.monotonic() + self._patience_seconds
        self._wait_for(self._has_policy, "the learner's policy", deadline)
        counters.assign(self._model.train_step, max(0, self._follower.version))
        for further in self._further:
            self._wait_for(
                lambda each=further: each.has_policy(_WAIT_SECONDS),
                f"the policy {further.name}, which {further.learner} trains",
                deadline,
            )
        if self._league is not None:
            self._wait_for(self._has_opponents, "the learner to say whom to play", deadline)

    def _has_policy(self) -> bool:
        if self._remote is not None:
            if self._follower.news is not None:  # The policy jobs wait for the policy itself.
                return True
        elif self._follower.apply(_WAIT_SECONDS):
            return True
        else:
            self._follower.pull()
        if self._follower.news is None:
            self.job.stopping.wait(_WAIT_SECONDS / 4)
        return False

    def _has_opponents(self) -> bool:
        self._league.follow(_WAIT_SECONDS)
        return self._league.is_ready

    def _wait_for(self, is_there: Callable[[], bool], what: str, deadline: float) -> None:
        """Waits for something of the learner's; `is_there` waits a moment itself."""
        while not is_there():
            if self.job.stopping.is_set():
                raise worker.Stopping(f"{self.job} was asked to end while it waited for {what}")
            if time.monotonic() > deadline:
                raise errors.JobTimeoutError(
                    f"{self.job} has waited {self._patience_seconds:g} s for {what}: is the "
                    "learner running? Jobs.patience_seconds says how long to wait"
                )
            self._learner.check()
            for further in self._further:
                further.learner.check()

    def _require_learner(self) -> None:
        """Ends a job whose learner has been gone for too long; the log says so long before."""
        if self._follower.silent_seconds > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self.job} has heard nothing from the learner for {self._patience_seconds:g} s "
                "(Jobs.patience_seconds): is the learner running?"
            )
        for further in self._further:
            further.require_learner()

    def _hear(self) -> None:
        """Applies the learner's news since the last turn."""
        if self._remote is not None and self._remote.version >= 0:
            self._follower.note(self._remote.epoch, self._remote.version)
        self._followed.hear(self._reports.share)
        for further in self._further:
            further.hear()

    def _wait(self) -> None:
        """Waits for news, or for the policy that they announce."""
        if self._remote is None:
            self._follower.pull()
        heard = self._follower.news
        if not self._follower.apply():
            self._follower.wait_for(
                lambda: self._follower.news is not heard, _WAIT_SECONDS, self.job.stopping
            )


def seed_of(job: job_lib.Job) -> int:
    """Returns the seed of an actor's environments; a restarted actor must not repeat episodes."""
    return seeds.of(job.seed, KIND, job.index, job.incarnation)

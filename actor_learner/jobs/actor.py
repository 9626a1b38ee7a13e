"""The actor job: acts with the learner's latest policy and writes what it meets."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import worker
from actor_learner.support import errors, seeds

KIND = "actor"
_WAIT_SECONDS = 0.2
_REPEAT_SECONDS = 1.0
_LAST_REPORTS_SECONDS = 10.0
_LAST_ITEMS_SECONDS = 5.0
_SILENT_SECONDS = 2.0
_OUTAGE_SECONDS = 1.0
_REPORT_SECONDS = 5.0
_LEARNER_SECONDS = 60.0
_FIRST_POLICY_SECONDS = 600.0


class ActorJob(worker.Worker):
    """Takes one turn per poll, with whole versions of the policy, applied between turns.

    Ends when the learner says that training is complete.

    A server that was away is asked whose it is before anything more is written to it: after an
    outage another run's may have its port. What writers had under way they send by themselves.

    Args:
      replay_address: `host:port` of the replay server; None asks the name registry.
    """

    def __init__(self, replay_address: str | None = None) -> None:
        self._replay_address = replay_address
        self._closing = contextlib.ExitStack()
        self._steps = 0
        self._recorder = None
        self._stopping_since: float | None = None

    def configure(self) -> None:
        from actor_learner import experiment as experiment_lib
        from actor_learner.environments import lanes
        from actor_learner.jobs import mailbox, presence, replay_connection
        from actor_learner.parameters import follower, publication
        from actor_learner.runs import collector, model

        job = self.job
        self._experiment = experiment_lib.Experiment()
        self._partner = replay_connection.Partner(job, self._replay_address)
        seed = seed_of(job)
        env = self._experiment.make_environment(seed)
        self._closing.callback(env.close)
        self._model = model.Model(
            self._experiment,
            env.time_step_spec(),
            env.action_spec(),
            lanes.as_lanes(env).num_lanes,
            seed=seed,
            actor_index=job.index,
            num_actors=job.num_actors,
        )
        self._partner.check(self._model)
        self._follower = follower.Follower(
            self._partner.address, self._model.published_variables(), self._partner.run_id
        )
        self._closing.callback(self._follower.close)
        self._wait_for_first_policy()
        self._collector = collector.Collector(
            self._model.plan,
            self._model.algorithm,
            env,
            self._partner.client,
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            metrics_window=self._experiment.metrics_window,
            seed=seed,
            observers=self._recorders(),
            policy_version=lambda: self._follower.version,
        )
        self._closing.callback(self._close_collector)
        self._reports = mailbox.Sender(
            self._partner.client, mailbox.REPORTS, timeout_seconds=_REPORT_SECONDS
        )
        self._closing.callback(lambda: self._reports.flush(_LAST_REPORTS_SECONDS))
        self._reported_at = 0.0
        self._is_counted = job.index < publication.MOST_ACTORS
        self._heard: publication.Announcement | None = None
        self._budget = 0
        self._environment_step = 0  # The value of the model's variable.
        self._presence = presence.Presence(
            job,
            self._partner,
            trust_seconds=_SILENT_SECONDS,
            heard_seconds=lambda: self._follower.told_seconds,
        )
        self._began_at = time.monotonic()
        self._hear()
        self._found = self._heard

    def poll(self) -> worker.PollResult | bool:
        try:
            return self._poll()
        except (errors.OtherRunError, errors.ReplayMovedError) as error:
            self._note_outage(error)  # There is nobody to write to, least of all on closing.
            raise

    def _poll(self) -> worker.PollResult | bool:
        self._follower.raise_if_failed()
        if not self._presence.is_certain():
            self._reports.discard()
            return worker.PollResult(idle_seconds=_OUTAGE_SECONDS)
        self._hear()
        if self._heard.done:
            return worker.PollResult(done=self._is_over(), idle_seconds=_WAIT_SECONDS)
        if self._must_wait():
            self._follower.wait_for(
                lambda: self._follower.announcement is not self._heard,
                _WAIT_SECONDS,
                self.job.stopping,
            )
            if time.monotonic() - self._reported_at >= _REPEAT_SECONDS:
                # A learner that took the last report with it when it died waits for this one.
                self._report()
            return False
        queued = self._model.plan.group_steps is not None
        if queued or self._budget <= self._model.plan.steps_per_turn:
            # So that there need be no wait after this turn, and queues get no older policy than
            # they must.
            self._follower.look()
        self._take_turn()
        if not self._presence.is_away:
            self._report()
        return False

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {"steps": self._steps, "version": self._follower.version}
        if self._follower.lag is not None:
            status["version_lag"] = self._follower.lag
            status["version_lag_seconds"] = round(self._follower.lag_seconds, 3)
        returns = self._collector.statistics.returns
        if returns:
            status["message"] = f"return {sum(returns) / len(returns):.1f}"
        return status

    def save(self) -> None:
        if self._recorder is not None:
            self._recorder.flush()

    def close(self) -> None:
        from actor_learner.support import reverb_calls

        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                self._closing.close()
        except errors.ReplayTimeoutError as error:
            if not self.job.stopping.is_set():
                raise
            logging.warning(
                "%s ends; what the server has not taken by now is lost: %s", self.job, error
            )

    def _close_collector(self) -> None:
        """Writes what is left, unless nobody knows to whom: then it is lost."""
        if self._presence.is_away:
            logging.warning("%s ends without its server; what it has not taken is lost", self.job)
            self._collector.abandon()
        else:
            self._collector.close()

    def _take_turn(self) -> None:
        from actor_learner.support import reverb_calls

        before = self._collector.steps_taken
        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                self._collector.run()
        except errors.ReplayTimeoutError as error:
            # The learner, or the server, is away: what was written is still on its way. How long
            # to wait for them is for the follower to say.
            self._note_outage(error)
        steps = self._collector.steps_taken - before
        self._environment_step += steps
        self._steps += steps
        self._budget -= steps

    def _note_outage(self, error: errors.ReplayError) -> None:
        # The next report makes up for these, and knows whose server it goes to.
        self._reports.discard()
        self._presence.note_outage(error)

    def _is_over(self) -> bool:
        """Whether the learner's word that training is complete holds for this process.

        It may be left over from before the run was extended, by a learner that is yet to come.
        """
        heard = self._heard
        return (
            heard.time != self._found.time  # Said while this process lived.
            or heard.environment_step >= self._experiment.environment_steps
            # Complete for another reason, such as its return; a learner that is to come would be
            # there by now.
            or time.monotonic() - self._began_at > _LEARNER_SECONDS
        )

    def _has_no_time(self) -> bool:
        """Whether this job was asked to end, and has tried to get rid of its items since then."""
        if not self.job.stopping.is_set():
            return False
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since > _LAST_ITEMS_SECONDS

    def _wait_for_first_policy(self) -> None:
        follower = self._follower
        if follower.wait_for(
            lambda: follower.pulled_version >= 0 and follower.announcement is not None,
            _FIRST_POLICY_SECONDS,
            self.job.stopping,
        ):
            self._apply()
            return
        if self.job.stopping.is_set():
            raise worker.Stopping(f"{self.job} was asked to end while it waited for the learner")
        raise errors.ReplayTimeoutError(
            f"{self.job} has waited {_FIRST_POLICY_SECONDS:g} s for the learner to publish a "
            f"policy at {self._partner.address}: is the learner running?"
        )

    def _recorders(self) -> tuple[Any, ...]:
        """Observers that record the experience, if it is to be; each actor writes its own files."""
        from actor_learner.replay.recording import experience_recorder

        job = self.job
        if not self._experiment.record:
            return ()
        if job.run_dir is None:
            raise errors.ConfigError(
                f"Experiment.record is set, but {job} has no run directory to record to: pass "
                f"--run=some/place/{job.run}"
            )
        recorder = experience_recorder.ExperienceRecorder(
            job.run_dir.experience,
            self._model.agent.collect_data_spec,
            self._model.plan.num_lanes,
            version=lambda: self._collector.actor.policy_version,
        )
        self._closing.callback(recorder.close)
        self._recorder = recorder
        return (recorder,)

    def _apply(self) -> None:
        if self._follower.apply():
            self._model.train_step.assign(self._follower.version)

    def _hear(self) -> None:
        """Takes over what the learner has said since the last turn."""
        heard = self._follower.announcement
        if heard is not self._heard:
            self._heard = heard
            counted = heard.counted.get(self.job.index, 0)
            # What a process before this one has reported does not count for this one.
            uncounted = self._steps - (counted if counted <= self._steps else 0)
            # Every actor hears the same: each takes its part of what is left.
            left = heard.steps_allowed - heard.environment_step
            self._budget = math.ceil(left / self.job.num_actors)
            if self._is_counted:
                self._budget -= uncounted
            # The learner counts the steps of all actors, but hears of the latest a little later.
            if heard.environment_step > self._environment_step:
                self._environment_step = heard.environment_step
                self._model.environment_step.assign(heard.environment_step)
        self._apply()

    def _must_wait(self) -> bool:
        from actor_learner import experiment

        if self._budget <= 0:
            return True
        most, lag = self._experiment.max_version_lag, self._follower.lag
        waits = self._experiment.when_lagging == experiment.WAIT
        return waits and most is not None and lag is not None and lag > most

    def _report(self) -> None:
        """Tells the learner what this process has done since it began; may be told twice.

        One that does not get through is made up for by the next.
        """
        from actor_learner.support import reverb_calls

        statistics = self._collector.statistics
        self._reported_at = time.monotonic()
        report = {
            "actor": self.job.index,
            "incarnation": self.job.incarnation,
            "total": self._steps,
            "episodes": statistics.episodes,
            "version": self._follower.version,
            "version_lag_seconds": round(self._follower.lag_seconds, 3),
            "returns": [round(value, 6) for value in list(statistics.returns)[-20:]],
            "lengths": list(statistics.lengths)[-20:],
        }
        try:
            with reverb_calls.giving_up_when(self._has_no_time):
                self._reports.send(report)
        except errors.ReplayTimeoutError as error:
            self._note_outage(error)


def seed_of(job: job_lib.Job) -> int:
    """The seed of an actor's environments; one that is started again must not repeat episodes."""
    return seeds.of(job.seed, KIND, job.index, job.incarnation)

"""What an actor has for one of the policies that are trained beside `main` in its world."""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.trajectories import time_step as ts

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings
from actor_learner.environments import agent_world
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.exchange import follower as follower_lib
from actor_learner.jobs.exchange import peer, replay_connection, reports
from actor_learner.jobs.workers import followed_model, step_journal
from actor_learner.runs import further_acting, further_model
from actor_learner.support import counters, errors, seeds

_SAY_SECONDS = 10.0
LAST = int(ts.StepType.LAST)


class FurtherActor:
    """Acts for the agents of a further policy: follows its learner, and reports to it.

    Args:
      job: The actor's.
      experiment: The experiment of the run.
      env: The world that the actor steps; the policy is installed in it.
      policy: Name of the policy.
      replay: The replay server of the run.
      seed: Of the actor.
      turn_ticks: Batched steps of one turn.
      patience_seconds: How long to wait for the policy's learner.

    Attributes:
      name: Of the policy.
      learner: The wire of its learner.
      follower: Has that learner's news and policy.
      acting: Acts, and writes the experience.
      reports: Tells the learner what was done.

    Raises:
      errors.SpecMismatchError: If the policy does not fit the run.
      errors.JobTimeoutError: If its learner is not there in time.
    """

    def __init__(
        self,
        job: job_lib.Job,
        experiment: experiment_lib.Experiment,
        env: agent_world.AgentWorld,
        policy: str,
        replay: replay_connection.ReplayConnection,
        *,
        seed: int,
        turn_ticks: int,
        patience_seconds: float,
    ) -> None:
        self.name = policy
        self._job = job
        self._patience_seconds = patience_seconds
        self._model = further_model.make(
            experiment, env, policy, run_id=replay.run_id, seed=seed, turn_ticks=turn_ticks
        )
        replay.check_policy(self._model, policy)
        self.learner = peer.Peer(
            job, jobs_settings.learner_of(policy), timeout_seconds=patience_seconds
        )
        self.follower = follower_lib.Follower(self.learner, self._model.published_variables())
        own = experiment.for_policy(env.spec_of(policy))
        self._followed = followed_model.FollowedModel(own, self._model, self.follower)
        self._journal = step_journal.StepJournal(
            job.directory, job.incarnation, f"{step_journal.FOLDER}-{policy}"
        )
        self._steps = self._episodes = 0
        self.acting = further_acting.FurtherActing(
            own,
            self._model.plan,
            self._model.algorithm,
            env,
            policy,
            replay.clients,
            environment_step=self._model.environment_step,
            seed=seeds.of(seed, "policy", policy),
            transition_observers=[self._write_down],
        )
        self.reports = reports.ReportSender(
            job, self.learner, self.acting, self.follower, self._journal.earlier
        )

    @property
    def waits_for(self) -> str | None:
        """Words for a status while its learner is silent; None otherwise."""
        silent = self.follower.silent_seconds
        if silent <= _SAY_SECONDS:
            return None
        return f"waits for {self.learner}, which is silent for {silent:.0f} s"

    def status(self) -> dict[str, Any]:
        """What the actor tells about it."""
        return {"steps": self.acting.steps_taken, "version": self.follower.version}

    def has_policy(self, wait_seconds: float) -> bool:
        """Whether the first version is there; waits a moment for it."""
        if self.follower.apply(wait_seconds):
            counters.assign(self._model.train_step, max(0, self.follower.version))
            return True
        self.follower.pull()
        if self.follower.news is None:
            self._job.stopping.wait(wait_seconds / 4)
        return False

    def check(self) -> None:
        """Finds its learner again if that was restarted, and takes the answer to a report."""
        self.learner.check()
        self.reports.check()

    def require_learner(self) -> None:
        """Ends a job whose learner has been gone for too long."""
        if self.follower.silent_seconds > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self._job} has heard nothing from {self.learner}, which trains the policy "
                f"{self.name}, for {self._patience_seconds:g} s (Jobs.patience_seconds): is it "
                "running?"
            )

    def hear(self) -> None:
        """Applies its learner's news since the last turn."""
        self._followed.hear(self.reports.share)

    def must_wait(self) -> bool:
        """Whether its learner must train, or publish, before the next turn."""
        return self._followed.must_wait(self.reports)

    def wait(self, seconds: float) -> None:
        """Waits for news of its learner, or for the policy that they announce."""
        self.follower.pull()
        heard = self.follower.news
        if not self.follower.apply():
            self.follower.wait_for(
                lambda: self.follower.news is not heard, seconds, self._job.stopping
            )

    def begin_turn(self) -> None:
        """Call this before each turn: the policy acts as it is now."""
        self._followed.refresh()
        self.acting.begin_turn(max(0, self.follower.version), self.follower.epoch)

    def count_turn(self) -> None:
        """Call this after each turn, before it is reported."""
        steps, episodes = self.acting.steps_taken, int(self.acting.statistics.episodes)
        self._followed.count(steps - self._steps)
        self._steps, self._episodes = steps, episodes
        self._journal.correct(steps, episodes)

    def _write_down(self, transition: Any) -> None:
        """Counts a step of the world where a killed process leaves it for its successor."""
        before, after = transition[0].step_type, transition[2].step_type
        self._episodes += int(np.count_nonzero((after == LAST) & (before != LAST)))
        self._journal.correct(self.acting.steps_taken, self._episodes)

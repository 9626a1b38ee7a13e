"""The policy job: chooses the actions of many actors, in batches, with the learner's policy."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings
from actor_learner.inference import policy_service, server
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import follower, peer, replay_connection
from actor_learner.support import counters, errors, seeds

KIND = "policy"
_SERVE_SECONDS = 0.05
_WAIT_SECONDS = 0.2
_LAST_SECONDS = 5.0
"""How long there must be no request, once training is complete, before the job ends."""


class PolicyJob(worker.Worker):
    """Serves the newest version of the collect policy; new ones take effect between batches.

    Ends when training is complete and nobody asks any more.
    """

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()

    def configure(self) -> None:
        job = self.job
        self._patience_seconds = jobs_settings.declared(job.source).patience_seconds
        experiment = experiment_lib.Experiment()
        replay = replay_connection.ReplayConnection(job)
        try:
            self._model = replay.make_model(experiment, job.seed)
        finally:
            replay.close()
        serving = policy_service.PolicyServer()
        self._service = policy_service.PolicyService(
            self._model.algorithm.collect_policy,
            serving.max_batch,
            inference=serving.inference,
            seed=seeds.of(job.seed, KIND, job.index, job.incarnation),
        )
        self._learner = peer.Peer(job, "learner", timeout_seconds=self._patience_seconds)
        self._closing.callback(self._learner.close)
        self._follower = follower.Follower(self._learner, self._model.published_variables())
        self._environment_step = 0  # The value of the model's variable.
        self._wait_for_first_policy()
        # Not sooner: until then, those who ask wait, or ask another job.
        self._server = server.InferenceServer(
            job.wire,
            self._service,
            max_batch=serving.max_batch,
            max_delay_seconds=serving.max_delay_seconds,
        )
        self._closing.callback(self._server.close)
        job.publish_address(job.wire_address)  # By which actors know that it serves.
        self._asked_at = time.monotonic()

    def poll(self) -> worker.PollResult | bool:
        self._learner.check()
        if self._follower.silent_seconds > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self.job} has heard nothing from the learner for {self._patience_seconds:g} s "
                "(Jobs.patience_seconds): is the learner running?"
            )
        self._follower.pull()
        self._hear()
        now = time.monotonic()
        if self._server.serve(_SERVE_SECONDS):
            self._asked_at = now
        return self._follower.news.done and now - self._asked_at > _LAST_SECONDS

    def status(self) -> dict[str, Any]:
        served = self._server
        status: dict[str, Any] = {
            "steps": served.requests,  # The view shows how many of them come in a second.
            "version": self._follower.version,
            "batches": served.batches,
            "batch_sizes": served.histogram(),
        }
        if self._follower.lag is not None:
            status["version_lag"] = self._follower.lag
            status["version_lag_seconds"] = round(self._follower.lag_seconds, 3)
        if served.batches:
            rows = sum(size * count for size, count in dict(served.batch_sizes).items())
            status["message"] = f"{rows / served.batches:.1f} lanes a batch"
        return status

    def close(self) -> None:
        self._closing.close()

    def _hear(self) -> None:
        """Applies the learner's news, between two batches."""
        news, changed = self._follower.news, self._follower.apply()
        if changed:
            counters.assign(self._model.train_step, self._follower.version)
        if news is not None and news.environment_step > self._environment_step:
            # Schedules read it; new values take effect as those of the policy do.
            self._environment_step, changed = news.environment_step, True
            counters.assign(self._model.environment_step, news.environment_step)
        if changed:
            self._service.refresh(self._follower.version, max(0, self._follower.epoch))

    def _wait_for_first_policy(self) -> None:
        deadline = time.monotonic() + self._patience_seconds
        while self._follower.version < 0:
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
            self._follower.apply(_WAIT_SECONDS)
            if self._follower.news is None:
                self.job.stopping.wait(_WAIT_SECONDS / 4)
        counters.assign(self._model.train_step, self._follower.version)
        self._service.refresh(self._follower.version, self._follower.epoch)

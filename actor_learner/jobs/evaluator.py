"""The evaluator job: rates the learner's policy as it improves, without holding training up."""

from __future__ import annotations

import contextlib
from typing import Any

from actor_learner.jobs import last_evaluation, worker

KIND = last_evaluation.KIND
_WAIT_SECONDS = 0.5
_SILENT_SECONDS = 5.0


class EvaluatorJob(worker.Worker):
    """Evaluates the greedy policy of the newest version, again and again.

    It begins an evaluation when `Evaluation.interval` environment steps have passed since the last
    one, always takes the newest version, and never leaves out the final one. Each result goes to
    the learner, which writes it down and ends training when the target is reached and confirmed. Of
    several evaluators each does so on its own, with episodes of its own. What is the best that one
    of them has rated goes to the learner, too, rated again on other episodes: it keeps the best of
    all in `best/` and in the parameter store.

    Args:
      replay_address: `host:port` of the replay server; None asks the name registry.
    """

    def __init__(self, replay_address: str | None = None) -> None:
        self._replay_address = replay_address
        self._closing = contextlib.ExitStack()
        self._evaluations = 0
        self._last_mean: float | None = None
        self._rated_version: int | None = None
        self._undelivered: dict[str, Any] | None = None  # Waits for room on the disk.

    def configure(self) -> None:
        import tempfile

        from actor_learner import experiment as experiment_lib
        from actor_learner.jobs import contract, replay_connection, result_sender
        from actor_learner.parameters import follower
        from actor_learner.runs import model, rating
        from actor_learner.support import seeds

        job = self.job
        self._experiment = experiment_lib.Experiment()
        self._partner = replay_connection.Partner(job, self._replay_address)
        specs = contract.specs_of(self._partner.contract)
        self._model = model.Model(
            self._experiment,
            *specs,
            self._partner.num_lanes,
            seed=job.seed,
            num_actors=job.num_actors,
        )
        self._partner.check(self._model)
        self._follower = follower.Follower(
            self._partner.address, self._model.published_variables(), self._partner.run_id
        )
        self._closing.callback(self._follower.close)
        self._best_dir = self._closing.enter_context(tempfile.TemporaryDirectory()) + "/best"
        self._rating = rating.Rating(
            self._experiment,
            self._model.agent.policy,
            self._best_dir,
            seed=seeds.of(job.seed, KIND, job.index),
            life=job.incarnation,
            specs=specs,
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
        )
        self._closing.callback(self._rating.close)
        self._delivery = result_sender.Delivery(
            job, self._partner, self._best_dir, self._model.agent.policy
        )
        self._next_step = self._experiment.evaluation.interval

    def poll(self) -> worker.PollResult | bool:
        self._follower.raise_if_failed()
        if self._follower.silent_seconds > _SILENT_SECONDS:
            self._partner.require_same_address()
        if self._undelivered is not None:
            if self._rating.best.is_held:
                return worker.PollResult(idle_seconds=_WAIT_SECONDS)
            self._delivery.take(self._undelivered, is_best=True)
            self._undelivered = None
        if self._delivery.pending:
            self._deliver()
            # One that lacks room on the disk has nothing to wait for.
            return worker.PollResult(idle_seconds=_WAIT_SECONDS if self._delivery.pending else 0.0)
        heard = self._follower.announcement
        final = heard is not None and heard.done and self._follower.pulled_version >= heard.version
        if not final and not self._is_due(heard):
            self._follower.wait_for(
                lambda: self._follower.announcement is not heard, _WAIT_SECONDS, self.job.stopping
            )
            return False
        self._follower.apply()
        if final and self._rating.evaluated_at == self._follower.version:
            return True
        self._evaluate(heard.environment_step)
        return False

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "version": self._follower.version,
            "evaluations": self._evaluations,
            last_evaluation.RATED: self._rated_version,
        }
        if self._follower.lag is not None:
            status["version_lag"] = self._follower.lag
            status["version_lag_seconds"] = round(self._follower.lag_seconds, 3)
        if self._last_mean is not None:
            status["message"] = f"return {self._last_mean:.1f}"
            best = self._rating.best.best
            if best is not None:
                status["message"] += f", best {best['mean']:.1f}"
        return status

    def close(self) -> None:
        self._closing.close()

    def _is_due(self, heard: Any) -> bool:
        if heard is None or self._follower.pulled_version < 0:
            return False
        if not self._experiment.evaluation.interval:
            return False
        new = self._follower.pulled_version != self._rating.evaluated_at
        return new and heard.environment_step >= self._next_step

    def _evaluate(self, environment_step: int) -> None:
        self._model.train_step.assign(self._follower.version)
        self._model.environment_step.assign(environment_step)
        result = self._rating.evaluate(on_step=self._give_up_if_asked)
        was_best = self._rating.best.best
        self._rating.note(result)
        self._last_mean = result.mean
        self._next_step = environment_step + self._experiment.evaluation.interval
        told = {
            "evaluator": self.job.index,
            "incarnation": self.job.incarnation,
            "train_step": result.train_step,
            "environment_step": result.environment_step,
            "mean": result.mean,
            "std": result.std,
            "episodes": result.episodes,
            "confirmed": None if result.confirmed is None else result.confirmed.figures(),
        }
        if self._rating.best.is_held:
            self._undelivered = told  # The learner is to have the policy when it hears of it.
            return
        self._delivery.take(told, is_best=self._rating.best.best is not was_best)
        self._deliver()

    def _deliver(self) -> None:
        if self._delivery.deliver():
            self._evaluations += 1
            self._rated_version = self._rating.evaluated_at

    def _give_up_if_asked(self) -> None:
        if self.job.stopping.is_set():
            raise worker.Stopping(f"{self.job} was asked to end during an evaluation")

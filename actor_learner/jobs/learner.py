"""The learner job: trains on what the actors have written, and publishes the policy."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

from absl import logging

from actor_learner.jobs import extra_jobs, worker
from actor_learner.runs import warm_start
from actor_learner.support import errors, unsaved

KIND = "learner"
SLICE_SECONDS = 0.25
"""How long the learner trains before it looks at its messages and tells the others."""

_IDLE_SECONDS = 0.01
_UNREACHABLE_SECONDS = 1.0
_REST_SECONDS = 0.2
_LONG_TRAINING_SECONDS = 0.1
_STUCK_SECONDS = 1.0
_LAST_STEP_SECONDS = 5.0
_KNOWN_SECONDS = 5.0


class LearnerJob(worker.Worker):
    """Trains in slices, as fast as the experience at hand allows.

    Counts the actors' steps from their reports, writes the run's metrics, checkpoints and policies,
    and completes when the steps are taken or an evaluator reports the target return; if there are
    evaluators, once the final version has been evaluated.

    A server that was away is asked whose it is before there is more training with it: another
    run's may have its port by then.

    Args:
      replay_address: `host:port` of the replay server; None asks the name registry.
      num_evaluators: How many evaluators the run has, if it is known; others that show themselves
        count as well.
    """

    def __init__(self, replay_address: str | None = None, num_evaluators: int = 0) -> None:
        self._replay_address = replay_address
        self._num_evaluators = num_evaluators
        self._closing = contextlib.ExitStack()
        self._trainer = None
        self._limit = None
        self._moved_to, self._moved_at = -1, 0.0
        self._complete = False
        self._is_training = False
        self._environment_step = 0
        self._has_others_experience = False

    def configure(self) -> None:
        from actor_learner import experiment as experiment_lib
        from actor_learner import parts
        from actor_learner.jobs import contract, done_marker, presence, replay_connection, run_files
        from actor_learner.runs import model

        job = self.job
        if job.index != 0:
            raise errors.ConfigError(f"a run has one learner, so --index={job.index} has no place")
        if job.run_dir is None:
            raise errors.ConfigError(
                f"the learner leaves checkpoints, metrics and policies behind, but --run={job.run} "
                f"is no directory: pass --run=some/place/{job.run}"
            )
        run_files.lock_run(job, self._closing)
        self._final_seconds = extra_jobs.declared(job.source).final_evaluation_seconds
        self._closing.enter_context(parts.scope())
        self._experiment = experiment_lib.Experiment()
        self._partner = replay_connection.Partner(job, self._replay_address)
        self._model = model.Model(
            self._experiment,
            *contract.specs_of(self._partner.contract),
            self._partner.num_lanes,
            seed=job.seed,
            num_actors=job.num_actors,
        )
        self._partner.check(self._model)
        self._presence = presence.Presence(job, self._partner, trust_seconds=_KNOWN_SECONDS)
        parts.publish(
            run_dir=str(job.run_dir),
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            agent=self._model.agent,
            replay_client=self._partner.client,
        )
        warm_start.WarmStart().apply(self._model.agent, job.run_dir)
        self._build_trainer()
        self._build_broadcast()
        self._build_supply()
        self._build_metrics()
        run_files.describe_run(job)
        self._completion = done_marker.Completion(job.run_dir.path, self._experiment)
        failure = self._completion.failure_of(self.train_step)
        if failure is not None:
            raise errors.EvaluationError(failure)
        reason = self._completion.of(self.train_step)
        if reason is not None:
            # A predecessor died after its last train step: the others still have to hear of it.
            self._finish(reason)

    def poll(self) -> worker.PollResult | bool:
        try:
            return self._poll()
        except errors.OtherRunError:
            # The dataset, too, goes on with whatever server answers, and knows nothing of runs.
            self._has_others_experience = True
            raise

    def _poll(self) -> worker.PollResult | bool:
        if self._complete:
            return self._rest()
        if not self._presence.is_certain():
            self._broadcast.check()
            return worker.PollResult(idle_seconds=_UNREACHABLE_SECONDS)
        self._take_messages()
        ended = self._evaluations.target_reached or self._trainer.learner.stop_reason
        if ended is not None:
            self._finish(ended)
            return False
        try:
            due = self._supply.updates_due(self.environment_step, self.train_step)
        except errors.ReplayTimeoutError as error:
            self._presence.note_outage(error)
            return worker.PollResult(idle_seconds=_UNREACHABLE_SECONDS)
        if due <= 0:
            self._tell()
            if self.environment_step >= self._experiment.environment_steps:
                self._finish("all steps are taken")
                return False
            return worker.PollResult(idle_seconds=_IDLE_SECONDS)
        due = min(due, self._broadcast.fresh_updates())
        if due > 0:
            self._train(due)
        self._tell()
        return worker.PollResult(idle_seconds=0.0 if due > 0 else _IDLE_SECONDS)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "steps": self.train_step,
            "version": self._broadcast.version,
            "environment_steps": self.environment_step,
            "message": f"{self.environment_step:,} environment steps",
        }
        lag = self._trainer.version_lag
        if lag is not None:
            status["version_lag"] = round(lag)
        if self._limit is not None:
            status["dropped_items"] = self._limit.dropped
        if self._trainer.learner.skips_steps:
            skipped = status["skipped_steps"] = self._progress.skipped_steps
            if skipped:
                status["message"] += f", {skipped:,} train steps skipped: not finite"
        return status

    def save(self) -> None:
        if not self._complete and not self._has_others_experience:
            self._trainer.save_after_failure()

    def close(self) -> None:
        self._closing.close()

    @property
    def train_step(self) -> int:
        """Train steps so far; those of a call that is under way included."""
        if not self._is_training:
            return self._trainer.learner.last_step
        from actor_learner.support import counters

        return int(counters.read(self._model.train_step))

    @property
    def environment_step(self) -> int:
        """Environment steps of all actors, as far as they are reported."""
        return self._environment_step

    def _build_trainer(self) -> None:
        from actor_learner import experiment as experiment_lib
        from actor_learner.replay.reading import version_limit
        from actor_learner.runs import progress_state, reported_statistics, train_thread, trainer
        from actor_learner.support import counters

        experiment = self._experiment
        if experiment.when_lagging == experiment_lib.DROP:
            self._limit = version_limit.VersionLimit(
                self._model.train_step, experiment.max_version_lag
            )
        self._statistics = reported_statistics.ReportedStatistics()
        self._progress = progress_state.ProgressState(self._statistics)
        self._trainer = trainer.Trainer(
            self._experiment,
            self._model.plan,
            self._model.algorithm,
            self._partner.address,
            str(self.job.run_dir),
            train_step=self._model.train_step,
            checkpoint_items={
                "environment_step": self._model.environment_step,
                "progress": self._progress,
            },
            why_no_sample=lambda: (
                f"the learner has waited {self._experiment.sample_timeout_seconds:g} s for a "
                f"sample of the replay server at {self._partner.address}"
            ),
            limit=self._limit,
        )
        self._closing.callback(self._trainer.close)
        self._progress.count_skipped(lambda: self._trainer.learner.skipped_steps)
        # Beside the variable, which is what checkpoints keep: it is looked at in every poll.
        self._environment_step = int(counters.read(self._model.environment_step))
        self._train_thread = train_thread.TrainThread(self._trainer.run)
        self._closing.callback(self._train_thread.close)

    def _build_broadcast(self) -> None:
        from actor_learner.jobs import broadcast, mailbox
        from actor_learner.parameters import store
        from actor_learner.runs import stored_versions

        self._broadcast = broadcast.Broadcast(
            self._partner,
            self._model,
            lambda: (self.environment_step, self.train_step),
            lambda: self._statistics.totals,
            self._limit,
        )
        self._closing.callback(self._broadcast.close)
        self._reports = mailbox.Receiver(self._partner.client, mailbox.REPORTS)
        self._closing.callback(self._reports.close)
        self._store = store.ParameterStore(self.job.run_dir.path / store.DIRECTORY)
        self._stored = stored_versions.StoredVersions(self._store, self._model)

    def _build_supply(self) -> None:
        from actor_learner.runs import supply
        from actor_learner.support import reverb_calls

        plan, client = self._model.plan, self._partner.client
        table = plan.stream.table_name
        self._table = table
        if plan.group_steps is not None:
            items = plan.group_steps // plan.stream.unroll_length
            learner = self._trainer.learner
            self._supply = supply.QueuedSupply(
                plan,
                items,
                self.job.num_actors,
                client,
                table,
                dropped=lambda: (
                    learner.skipped_steps * items
                    + (0 if self._limit is None else self._limit.dropped)
                ),
            )
            return
        empty = reverb_calls.fetch_table(client, table, 30.0).current_size == 0
        pace = plan.pace(self.environment_step, self.train_step, replay_is_empty=empty)
        self._supply = supply.PacedSupply(plan, pace, self.job.num_actors, client, table)

    def _build_metrics(self) -> None:
        from actor_learner.jobs import mailbox
        from actor_learner.replay.server import state
        from actor_learner.reporting import metric_files
        from actor_learner.runs import best_policy, evaluations, progress_rows

        plan = self._model.plan
        self._metric_files = metric_files.open_metric_files(self.job.run_dir, self.environment_step)
        self._closing.callback(self._close_metrics)
        self._rows = progress_rows.ProgressRows(
            progress=self._progress,
            statistics=self._statistics,
            counters=lambda: (self.environment_step, self.train_step),
            table=lambda: state.table_state(self._partner.client, self._table, timeout_seconds=5.0),
            transitions=lambda items: plan.stream.num_transitions(plan.experience, items),
            epsilon=self._model.algorithm.epsilon,
            version_lag=lambda: self._trainer.version_lag,
            version_lag_seconds=self._statistics.take_version_lag_seconds,
            on_row=self._metric_files.write,
            interval_seconds=self._experiment.report_seconds,
            more=self._more_columns,
        )
        results = mailbox.Receiver(self._partner.client, mailbox.EVALUATIONS)
        self._closing.callback(results.close)
        self._evaluations = evaluations.Evaluations(
            results,
            best_policy.Keeper(
                self._partner.client,
                self.job.run_dir.best,
                self._store,
                self._experiment.evaluation.target_return,
            ),
            on_row=self._metric_files.write,
            seconds=lambda: self._progress.seconds,
            target_return=self._experiment.evaluation.target_return,
        )
        self._progress.start()
        self._rows.start()
        self._iterations = 1

    def _more_columns(self) -> dict[str, Any]:
        columns = {} if self._limit is None else {"dropped_items": self._limit.dropped}
        if self._trainer.learner.skips_steps:
            columns["skipped_steps"] = self._progress.skipped_steps
        return columns

    def _take_messages(self) -> None:
        from actor_learner.support import counters

        self._broadcast.check()
        steps = sum(self._statistics.take(report) for report in self._reports.receive())
        if steps:
            self._environment_step += steps
            counters.add(self._model.environment_step, steps)
        self._evaluations.take()

    def _train(self, due: int) -> None:
        """Trains for about a slice; one train step may take from microseconds to seconds."""
        # Not past the next checkpoint: a killed learner loses no more than its interval.
        until_checkpoint = self._trainer.learner.steps_until_checkpoint or due
        iterations = min(due, self._iterations, until_checkpoint)
        began = self._moved_at = time.monotonic()
        self._is_training = True
        try:
            self._train_thread.run(iterations, self._while_training)
        finally:
            self._is_training = False
        spent = max(1e-4, time.monotonic() - began)
        if iterations == self._iterations:
            wanted = int(iterations * SLICE_SECONDS / spent)
            self._iterations = max(1, min(wanted, 2 * iterations, 1_000))

    def _while_training(self, seconds: float) -> None:
        """Keeps actors going, and gives up on train steps that wait for a server which is gone."""
        if seconds >= _LONG_TRAINING_SECONDS and self._presence.is_certain():
            # They may wait for experience in the place of what was dropped, or of what a server
            # that died took with it.
            self._take_messages()
            try:
                self._supply.updates_due(self.environment_step, self.train_step)
            except errors.ReplayTimeoutError as error:
                self._presence.note_outage(error)
            self._broadcast.announce(self._steps_allowed(beyond=self._is_stuck()))
        stopping = self.job.stopping.is_set()
        # Not sooner: a train step may be long, and what it changes must not be saved half-way.
        if stopping and self._is_stuck(_LAST_STEP_SECONDS):
            raise worker.Stopping(f"{self.job} ends; its train steps wait for experience")
        if not stopping and seconds < self._experiment.sample_timeout_seconds:
            return
        try:
            self._partner.require_answer()
        except errors.ReplayTimeoutError as error:
            if stopping:
                raise worker.Stopping(f"{self.job} ends without its server") from error
            raise

    def _is_stuck(self, after_seconds: float = _STUCK_SECONDS) -> bool:
        """Whether no train step was taken for a while, though some are under way."""
        now = time.monotonic()
        if self.train_step != self._moved_to:
            self._moved_to, self._moved_at = self.train_step, now
        return now - self._moved_at > after_seconds

    def _steps_allowed(self, beyond: bool = False) -> int:
        """Environment steps by which actors are to wait; `beyond` the last one if they must."""
        allowed = self._supply.steps_allowed(self.environment_step, self.train_step)
        return allowed if beyond else min(allowed, self._experiment.environment_steps)

    def _tell(self) -> None:
        """Tells the other jobs, the parameter store and the metrics how far training is."""
        self._broadcast.publish()
        self._broadcast.announce(self._steps_allowed())
        self._stored.push_if_due()
        self._write_row(self._rows.write_if_due)

    def _write_row(self, write: Callable[[Any], None]) -> None:
        try:
            write(self._trainer.loss)
        except errors.ReplayTimeoutError as error:
            logging.warning("No line of metrics: %s", error)

    def _finish(self, reason: str) -> None:
        """Saves and exports, then publishes the final version and says that it is the final one."""
        from actor_learner.jobs import last_evaluation
        from actor_learner.learning import policy_export

        run_dir = self.job.run_dir
        self._trainer.learner.save_checkpoint()
        self._completion.note(self.train_step, reason)
        self._stored.push()
        policy_export.export_policies(
            str(run_dir.policies), self._model.agent, self._model.train_step
        )
        self._broadcast.publish(now=True)
        self._broadcast.announce(self._steps_allowed(), done=True)
        self._broadcast.flush()
        self._write_row(self._rows.write)
        self._last_evaluation = last_evaluation.LastEvaluation(
            self.job,
            self.train_step,
            self._final_seconds,
            num_evaluators=self._num_evaluators,
        )
        self._complete = True
        logging.info("Training is complete: %s.", reason)

    def _rest(self) -> worker.PollResult:
        """Waits, training being complete, for the final version's evaluation to write it down."""
        self._broadcast.publish()
        # Also to those that had died, or lost their server.
        self._broadcast.announce(self._steps_allowed(), done=True)
        done = not self._last_evaluation.is_expected(self._take_last_results)
        if done:
            self._require_rated()
        return worker.PollResult(done=done, idle_seconds=_REST_SECONDS)

    def _require_rated(self) -> None:
        """Refuses to call a run a success whose final version cannot be evaluated."""
        try:
            self._evaluations.require_finite(self.train_step)
        except errors.EvaluationError as error:
            reason = self._completion.of(self.train_step)
            self._completion.note(self.train_step, reason, failure=str(error))
            raise

    def _take_last_results(self) -> set[int]:
        self._take_messages()
        if self._evaluations.candidates_wait:
            return set()  # One of them may be better than the best that is kept.
        return self._evaluations.raters(self.train_step)

    def _close_metrics(self) -> None:
        from actor_learner.reporting import curve, jsonl

        run_dir = self.job.run_dir
        self._metric_files.close()
        unsaved.ledger().attempt(
            run_dir.curve.name,
            lambda: curve.draw_curve(
                jsonl.read_rows(run_dir.metrics_jsonl),
                run_dir.curve,
                run_dir.path.name,
                self._experiment.evaluation.target_return,
            ),
            where=run_dir.curve,
        )

"""The learner job: trains on the actors' experience and publishes the policy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings, parts, run_directory
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import (
    inbox,
    league_wire,
    learner_group,
    publisher,
    replay_connection,
)
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.jobs.workers import (
    actor_watch,
    learner_ending,
    learner_member,
    learner_pacing,
    run_files,
    shared_queue,
    training_slices,
)
from actor_learner.league import settings as league_settings
from actor_learner.learning import policy_export
from actor_learner.messaging import protocol
from actor_learner.parameters import store
from actor_learner.replay.reading import version_limit
from actor_learner.replay.server import state
from actor_learner.reporting import curve, logger, metric_files
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs import learning_side, model, stored_versions, warm_start
from actor_learner.runs.evaluation import best_policy, evaluations
from actor_learner.runs.league import league_keeper
from actor_learner.runs.progress import reported_statistics
from actor_learner.support import errors, fault_points, formatting

KIND = "learner"
_IDLE_SECONDS = 0.01
_UNREACHABLE_SECONDS = 1.0
_REST_SECONDS = 0.2
_TABLE_SECONDS = 5.0


class LearnerJob(worker.Worker):
    """Trains in slices, as fast as the experience at hand allows.

    Counts the actors' steps from their reports, writes the run's metrics, checkpoints and policies,
    and completes when the steps are taken or an evaluator reports the target return; if there are
    evaluators, once the final version has been evaluated.

    Requests of actors and evaluators are answered between two slices, when they have been
    processed: an answered request is part of the next checkpoint.

    Args:
      num_evaluators: How many evaluators the run has, if known; others that join count as well.
      num_learners: How many learners share each batch. This one is the chief; the others are
        `learner_member.LearnerMemberJob`s.
    """

    def __init__(self, num_evaluators: int = 0, num_learners: int = 1) -> None:
        self._num_evaluators = num_evaluators
        self._num_learners = num_learners
        self._group: learner_group.ChiefGroup | None = None
        self._closing = contextlib.ExitStack()
        self._saving = threading.Lock()
        self._limit: version_limit.VersionLimit | None = None
        self._league: league_keeper.LeagueKeeper | None = None
        self._ending: learner_ending.Ending | None = None
        self._shared: shared_queue.SharedQueue | None = None

    def configure(self) -> None:
        job = self.job
        if job.run_dir is None:
            raise errors.ConfigError(
                f"the learner writes checkpoints, metrics and policies, but --run={job.run} is not "
                f"a directory: pass --run=some/place/{job.run}"
            )
        self._run_dir = self._own_directory()
        run_files.lock_run(job, self._run_dir, self._closing)
        self._settings = jobs_settings.declared(job.source)
        self._closing.enter_context(parts.scope())
        self._experiment = experiment_lib.Experiment()
        self._replay = replay_connection.ReplayConnection(job)
        self._closing.callback(self._replay.close)
        self._model = self._make_model()
        # From here on an earlier learner that continues is refused.
        self._epoch = epoch_lib.Epoch.begin(self._run_dir)
        parts.publish(
            run_dir=str(self._run_dir),
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            agent=self._model.agent,
            replay_client=self._replay.client,
        )
        self._apply_warm_start()
        if self._num_learners > 1:
            learner_member.check_optimizers(self._model)
            self._group = learner_group.ChiefGroup(
                job.wire, epoch=self._epoch.number, part_seconds=self._settings.part_seconds
            )
        self._build_learning()
        versions = store.ParameterStore(self._run_dir.path / store.DIRECTORY)
        self._stored = stored_versions.StoredVersions(versions, self._model, self._epoch)
        self._build_evaluations(versions)
        self._publisher = publisher.Publisher(
            job.wire,
            self._model.published_variables(),
            epoch=self._epoch.number,
            version=self._learning.train_step,
            interval_seconds=self._model.plan.publish_seconds,
            limit=self._limit,
        )
        self._inbox.open()
        self._describe_run()
        self._done = run_files.DoneMarker(self._run_dir.path, self._experiment)
        self._learning.start()
        failure = self._done.failure_of(self._learning.train_step)
        if failure is not None:
            raise errors.EvaluationError(failure)
        reason = self._done.of(self._learning.train_step)
        if reason is not None:
            # A predecessor died after its last train step: the other jobs must still learn of it.
            # They may have last steps that it was not told of, and have yet to find this one.
            self._finish(reason, may_rejoin=True)

    def poll(self) -> worker.PollResult | bool:
        self._take_messages()
        self._inbox.answer_leaving(self._learning.save)
        if self._ending is not None:
            return self._rest()
        early = self._early_end()
        if early is not None:
            self._finish(*early)
            return False
        if self._group is not None:
            # Before anything is due: how much a train step takes depends on how many there are.
            self._group.admit(lambda: learner_member.state_packing(self._model))
        try:
            if not self._replay.is_there():
                return worker.PollResult(idle_seconds=_UNREACHABLE_SECONDS)
            due = self._learning.updates_due()
        except errors.ReplayTimeoutError as error:
            self._replay.note_outage(error)
            return worker.PollResult(idle_seconds=_UNREACHABLE_SECONDS)
        if due <= 0 and self._all_steps_are_taken():
            self._learning.pacing.require_training(*self._learning.counters())
            self._finish("all steps are taken")
            return False
        due = min(due, self._publisher.fresh_updates(self._learning.train_step))
        if due > 0:
            self._actors.has_experience()
            self._slices.run(due)
        else:
            self._actors.look(bool(self._inbox.actors))
        self._tell()
        return worker.PollResult(idle_seconds=0.0 if due > 0 else _IDLE_SECONDS)

    def status(self) -> dict[str, Any]:
        steps = self._learning.environment_step
        status: dict[str, Any] = {
            "steps": self._learning.train_step_now,
            "version": self._publisher.version,
            "environment_steps": steps,
            "actors": len(self._inbox.actors),
            "message": f"{steps:,} environment steps",
        }
        if self._group is not None:
            status["learners"] = self._group.size
            status["message"] += f", {self._group.size} of {self._num_learners} learners"
        lag = self._learning.trainer.version_lag
        if lag is not None:
            status["version_lag"] = round(lag)
        if self._limit is not None:
            status["dropped_items"] = self._limit.dropped
        if self._shared is not None:
            status["lost_items"] = self._shared.lost
        if self._learning.trainer.learner.skips_steps:
            skipped = status["skipped_steps"] = self._learning.progress.skipped_steps
            if skipped:
                status["message"] += f", {skipped:,} train steps skipped: not finite"
        shares = self._learning.trainer.timing.shares()
        if shares:
            status["time"] = shares
            status["message"] += f"; {formatting.shares(shares)}"
        if self._actors.is_alone:
            status["message"] += "; it has no actors"
        return status

    def save(self) -> None:
        if self._ending is None:
            self._learning.trainer.save_after_failure()

    def close(self) -> None:
        self._closing.close()

    # What differs for the learner of a further policy: `further_learner.FurtherLearnerJob`.

    def _own_directory(self) -> run_directory.RunDirectory:
        """Where the checkpoints, metrics and policies of this learner are."""
        return self.job.run_dir

    def _make_model(self) -> model.Model:
        return self._replay.make_model(self._experiment, self.job.seed)

    def _apply_warm_start(self) -> None:
        warm_start.WarmStart().apply(self._model.agent, self._run_dir)

    def _describe_run(self) -> None:
        run_files.describe_run(self.job)

    def _loggers(self) -> Sequence[logger.Logger]:
        """Loggers of the user's, which get the lines of metrics, too."""
        return self._experiment.reporting.loggers

    def _early_end(self) -> tuple[str, str] | None:
        """Why training ends before all steps are taken, and its status; None if it does not."""
        if self._evaluations.target_reached is not None:
            return self._evaluations.target_reached, "target reached"
        if self._learning.stop_reason is not None:
            return self._learning.stop_reason, "stopped"
        return None

    def _further_policies(self) -> Collection[str]:
        """Names of the policies whose learners this one waits for at the end."""
        return self._replay.policies

    def _last_step(self) -> int:
        """The environment step at which actors stop."""
        return self._experiment.environment_steps

    def _all_steps_are_taken(self) -> bool:
        return self._learning.environment_step >= self._last_step()

    # Building.

    def _build_learning(self) -> None:
        experiment, job = self._experiment, self.job
        plan = learner_member.part_of(self._model.plan, self._num_learners)
        self._limit = learner_member.limit_of(experiment, self._model)
        self._statistics = reported_statistics.ReportedStatistics()
        league: dict[str, Any] = {}
        if self._replay.has_league:
            self._league = league["league"] = league_keeper.LeagueKeeper(
                league_settings.League(),
                self._run_dir,
                self._model.agent.policy,
                train_step=self._model.train_step,
                environment_step=self._model.environment_step,
                epoch=self._epoch,
            )
        self._inbox = inbox.Inbox(
            job.wire,
            epoch=self._epoch.number,
            statistics=self._statistics,
            environment_step=self._model.environment_step,
            known_steps=lambda: self._learning.environment_step,
            on_result=self._take_result,
            **({} if self._league is None else {"on_games": self._league.take}),
        )
        # The number of steps is restored with the learner; the rows continue from there.
        self._metric_files: logger.Loggers | None = None
        self._learning = learning_side.LearningSide(
            experiment,
            plan,
            self._model.algorithm,
            self._run_dir,
            self._replay.address,
            train_step=self._model.train_step,
            environment_step=self._model.environment_step,
            statistics=self._statistics,
            steps_taken=lambda: self._inbox.steps,
            table=self._table_state,
            on_row=self._write_metrics,
            why_no_sample=lambda: (
                f"the learner has waited {experiment.sample_timeout_seconds:g} s for a sample of "
                f"the replay server at {self._replay.address}"
            ),
            limit=self._limit,
            version_lag_seconds=self._statistics.take_version_lag_seconds,
            actor_shares=self._statistics.mean_shares,
            while_saving=self._while_saving,
            checkpoint_items=league,
            group=self._group,
            more_columns=lambda: {} if self._shared is None else {"lost_items": self._shared.lost},
        )
        self._shared = learner_member.shared_queue_of(
            plan, self._num_learners, self._group, self._learning.trainer.run, self._limit
        )
        self._closing.callback(self._learning.close)
        if self._league is not None:
            self._league.start(self._save_checkpoint)
            self._closing.callback(self._close_league)
            league_wire.answer(job.wire, self._league)
        self._learning.pacing = learner_pacing.make_pacing(
            plan, self._learning, self._limit, self._table_state, self._num_actors, self._shared
        )
        self._describe_run()  # Loggers are told; once all is built, it is written again.
        self._metric_files = metric_files.open_metric_files(
            self._run_dir, self._learning.environment_step, self._loggers()
        )
        self._closing.callback(self._close_metrics)
        self._actors = actor_watch.ActorWatch(job, self._settings.patience_seconds)
        self._slices = training_slices.TrainingSlices(
            job,
            self._learning,
            self._replay,
            table=self._table_state,
            timeout_seconds=experiment.sample_timeout_seconds,
            meanwhile=self._while_training,
            train=None if self._shared is None else self._shared.run,
        )
        self._closing.callback(self._slices.close)

    def _build_evaluations(self, versions: store.ParameterStore) -> None:
        target = self._experiment.evaluation.target_return
        self._evaluations = evaluations.Evaluations(
            best_policy.BestPolicyKeeper(
                self._make_model,
                self._run_dir.best,
                versions,
                target,
                kept=stored_versions.stored_versions().kept,
            ),
            on_row=self._write_metrics,
            seconds=lambda: self._learning.progress.seconds,
            target_return=target,
        )

    def _table_state(self) -> state.TableState:
        return self._replay.table_state(self._model.plan.stream.table_name, _TABLE_SECONDS)

    def _num_actors(self) -> int:
        return max(1, len(self._inbox.actors))

    # Messages: received in the wire's thread, processed between two slices of training.

    def _take_messages(self) -> None:
        if not self._saving.acquire(blocking=False):
            return  # A checkpoint must be consistent.
        try:
            self._epoch.require_latest()
            self._inbox.take_all()
        finally:
            self._saving.release()

    def _take_result(self, request: protocol.Request) -> None:
        self._evaluations.take(
            news_lib.result_of(request.body), request.message.arrays.get("policy")
        )
        fault_points.reach(fault_points.RESULT_KEPT)
        request.answer({"epoch": self._epoch.number})

    @contextlib.contextmanager
    def _while_saving(self) -> Iterator[None]:
        with self._saving:
            self._epoch.require_latest()
            yield
            fault_points.reach(fault_points.CHECKPOINT_SAVED)

    def _while_training(self, is_stuck: bool) -> None:
        self._take_messages()
        try:
            self._tell_news(beyond=is_stuck)
        except errors.ReplayTimeoutError as error:
            self._replay.note_outage(error)

    # Telling the other jobs.

    def _tell(self) -> None:
        """Publishes progress: to the other jobs, the parameter store and the metrics."""
        self._publisher.publish(self._learning.train_step)
        try:
            self._tell_news()
        except errors.ReplayTimeoutError as error:
            self._replay.note_outage(error)
            return
        self._stored.push_if_due()
        if self._league is not None:
            self._league.join_if_due(self._save_checkpoint)
        self._write_row(final=False)

    def _tell_news(self, *, beyond: bool = False) -> None:
        """Publishes progress and how far actors may go; `beyond` the end if training needs it."""
        steps, train_step = self._learning.environment_step, self._learning.train_step_now
        done = self._ending is not None
        allowed = steps if done else self._learning.pacing.steps_allowed(steps, train_step)
        if not beyond:
            allowed = min(allowed, self._last_step())
        self._publisher.tell(
            news_lib.News(
                epoch=self._epoch.number,
                train_step=train_step,
                version=self._publisher.version,
                environment_step=steps,
                steps_allowed=allowed,
                num_actors=self._num_actors(),
                done=done,
            )
        )

    def _write_row(self, *, final: bool) -> None:
        try:
            if final:
                self._learning.write_row()
            else:
                self._learning.write_row_if_due()
        except errors.ReplayTimeoutError as error:
            logging.warning("A line of metrics is left out: %s", error)

    # The end.

    def _finish(self, reason: str, status: str | None = None, *, may_rejoin: bool = False) -> None:
        """Saves and exports, then publishes the final version as final."""
        train_step = self._learning.train_step
        if self._league is not None:
            self._league.join_at_the_end(self._save_checkpoint)
        self._learning.save()
        fault_points.reach(fault_points.LAST_CHECKPOINT_SAVED)
        self._done.note(train_step, reason, status=status)
        fault_points.reach(fault_points.DONE_NOTED)
        self._stored.push()
        policy_export.export_policies(
            str(self._run_dir.policies), self._model.agent, self._model.train_step
        )
        self._publisher.publish(train_step, now=True)
        self._write_row(final=True)
        self._ending = learner_ending.Ending(
            train_step,
            self._learning.environment_step,
            evaluation_seconds=self._settings.final_evaluation_seconds,
            num_evaluators=self._num_evaluators,
            policies=self._further_policies(),
            may_rejoin=may_rejoin,
        )
        self._tell_news()
        logging.info("Training is complete: %s.", reason)

    def _rest(self) -> worker.PollResult:
        """Waits, after training is complete, for last reports and the final evaluation."""
        self._tell_news()
        done = self._is_over()
        if done and self._learning.environment_step != self._ending.environment_step:
            self._learning.save()
            self._write_row(final=True)
        if done:
            self._require_rated()
        return worker.PollResult(done=done, idle_seconds=_REST_SECONDS)

    def _is_over(self) -> bool:
        """Whether nobody needs this learner any more, now that training is complete."""
        return self._ending.is_over(self._inbox, self._evaluations)

    def _require_rated(self) -> None:
        """Raises if the final version cannot be evaluated: the run is not a success then."""
        version = self._ending.version
        try:
            self._evaluations.require_finite(version)
        except errors.EvaluationError as error:
            self._done.note(version, self._done.of(version), failure=str(error))
            raise

    def _write_metrics(self, row: dict[str, Any]) -> None:
        self._epoch.require_latest()
        self._metric_files.write(row)

    def _save_checkpoint(self) -> str | None:
        return self._learning.trainer.learner.save_checkpoint()

    def _close_league(self) -> None:
        if not self.job.displaced:
            self._league.draw()

    def _close_metrics(self) -> None:
        self._metric_files.close()
        if not self.job.displaced:
            curve.draw_run(self._run_dir, self._experiment.evaluation.target_return)

"""A whole training run in one process: collecting and learning by turns or at once."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import parts, run_directory
from actor_learner.acting import metrics
from actor_learner.environments import lanes as lanes_lib
from actor_learner.learning import evaluation, policy_export, triggers
from actor_learner.replay.server import server
from actor_learner.replay.streams import recorded_replay
from actor_learner.runs import (
    lives,
    overlapped_run,
    own_collector,
    own_supply,
    progress_rows,
    progress_state,
    rating,
    table_checks,
    trainer,
    warm_start,
)
from actor_learner.support import (
    counters,
    errors,
    leaking_python,
    seeds,
    tensorflow_threads,
    unsaved,
)

JOB = "train"
"""Directory of the run's `jobs/` where the log is, and what else is of this process alone."""

COMPLETED, TARGET_REACHED = "completed", "target reached"
STOPPED, INTERRUPTED = "stopped", "interrupted"

Row = progress_rows.Row


class OneProcess:
    """Builds every part of an experiment, and trains.

    ```python
    with OneProcess(Experiment(), run, seed=0, on_row=print) as training:
        status = training.run()
    ```

    Everything that can be wrong with the configuration is found on construction. An existing
    checkpoint in the run directory is continued from.

    Args:
      experiment: What to train.
      run: Where everything goes.
      seed: Of environments, networks and exploration. Which items are sampled is decided by the
        Reverb server, which cannot be seeded, unless `Experiment.deterministic` is set. A run that
        is resumed goes on with seeds of its own, made of this one and of how often it was resumed.
      on_row: Called with each line of metrics.
      stop: Set from anywhere, a signal handler included, to end training after the current turn.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        run: run_directory.RunDirectory,
        *,
        seed: int,
        on_row: Callable[[Row], None] = lambda row: None,
        stop: threading.Event | None = None,
    ) -> None:
        tensorflow_threads.tensorflow_threads()
        unsaved.ledger().final_wait_seconds = unsaved.full_disk()
        leaking_python.warn()
        self._experiment = experiment
        self._run = run
        self._on_row = on_row
        self._stop = stop or threading.Event()
        self._closing = contextlib.ExitStack()
        self._closing.enter_context(parts.scope())
        try:
            self._build(seed)
        except BaseException:
            self._closing.close()
            raise

    def __enter__(self) -> OneProcess:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends every part, the last built first; safe to call twice."""
        self._closing.close()

    @property
    def experiment(self) -> experiment_lib.Experiment:
        return self._experiment

    @property
    def total_environment_steps(self) -> int | None:
        """Environment steps to train for; None if none are taken."""
        return None if self._experiment.is_offline else self._experiment.environment_steps

    @property
    def environment_step(self) -> int:
        """Environment steps so far, those of earlier processes of a resumed run included."""
        taken = 0 if self._acting is None else self._acting.collector.steps_taken
        return self._first_environment_step + taken

    @property
    def train_step(self) -> int:
        """Train steps so far; while the learner trains, those before that call of it."""
        return self._trainer.learner.last_step

    @property
    def seconds(self) -> float:
        """Seconds of training, earlier processes of a resumed run included."""
        return self._progress.seconds

    @property
    def best(self) -> Row | None:
        """The score of the best policy so far, as columns of metrics; None before the first."""
        return None if self._rating is None else self._rating.best_row

    @property
    def restored_from(self) -> str | None:
        """The checkpoint that training goes on from."""
        return self._trainer.learner.restored_from

    @property
    def stop_reason(self) -> str | None:
        """Why training ended before its time; None if it did not."""
        reached = self._rating is not None and self._rating.target_reached
        return reached or self._trainer.learner.stop_reason

    def describe(self) -> list[str]:
        """Lines that say what was built."""
        agent = self._algorithm.agent
        weights = sum(int(np.prod(v.shape)) for v in agent.collect_policy.variables())
        return [
            f"environment: {self._env_name()}, {self._plan.num_lanes} lanes",
            f"agent: {self._algorithm.name}, {weights:,} policy weights, "
            f"{self._algorithm.n_step}-step returns",
            *self._server.describe().splitlines(),
        ]

    def run(self) -> str:
        """Trains until the steps are taken, the target is reached, or `stop` is set.

        Whatever ends training, a checkpoint is saved first, unless the disk is full: then the
        ledger of what is `unsaved` has it, for the caller to settle.

        Returns:
          `COMPLETED`, `TARGET_REACHED`, `STOPPED` (by a trigger) or `INTERRUPTED`.

        Raises:
          errors.EvaluationError: If the last evaluation is not finite.
        """
        self._progress.start()
        self._rows.start()
        try:
            if self._experiment.is_offline:
                self._run_offline()
            elif self._experiment.overlap:
                self._run_overlapped()
            else:
                self._run_by_turns()
            if self._acting is not None and self._steps_are_taken():
                self._supply.require_training(*self._counters())
        except errors.TriggerError:
            raise  # The learner has saved already.
        except BaseException:
            self._trainer.save_after_failure()
            raise
        self._save()
        rated = self._rating is None or self._rating.evaluated_at == self.train_step
        if not self._ended() and not rated:
            self._finish_evaluation()
        self._progress.stop()
        self._rows.write(self._trainer.loss)
        if self._rating is not None and self._rating.target_reached:
            return TARGET_REACHED
        if self._stop.is_set() and not self._steps_are_taken():
            return INTERRUPTED
        if self._rating is not None:
            self._rating.require_finite()
        return COMPLETED if self._trainer.learner.stop_reason is None else STOPPED

    def export_policies(self) -> None:
        """Writes SavedModels of the policy, collect policy and greedy policy as they are now."""
        policy_export.export_policies(
            str(self._run.policies), self._algorithm.agent, self._train_step
        )

    def _build(self, seed: int) -> None:
        experiment, run = self._experiment, self._run
        if experiment.max_version_lag is not None:
            # No error: the same file may be meant for both ways of running it.
            logging.warning(
                "Experiment.max_version_lag and when_lagging are for separate jobs and have no "
                "effect in one process, where collecting is at most two turns behind the learner."
            )
        if experiment.deterministic:
            # For the whole process: TensorFlow has no way back.
            tf.config.experimental.enable_op_determinism()
        life = lives.begin(run, JOB)
        rating_seed, seed = seed, seeds.of_life(seed, life)
        tf.keras.utils.set_random_seed(seed)
        self._train_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_step")
        self._environment_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        parts.publish(
            run_dir=str(run), train_step=self._train_step, environment_step=self._environment_step
        )
        self._build_algorithm(seed)
        warm_start.WarmStart().apply(self._algorithm.agent, run)
        parts.publish(agent=self._algorithm.agent)
        self._build_server()
        if experiment.is_offline:
            self._statistics = metrics.EpisodeStatistics(experiment.metrics_window)
            self._acting = None
        else:
            self._build_collector(seed)
        self._build_trainer()
        if self._acting is not None:
            self._build_supply()
        self._build_rating(rating_seed, life)
        self._rows = progress_rows.ProgressRows(
            progress=self._progress,
            statistics=self._statistics,
            counters=self._counters,
            table=self._table_state,
            transitions=lambda items: self._plan.stream.num_transitions(
                self._plan.experience, items
            ),
            epsilon=self._algorithm.epsilon,
            version_lag=lambda: self._trainer.version_lag,
            on_row=self._on_row,
            more=self._skipped_column,
            interval_seconds=experiment.report_seconds,
            # A run that repeats must not write more rows on a slower day.
            interval_steps=(
                max(1, experiment.environment_steps // 100) if experiment.deterministic else None
            ),
        )

    def _build_algorithm(self, seed: int) -> None:
        experiment, counters = self._experiment, (self._train_step, self._environment_step)
        self._env = None
        if experiment.is_offline:
            self._algorithm = experiment.make_offline_algorithm(*counters)
            num_lanes = 1
        else:
            self._env = experiment.make_environment(seed)
            self._closing.callback(self._env.close)
            self._algorithm = experiment.make_algorithm(self._env, *counters)
            num_lanes = lanes_lib.as_lanes(self._env).num_lanes
        self._plan = experiment.plan(self._algorithm, num_lanes)

    def _build_server(self) -> None:
        tables = self._plan.stream.tables(self._plan.experience)
        for table in tables:
            table_checks.refuse_unfit(table, self._plan)
        table_checks.refuse_replay_of_jobs(self._run)
        self._table_name = self._plan.stream.table_name
        self._server = server.ReplayServer(tables, checkpoint_dir=self._run.replay)
        self._closing.callback(self._server.stop)
        self._client = self._server.client()
        parts.publish(replay_client=self._client)
        if isinstance(self._plan.stream, recorded_replay.PrefilledStream):
            self._plan.stream.fill(self._plan.experience, self._client)

    def _build_collector(self, seed: int) -> None:
        self._acting = own_collector.OwnCollector(
            self._experiment,
            self._plan,
            self._algorithm,
            self._env,
            self._client,
            self._run,
            train_step=self._train_step,
            environment_step=self._environment_step,
            seed=seed,
            trained_version=lambda: self.train_step,
        )
        self._closing.callback(self._acting.close)
        self._statistics = self._acting.collector.statistics
        parts.publish(collect_metrics=self._acting.collector.metrics)

    def _build_trainer(self) -> None:
        self._progress = progress_state.ProgressState(self._statistics)
        self._trainer = trainer.Trainer(
            self._experiment,
            self._plan,
            self._algorithm,
            self._server.address,
            str(self._run),
            train_step=self._train_step,
            checkpoint_items={
                "environment_step": self._environment_step,
                "progress": self._progress,
            },
            why_no_sample=self._why_no_sample,
        )
        self._closing.callback(self._trainer.close)
        self._progress.count_skipped(lambda: self._trainer.learner.skipped_steps)
        # The collector has taken no step yet: what is there was restored from a checkpoint.
        self._first_environment_step = int(counters.read(self._environment_step))

    def _build_supply(self) -> None:
        """After the trainer, which may have restored counters and policy from a checkpoint."""
        collector = self._acting.collector
        if self._acting.policy_copy is not None:
            self._acting.policy_copy.publish()
        self._supply = own_supply.make_supply(
            self._plan,
            environment_step=self.environment_step,
            train_step=self.train_step,
            table=self._table_state,
            turns=lambda: collector.turns,
            skipped=lambda: self._trainer.learner.skipped_steps,
        )

    def _build_rating(self, seed: int, life: int) -> None:
        experiment, settings = self._experiment, self._experiment.evaluation
        self._rating: rating.Rating | None = None
        if not experiment.can_evaluate:
            return
        # A process per lane is too many for one lane per episode.
        few = getattr(self._env, "vectorization", None) == "async"
        env = self._env
        if env is None:
            specs = experiment.offline_specs()
        else:
            specs = (env.time_step_spec(), env.action_spec())
        self._rating = rating.Rating(
            experiment,
            self._algorithm.agent.policy,
            str(self._run.best),
            seed=seed,
            life=life,
            specs=specs,
            train_step=self._train_step,
            environment_step=self._environment_step,
            most_lanes=(min(self._plan.num_lanes, settings.episodes) if few else None),
        )
        self._closing.callback(self._rating.close)
        # Counted in environment steps, unless there are none.
        ratio = 1.0 if experiment.is_offline else self._plan.updates_per_step
        interval = round(settings.interval * ratio)
        self._trainer.learner.add_trigger(
            evaluation.EvaluationTrigger(
                lambda: self._rating.evaluate(on_step=self._give_up_if_asked),
                self._train_step,
                max(1, interval) if settings.interval else 0,
                observers=[self._rating.note, self._report_evaluation, self._stop_if_reached],
            )
        )

    def _stop_if_reached(self, result: evaluation.EvaluationResult) -> None:
        if self._rating.target_reached is not None:
            raise triggers.StopTraining(self._rating.target_reached)

    def _run_offline(self) -> None:
        while not self._finished():
            due = self._experiment.train_steps - self.train_step
            # Triggers, evaluations among them, are called after each call of the learner.
            interval = self._experiment.evaluation.interval or trainer.MOST_ITERATIONS
            until_evaluation = interval - self.train_step % interval
            self._trainer.run(min(due, until_evaluation, trainer.MOST_ITERATIONS))
            self._rows.write_if_due(self._trainer.loss)

    def _run_by_turns(self) -> None:
        while not self._finished():
            self._acting.collector.run()
            while not self._ended() and self._updates_due() > 0:
                self._trainer.run(min(self._updates_due(), trainer.MOST_ITERATIONS))
            self._rows.write_if_due(self._trainer.loss)

    def _run_overlapped(self) -> None:
        overlapped_run.OverlappedRun(
            collector=self._acting.collector,
            trainer=self._trainer,
            policy_copy=self._acting.policy_copy,
            supply=self._supply,
            watch=self._acting.watch,
            counters=self._counters_now,
            environment_steps=self._experiment.environment_steps,
            ended=self._ended,
            after_training=lambda: self._rows.write_if_due(self._trainer.loss),
        ).run()

    def _updates_due(self) -> int:
        return self._supply.updates_due(*self._counters())

    def _counters(self) -> tuple[int, int]:
        return self.environment_step, self.train_step

    def _counters_now(self) -> tuple[int, int]:
        """As `_counters`, but sees the train steps of a call that goes on in another thread."""
        return self.environment_step, int(counters.read(self._train_step))

    def _finished(self) -> bool:
        return self._steps_are_taken() or self._ended()

    def _steps_are_taken(self) -> bool:
        if self._experiment.is_offline:
            return self.train_step >= self._experiment.train_steps
        return self.environment_step >= self._experiment.environment_steps

    def _ended(self) -> bool:
        return self._stop.is_set() or self._trainer.learner.stop_reason is not None

    def _finish_evaluation(self) -> None:
        """Evaluates what the last interval left, so that the final policy is rated too."""
        try:
            result = self._rating.evaluate(on_step=self._give_up_if_asked)
        except triggers.StopTraining:
            return  # Interrupted meanwhile; everything is saved.
        self._rating.note(result)
        self._report_evaluation(result)
        # With the time that this took: the clock of a run that is resumed must not go back.
        self._trainer.learner.save_checkpoint()

    def _give_up_if_asked(self) -> None:
        if self._stop.is_set():
            raise triggers.StopTraining("interrupted during an evaluation")

    def _save(self) -> None:
        self._trainer.learner.save_checkpoint()
        if self._acting is not None:
            self._acting.save_recording()
        if self._experiment.save_replay:
            unsaved.ledger().attempt(
                "the replay's contents", self._save_replay, where=self._run.replay
            )

    def _save_replay(self) -> None:
        logging.info("Saved the replay's contents to %s.", self._server.checkpoint())

    def _why_no_sample(self) -> str:
        return (
            f"the learner has waited {self._experiment.sample_timeout_seconds:g} s for a sample: "
            f"{self._table_state().describe()}"
        )

    def _table_state(self) -> server.TableState:
        return self._server.info().tables[self._table_name]

    def _report_evaluation(self, result: evaluation.EvaluationResult) -> None:
        self._rows.write(
            self._trainer.loss,
            eval_return=result.mean,
            eval_return_std=result.std,
            eval_episodes=result.episodes,
            **(self._rating.best_row or {}),
        )

    def _skipped_column(self) -> Row:
        skips = self._trainer.learner.skips_steps
        return {"skipped_steps": self._progress.skipped_steps} if skips else {}

    def _env_name(self) -> str:
        if self._env is None:
            return "recorded experience"
        return str(getattr(self._env, "name", type(self._env).__name__))

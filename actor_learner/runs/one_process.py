"""A whole training run in one process: collecting and learning by turns or at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import parts, run_directory
from actor_learner.acting import metrics
from actor_learner.environments import lanes as lanes_lib
from actor_learner.learning import evaluation, policy_export, trigger_runner
from actor_learner.learning import triggers as triggers_lib
from actor_learner.replay.server import server
from actor_learner.replay.streams import recorded_replay
from actor_learner.runs import (
    acting_side,
    learning_side,
    pacing,
    rating,
    table_checks,
    threads,
    turns,
)
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs import warm_start as warm_start_lib
from actor_learner.support import (
    errors,
    leaking_python,
    seeds,
    tensorflow_threads,
    unsaved,
)

COMPLETED, TARGET_REACHED = "completed", "target reached"
STOPPED, INTERRUPTED = "stopped", "interrupted"

Row = learning_side.Row


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
        is resumed has seeds of its own, made of this one and of how often it was resumed.
      on_row: Called with each line of metrics.
      stop: Set from anywhere, a signal handler included, to end training after the current turn.
      triggers: Called after each call of the learner, behind `Learner.triggers`.
      warm_start: What the policy of a new run begins from; None is what gin binds.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        run: run_directory.RunDirectory,
        *,
        seed: int,
        on_row: Callable[[Row], None] = lambda row: None,
        stop: threading.Event | None = None,
        triggers: Sequence[Callable[[int], Any]] = (),
        warm_start: warm_start_lib.WarmStart | None = None,
    ) -> None:
        tensorflow_threads.tensorflow_threads()
        unsaved.ledger().final_wait_seconds = unsaved.full_disk()
        leaking_python.warn()
        self._experiment = experiment
        self._run = run
        self._on_row = on_row
        self._stop = stop or threading.Event()
        self._triggers = tuple(triggers)
        self._warm_start = warm_start_lib.WarmStart() if warm_start is None else warm_start
        self._closing = contextlib.ExitStack()
        self._learning: learning_side.LearningSide
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
        return self._learning.environment_step

    @property
    def train_step(self) -> int:
        """Train steps so far; while the learner trains, those before that call of it."""
        return self._learning.train_step

    @property
    def seconds(self) -> float:
        """Seconds of training, earlier processes of a resumed run included."""
        return self._learning.progress.seconds

    @property
    def best(self) -> Row | None:
        """The score of the best policy so far, as columns of metrics; None before the first."""
        return None if self._rating is None else self._rating.best_row

    @property
    def restored_from(self) -> str | None:
        """The checkpoint from which training resumes."""
        return self._learning.trainer.learner.restored_from

    @property
    def replay_starts_empty(self) -> bool:
        """Whether a run is resumed without the experience that it was learning from."""
        is_replay = self._plan.group_steps is None and self._plan.stream.collects
        return bool(self.restored_from) and is_replay and self._table_state().size == 0

    @property
    def stop_reason(self) -> str | None:
        """Why training ended before its time; None if it did not."""
        reached = self._rating is not None and self._rating.target_reached
        return reached or self._learning.stop_reason

    def describe(self) -> list[str]:
        """Lines that say what was built."""
        agent = self._algorithm.agent
        weights = sum(int(np.prod(v.shape)) for v in agent.collect_policy.variables())
        acting = self._acting
        inference = "" if acting is None else f", inference: {acting.actor.inference}"
        return [
            f"environment: {self._env_name()}, {self._plan.num_lanes} lanes{inference}",
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
        self._learning.start()
        try:
            self._train()
        except errors.TriggerError:
            raise  # The learner has saved already.
        except BaseException:
            self._learning.trainer.save_after_failure()
            raise
        # Before saving: a resumed run continues from the seconds of the last line of metrics.
        self._learning.progress.stop()
        self._save()
        rated = self._rating is None or self._rating.evaluated_at == self.train_step
        if not self._ended() and not rated:
            self._finish_evaluation()
        self._learning.write_row()
        if self._rating is not None and self._rating.target_reached:
            return TARGET_REACHED
        if self._stop.is_set() and not self._steps_are_taken():
            return INTERRUPTED
        if self._rating is not None:
            self._rating.require_finite()
        return COMPLETED if self._learning.stop_reason is None else STOPPED

    def export_policies(self) -> None:
        """Writes SavedModels of the policy, collect policy and greedy policy as they are now."""
        policy_export.export_policies(
            str(self._run.policies), self._algorithm.agent, self._train_step
        )

    def _train(self) -> None:
        experiment = self._experiment
        if self._acting is None:
            turns.run_offline(
                self._learning,
                train_steps=experiment.train_steps,
                evaluation_interval=experiment.evaluation.interval,
                ended=self._ended,
            )
            return
        until: dict[str, Any] = dict(
            environment_steps=experiment.environment_steps, ended=self._ended
        )
        if self._policy_copy is None:
            turns.run(self._acting, self._learning, **until)
        else:
            threads.run(self._acting, self._learning, self._policy_copy, **until)
        if self._steps_are_taken():
            self._learning.pacing.require_training(*self._learning.counters())

    def _build(self, seed: int) -> None:
        experiment, run = self._experiment, self._run
        if experiment.staleness.max_version_lag is not None:
            # No error: the same file may be meant for both ways of running it.
            logging.warning(
                "Staleness.max_version_lag and when_lagging are for separate jobs and have no "
                "effect in one process, where collecting is at most two turns behind the learner."
            )
        if experiment.deterministic:
            # For the whole process: TensorFlow has no way back.
            tf.config.experimental.enable_op_determinism()
        self._epoch = epoch_lib.Epoch.begin(run)
        rating_seed, seed = seed, seeds.of_life(seed, self._epoch.number)
        tf.keras.utils.set_random_seed(seed)
        self._train_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_step")
        self._environment_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        parts.publish(
            run_dir=str(run), train_step=self._train_step, environment_step=self._environment_step
        )
        self._build_algorithm(seed)
        self._warm_start.apply(self._algorithm.agent, run)
        parts.publish(agent=self._algorithm.agent)
        self._build_server()
        self._acting: acting_side.ActingSide | None = None
        self._policy_copy: threads.PolicyCopy | None = None
        if not experiment.is_offline:
            self._build_acting(seed)
        self._build_learning()
        self._build_rating(rating_seed)

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
        self._plan = experiment.plan(self._algorithm, num_lanes, self._run.run_id())

    def _build_server(self) -> None:
        tables = self._plan.stream.tables(self._plan.experience)
        for table in tables:
            table_checks.refuse_unfit(table, self._plan)
        self._server = server.ReplayServer(tables, checkpoint_dir=self._run.replay)
        self._closing.callback(self._server.stop)
        self._client = self._server.client()
        parts.publish(replay_client=self._client)
        if isinstance(self._plan.stream, recorded_replay.PrefilledStream):
            self._plan.stream.fill(self._plan.experience, self._client)

    def _build_acting(self, seed: int) -> None:
        """Acts with the policy that is trained; in a thread of its own, with a copy of it.

        The learner changes its variables one by one: nobody may act with them meanwhile.
        """
        algorithm, version = self._algorithm, self._train_step
        if self._experiment.overlap:
            version = tf.Variable(0, trainable=False, dtype=tf.int64, name="policy_version")
            algorithm = self._experiment.make_algorithm(self._env, version, self._environment_step)
            self._policy_copy = threads.PolicyCopy.of_policies(
                (self._algorithm.agent.collect_policy, self._train_step),
                (algorithm.agent.collect_policy, version),
                shared=self._environment_step,
            )
        self._acting = acting_side.ActingSide(
            self._experiment,
            self._plan,
            algorithm,
            self._env,
            self._client,
            train_step=version,
            environment_step=self._environment_step,
            seed=seed,
            recording_dir=self._run.experience,
            summary_dir=str(self._run.tensorboard),
            # A copy has a version of its own.
            policy_version=None if self._policy_copy else lambda: self.train_step,
            policy_epoch=lambda: self._epoch.number,
        )
        self._closing.callback(self._acting.close)
        parts.publish(collect_metrics=self._acting.metrics)

    def _build_learning(self) -> None:
        """After the acting side, whose statistics a checkpoint may bring back."""
        acting = self._acting
        self._learning = learning_side.LearningSide(
            self._experiment,
            self._plan,
            self._algorithm,
            self._run,
            self._server.address,
            train_step=self._train_step,
            environment_step=self._environment_step,
            statistics=(
                metrics.EpisodeStatistics(self._experiment.reporting.window)
                if acting is None
                else acting.statistics
            ),
            steps_taken=lambda: 0 if acting is None else acting.steps_taken,
            table=self._table_state,
            on_row=self._on_row,
            why_no_sample=self._why_no_sample,
            while_saving=self._while_saving,
            checkpoint_items=trigger_runner.states(self._triggers),
        )
        self._closing.callback(self._learning.close)
        for trigger in self._triggers:
            self._learning.trainer.learner.add_trigger(trigger)
        self._learning.pacing = self._make_pacing()
        if self._algorithm.share_lanes is not None:
            # A checkpoint may be of a process with other lanes.
            self._algorithm.share_lanes(0, self._plan.num_lanes)
        if self._policy_copy is not None:
            self._policy_copy.publish()

    @contextlib.contextmanager
    def _while_saving(self) -> Iterator[None]:
        self._epoch.require_latest()
        yield

    def _make_pacing(self) -> pacing.Pacing:
        learning, acting = self._learning, self._acting
        if self._plan.group_steps is None:
            environment_step, train_step = learning.counters()
            return pacing.ReplayPacing(
                self._plan,
                self._table_state,
                environment_step=environment_step,
                train_step=train_step,
            )
        first, learner = learning.train_step, learning.trainer.learner
        return pacing.QueuePacing(
            self._plan, lambda step: acting.turns - (step - first) - learner.skipped_steps
        )

    def _build_rating(self, seed: int) -> None:
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
        policy = experiment_lib.greedy(self._algorithm.agent.policy)
        self._rating = rating.Rating(
            experiment,
            policy,
            evaluation.BestPolicyTrigger(
                policy,
                str(self._run.best),
                train_step=self._train_step,
                target_return=settings.target_return,
            ),
            seed=seed,
            life=self._epoch.number,
            specs=specs,
            train_step=self._train_step,
            environment_step=self._environment_step,
            most_lanes=(min(self._plan.num_lanes, settings.episodes) if few else None),
        )
        self._closing.callback(self._rating.close)
        # Counted in environment steps, unless there are none.
        ratio = 1.0 if experiment.is_offline else self._plan.updates_per_step
        interval = round(settings.interval * ratio)
        self._learning.trainer.learner.add_trigger(
            evaluation.EvaluationTrigger(
                lambda: self._rating.evaluate(on_step=self._give_up_if_asked),
                self._train_step,
                max(1, interval) if settings.interval else 0,
                observers=[self._rating.note, self._report_evaluation, self._stop_if_reached],
            )
        )

    def _stop_if_reached(self, result: evaluation.EvaluationResult) -> None:
        if self._rating.target_reached is not None:
            raise triggers_lib.StopTraining(self._rating.target_reached)

    def _steps_are_taken(self) -> bool:
        if self._experiment.is_offline:
            return self.train_step >= self._experiment.train_steps
        return self.environment_step >= self._experiment.environment_steps

    def _ended(self) -> bool:
        return self._stop.is_set() or self._learning.stop_reason is not None

    def _finish_evaluation(self) -> None:
        """Evaluates what the last interval left, so that the final policy is rated too."""
        try:
            result = self._rating.evaluate(on_step=self._give_up_if_asked)
        except triggers_lib.StopTraining:
            return  # Interrupted meanwhile; everything is saved.
        self._rating.note(result)
        self._report_evaluation(result)
        # With the time that this took: the clock of a run that is resumed must not go back.
        self._learning.save()

    def _give_up_if_asked(self) -> None:
        if self._stop.is_set():
            raise triggers_lib.StopTraining("interrupted during an evaluation")

    def _save(self) -> None:
        self._learning.save()
        if self._acting is not None:
            self._acting.save_recording()
        if self._experiment.checkpoints.save_replay:
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
        return self._server.info().tables[self._plan.stream.table_name]

    def _report_evaluation(self, result: evaluation.EvaluationResult) -> None:
        self._learning.write_row(
            eval_return=result.mean,
            eval_return_std=result.std,
            eval_episodes=result.episodes,
            **(self._rating.best_row or {}),
        )

    def _env_name(self) -> str:
        if self._env is None:
            return "recorded experience"
        return str(getattr(self._env, "name", type(self._env).__name__))

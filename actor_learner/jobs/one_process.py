"""A whole training run in one process: replay embedded, collecting and learning by turns."""

from __future__ import annotations

import contextlib
import shutil
import threading
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner import errors, parts, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.acting import actor, evaluator
from actor_learner.environments import lanes as lanes_lib
from actor_learner.jobs import progress_rows, progress_state
from actor_learner.learning import evaluation, learner, triggers
from actor_learner.replay import server

COMPLETED, TARGET_REACHED = "completed", "target reached"
STOPPED, INTERRUPTED = "stopped", "interrupted"

MOST_ITERATIONS = 1_000
"""Train steps per call of the learner at most, so that a request to stop is soon seen."""

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
        Reverb server, which cannot be seeded.
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
    def environment_step(self) -> int:
        return int(self._environment_step.numpy())

    @property
    def train_step(self) -> int:
        return int(self._train_step.numpy())

    @property
    def seconds(self) -> float:
        """Seconds of training, earlier processes of a resumed run included."""
        return self._progress.seconds

    @property
    def best(self) -> Row | None:
        """The evaluation of the best policy so far, as a line of metrics; None before the first."""
        score = self._best.best
        if score is None:
            return None
        return {
            "environment_steps": score["environment_step"],
            "train_steps": score["train_step"],
            "eval_return": score["mean"],
            "eval_return_std": score["std"],
            "eval_episodes": score["episodes"],
        }

    @property
    def restored_from(self) -> str | None:
        """The checkpoint that training goes on from."""
        return self._learner.restored_from

    @property
    def stop_reason(self) -> str | None:
        """Why training ended before its time; None if it did not."""
        return self._target_reached or self._learner.stop_reason

    def describe(self) -> list[str]:
        """Lines that say what was built."""
        agent = self._algorithm.agent
        weights = sum(int(np.prod(v.shape)) for v in agent.collect_policy.variables())
        return [
            f"environment: {self._env_name()}, {self._actor.num_lanes} lanes",
            f"agent: {type(agent).__name__}, {weights:,} policy weights, "
            f"{self._algorithm.n_step}-step returns",
            *self._server.describe().splitlines(),
        ]

    def run(self) -> str:
        """Trains until the steps are taken, the target is reached, or `stop` is set.

        Whatever ends training, a checkpoint is saved first.

        Returns:
          `COMPLETED`, `TARGET_REACHED`, `STOPPED` (by a trigger) or `INTERRUPTED`.
        """
        total = self._experiment.environment_steps
        self._progress.start()
        self._rows.start()
        try:
            while self.environment_step < total and not self._ended():
                self._collect()
                self._learn()
                self._rows.write_if_due(self._loss)
        except errors.TriggerError:
            raise  # The learner has saved already.
        except BaseException:
            self._learner.save_checkpoint()
            raise
        self._save()
        if not self._ended() and self._evaluated_at != self.train_step:
            self._finish_evaluation()
        self._progress.stop()
        self._rows.write(self._loss)
        if self._target_reached:
            return TARGET_REACHED
        if self._stop.is_set() and self.environment_step < total:
            return INTERRUPTED
        return COMPLETED if self._learner.stop_reason is None else STOPPED

    def export_policies(self) -> None:
        """Writes SavedModels of the policy, collect policy and greedy policy as they are now."""
        for name in (
            learner.RAW_POLICY_SAVED_MODEL_DIR,
            learner.COLLECT_POLICY_SAVED_MODEL_DIR,
            learner.GREEDY_POLICY_SAVED_MODEL_DIR,
        ):
            # Of an earlier process of this run; the trigger leaves finished exports as they are.
            shutil.rmtree(self._run.policies / name, ignore_errors=True)
        export = triggers.PolicySavedModelTrigger(
            str(self._run.policies), self._algorithm.agent, self._train_step, interval=1
        )
        export(self.train_step, force_trigger=True)

    def _build(self, seed: int) -> None:
        experiment, run = self._experiment, self._run
        tf.keras.utils.set_random_seed(seed)
        self._train_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_step")
        self._environment_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        parts.publish(
            run_dir=str(run), train_step=self._train_step, environment_step=self._environment_step
        )
        self._env = experiment.make_environment(seed)
        self._closing.callback(self._env.close)
        num_lanes = lanes_lib.as_lanes(self._env).num_lanes
        self._algorithm = experiment.make_algorithm(
            self._env, self._train_step, self._environment_step
        )
        agent = self._algorithm.agent
        parts.publish(agent=agent)

        experience = experiment.experience(self._algorithm, num_lanes)
        self._experience = experience
        tables = experiment.replay.tables(experience)
        for table in tables:
            _refuse_unfit(table)
        self._table_name = tables[0].name
        self._server = server.ReplayServer(tables, checkpoint_dir=run.replay)
        self._closing.callback(self._server.stop)
        self._client = self._server.client()
        parts.publish(replay_client=self._client)
        self._observer = experiment.replay.observer(
            experience, self._client, version=lambda: self._actor.policy_version
        )
        self._closing.callback(self._observer.close)

        metrics = actor.collect_metrics(experiment.metrics_window)
        self._statistics = metrics[0].statistics
        parts.publish(collect_metrics=metrics)
        self._actor = actor.Actor(
            self._env,
            agent.collect_policy,
            self._train_step,
            steps_per_run=experiment.collect_steps(num_lanes),
            observers=[self._observer],
            metrics=metrics,
            summary_dir=str(run.tensorboard),
            environment_step=self._environment_step,
            initial_random_steps=experiment.initial_random_steps,
            seed=seed,
        )
        self._closing.callback(self._actor.close)
        self._build_learner()
        self._build_evaluation(seed)
        self._pace = experiment.pace(
            self.environment_step,
            self.train_step,
            replay_is_empty=self._table_state().size == 0,
        )
        self._rows = progress_rows.ProgressRows(
            progress=self._progress,
            statistics=self._statistics,
            counters=lambda: (self.environment_step, self.train_step),
            table=self._table_state,
            transitions=lambda items: experiment.replay.num_transitions(experience, items),
            epsilon=self._algorithm.epsilon,
            on_row=self._on_row,
            interval_seconds=experiment.report_seconds,
        )
        self._loss: Any = None
        self._evaluated_at: int | None = None
        self._target_reached: str | None = None

    def _build_learner(self) -> None:
        experiment = self._experiment
        self._progress = progress_state.ProgressState(self._statistics)
        self._learner = learner.Learner(
            str(self._run),
            self._train_step,
            self._algorithm.agent,
            lambda: experiment.replay.dataset(
                self._experience,
                self._server.address,
                experiment.batch_size,
                experiment.sample_timeout_seconds,
            ),
            checkpoint_items={
                "environment_step": self._environment_step,
                "progress": self._progress,
            },
            sample_timeout_message=self._why_no_sample,
        )
        self._closing.callback(self._learner.close)

    def _build_evaluation(self, seed: int) -> None:
        experiment = self._experiment
        policy = experiment_lib.greedy(self._algorithm.agent.policy)
        # A process per lane is too many for one lane per episode.
        lanes = {}
        if getattr(self._env, "vectorization", None) == "async":
            lanes["num_envs"] = min(self._actor.num_lanes, experiment.evaluation_episodes)
        env = experiment.make_evaluation_environment(seed, **lanes)
        self._closing.callback(env.close)
        self._evaluator = evaluator.Evaluator(
            env,
            policy,
            experiment.evaluation_episodes,
            seed=seed + experiment_lib.EVALUATION_SEED_OFFSET,
        )
        self._best = evaluation.BestPolicyTrigger(
            policy, str(self._run.best), train_step=self._train_step
        )
        interval = round(experiment.evaluation_interval * experiment.updates_per_step)
        self._evaluation_trigger = evaluation.EvaluationTrigger(
            self._evaluate,
            self._train_step,
            max(1, interval) if experiment.evaluation_interval else 0,
            target_return=experiment.target_return,
            observers=[self._best, self._report_evaluation, self._note_target],
        )
        self._learner.add_trigger(self._evaluation_trigger)

    def _collect(self) -> None:
        self._actor.run()
        self._observer.flush()

    def _learn(self) -> None:
        while not self._ended():
            due = self._pace.updates_due(self.environment_step) - self.train_step
            if due <= 0:
                return
            self._loss = self._learner.run(iterations=min(due, MOST_ITERATIONS)).loss

    def _ended(self) -> bool:
        return self._stop.is_set() or self._learner.stop_reason is not None

    def _evaluate(self) -> evaluation.EvaluationResult:
        episodes = self._evaluator.run(on_step=self._give_up_if_asked)
        self._evaluated_at = self.train_step
        return evaluation.EvaluationResult(
            train_step=self.train_step,
            environment_step=self.environment_step,
            returns=episodes.returns,
            lengths=episodes.lengths,
        )

    def _finish_evaluation(self) -> None:
        """Evaluates what the last interval left, so that the final policy is rated too."""
        try:
            result = self._evaluate()
        except triggers.StopTraining:
            return  # Interrupted meanwhile; everything is saved.
        self._best(result)
        self._report_evaluation(result)
        self._note_target(result)

    def _give_up_if_asked(self) -> None:
        if self._stop.is_set():
            raise triggers.StopTraining("interrupted during an evaluation")

    def _note_target(self, result: evaluation.EvaluationResult) -> None:
        target = self._experiment.target_return
        if target is not None and result.mean >= target:
            self._target_reached = (
                f"mean return {result.mean:g} over {result.episodes} episodes, {target:g} asked for"
            )

    def _save(self) -> None:
        self._learner.save_checkpoint()
        if self._experiment.save_replay:
            path = self._server.checkpoint()
            logging.info("Saved the replay's contents to %s.", path)

    def _why_no_sample(self) -> str:
        return (
            f"the learner has waited {self._experiment.sample_timeout_seconds:g} s for a sample: "
            f"{self._table_state().describe()}"
        )

    def _table_state(self) -> server.TableState:
        return self._server.info().tables[self._table_name]

    def _report_evaluation(self, result: evaluation.EvaluationResult) -> None:
        self._rows.write(
            self._loss,
            eval_return=result.mean,
            eval_return_std=result.std,
            eval_episodes=result.episodes,
        )

    def _env_name(self) -> str:
        return str(getattr(self._env, "name", type(self._env).__name__))


def _refuse_unfit(table: Any) -> None:
    """Refuses tables that one process, collecting and learning by turns, cannot make use of."""
    info = table.info
    limiter = info.rate_limiter_info
    if limiter.max_diff < 1e300 or limiter.min_diff > -1e300:
        raise errors.ConfigError(
            f"table '{table.name}' limits samples per insert, which makes one process that "
            "collects and learns by turns wait for itself. Use @min_size() and set the ratio with "
            "Experiment.updates_per_step"
        )
    if info.sampler_options.HasField("prioritized"):
        raise errors.ConfigError(
            f"table '{table.name}' samples by priority, but nothing updates priorities here: use "
            "@uniform_table"
        )

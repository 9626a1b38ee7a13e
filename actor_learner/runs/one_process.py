"""A whole training run in one process: collects and trains in turns, or at the same time."""

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
from actor_learner.acting import metrics, ring
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.environments import lanes as lanes_lib
from actor_learner.learning import policy_export, trigger_runner
from actor_learner.runs import (
    acting_side,
    embedded_replay,
    further_policy,
    learning_side,
    local,
)
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs import warm_start as warm_start_lib
from actor_learner.runs.evaluation import run_evaluation
from actor_learner.runs.league import league_side
from actor_learner.runs.runners import device_actors, runner
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

    The constructor checks the configuration, and resumes from a checkpoint in the run directory if
    there is one.

    Args:
      experiment: The experiment to train.
      run: The run directory.
      seed: Seed of environments, networks and exploration. The Reverb server, which cannot be
        seeded, chooses the items to sample unless `Experiment.deterministic` is set. A resumed run
        has new seeds, derived from this one and from how often it was resumed.
      on_row: Called with each line of metrics.
      stop: Set it from anywhere, even a signal handler, to end training after the current turn.
      triggers: Called after each call of the learner, after `Learner.triggers`.
      warm_start: The policy that a new run begins from; None for the one that gin binds.
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
        self._replay: embedded_replay.EmbeddedReplay
        self._runner: runner.Runner
        self._acting: acting_side.ActingSide | device_actors.DeviceActors | None
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
        """Ends every part, in reverse order of building; safe to call twice."""
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
        """Environment steps so far, including earlier processes of a resumed run."""
        return self._learning.environment_step

    @property
    def train_step(self) -> int:
        """Train steps so far, without those of a call that is running."""
        return self._learning.train_step

    @property
    def seconds(self) -> float:
        """Seconds of training, including earlier processes of a resumed run."""
        return self._learning.progress.seconds

    @property
    def best(self) -> Row | None:
        """The score of the best policy so far, as columns of metrics; None before the first."""
        return None if self._evaluation is None else self._evaluation.rating.best_row

    @property
    def restored_from(self) -> str | None:
        """The checkpoint from which training resumed; None if it began from scratch."""
        return self._learning.trainer.learner.restored_from

    @property
    def replay_starts_empty(self) -> bool:
        """Whether the run was resumed without the experience that it was trained on."""
        is_replay = self._plan.group_steps is None and self._plan.stream.collects
        return bool(self.restored_from) and is_replay and self._replay.table_state().size == 0

    @property
    def stop_reason(self) -> str | None:
        """The reason for which training ended early; None if it did not."""
        return self._target_reached() or self._learning.stop_reason

    def describe(self) -> list[str]:
        """Returns lines that say what was built."""
        agent = self._algorithm.agent
        weights = sum(int(np.prod(v.shape)) for v in agent.collect_policy.variables())
        acting = self._acting
        inference = "" if acting is None else f", inference: {acting.actor.inference}"
        return [
            f"environment: {self._env_name()}, {self._plan.describe_lanes()}{inference}",
            f"agent: {self._algorithm.name}, {weights:,} policy weights, "
            f"{self._algorithm.n_step}-step returns",
            *self._further.describe(),
            *self._replay.server.describe().splitlines(),
        ]

    def run(self) -> str:
        """Trains until the steps are taken, the target is reached, or `stop` is set.

        Whatever ends training, a checkpoint is saved first. If the disk is full, the `unsaved`
        ledger keeps it for the caller to settle.

        Returns:
          `COMPLETED`, `TARGET_REACHED`, `STOPPED` (by a trigger) or `INTERRUPTED`.

        Raises:
          errors.EvaluationError: If the last evaluation is not finite.
        """
        self._learning.start()
        self._further.start()
        try:
            self._train()
        except errors.TriggerError:
            raise  # The learner has saved already.
        except BaseException:
            self._learning.trainer.save_after_failure()
            self._further.save_after_failure()
            raise
        # Before saving: a resumed run continues from the seconds of the last line of metrics.
        self._learning.progress.stop()
        if self._league is not None and not self._stop.is_set():
            self._league.keeper.join_at_the_end(self._learning.trainer.learner.save_checkpoint)
        self._save()
        if self._evaluation is not None and not self._ended():
            self._evaluation.finish()
        self._learning.write_row()
        if self._target_reached():
            return TARGET_REACHED
        if self._stop.is_set() and not self._steps_are_taken():
            return INTERRUPTED
        if self._evaluation is not None:
            self._evaluation.rating.require_finite()
        return COMPLETED if self._learning.stop_reason is None else STOPPED

    def export_policies(self) -> None:
        """Writes SavedModels of the policy, collect policy and greedy policy as they are now."""
        policy_export.export_policies(
            str(self._run.policies), self._algorithm.agent, self._train_step
        )
        self._further.export()

    def _train(self) -> None:
        self._runner.run(self._learning, self._ended)
        if self._acting is not None and self._steps_are_taken():
            self._learning.pacing.require_training(*self._learning.counters())
            self._further.require_training()

    def _build(self, seed: int) -> None:
        experiment, run = self._experiment, self._run
        if experiment.staleness.max_version_lag is not None:
            # Not an error: the same file may also be meant for separate jobs.
            logging.warning(
                "Staleness.max_version_lag and when_lagging are for separate jobs and have no "
                "effect in one process, where collecting is at most two turns behind the learner."
            )
        if experiment.deterministic:
            # For the whole process: TensorFlow cannot undo it.
            tf.config.experimental.enable_op_determinism()
        device_actors.divide_cpu(experiment.devices)
        self._epoch = epoch_lib.Epoch.begin(run)
        rating_seed, seed = seed, seeds.of_life(seed, self._epoch.number)
        tf.keras.utils.set_random_seed(seed)
        self._train_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_step")
        self._environment_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        parts.publish(
            run_dir=str(run), train_step=self._train_step, environment_step=self._environment_step
        )
        with tf.device(experiment.devices.learner):
            self._build_algorithm(seed)
        self._warm_start.apply(self._algorithm.agent, run)
        parts.publish(agent=self._algorithm.agent)
        self._replay = embedded_replay.EmbeddedReplay(self._plan, run, self._further.tables())
        self._closing.callback(self._replay.close)
        self._closing.callback(self._further.close)
        self._further.connect(self._replay.server, self._replay.client)
        self._league: league_side.OneProcessLeague | None = league_side.in_one_process(
            experiment,
            self._env,
            run,
            self._algorithm.agent.policy,
            train_step=self._train_step,
            environment_step=self._environment_step,
            epoch=self._epoch,
            seed=seed,
        )
        self._runner = runner.choose(
            experiment,
            (self._algorithm, self._train_step),
            self._env,
            self._make_acting_side,
            environment_step=self._environment_step,
            further=self._further,
            version=lambda: self.train_step,
            seed=seed,
            closing=self._closing,
        )
        self._acting = self._runner.acting
        with tf.device(experiment.devices.learner):
            self._build_learning()
        self._evaluation: run_evaluation.RunEvaluation | None = None
        if experiment.can_evaluate:
            self._evaluation = run_evaluation.RunEvaluation(
                experiment,
                self._plan,
                self._algorithm,
                self._env,
                run,
                self._learning,
                seed=rating_seed,
                life=self._epoch.number,
                train_step=self._train_step,
                environment_step=self._environment_step,
                stop=self._stop,
                furnish=self._further.furnish,
            )
            self._closing.callback(self._evaluation.close)

    def _build_algorithm(self, seed: int) -> None:
        experiment, counters = self._experiment, (self._train_step, self._environment_step)
        self._env = None
        if experiment.is_offline:
            self._algorithm = experiment.make_offline_algorithm(*counters)
            num_lanes = 1
        else:
            self._env = experiment.make_acting_environment(seed)
            self._closing.callback(self._env.close)
            self._algorithm = experiment.make_algorithm(self._env, *counters)
            num_lanes = ring.num_lanes(self._env)
        plan = experiment.plan(
            self._algorithm,
            num_lanes,
            self._run.run_id(),
            lanes_apart=lanes_lib.are_apart(self._env),
        )
        self._plan = local.within_process(plan, experiment)
        self._further = further_policy.FurtherPolicies(
            experiment,
            self._env,
            self._run,
            seed=seed,
            turn_ticks=self._plan.steps_per_turn // num_lanes,
        )

    def _make_acting_side(
        self,
        algorithm: algorithm_lib.Algorithm,
        env: Any,
        version: tf.Variable,
        seed: int,
        policy_version: Callable[[], int] | None = None,
    ) -> acting_side.ActingSide:
        return acting_side.ActingSide(
            self._experiment,
            self._plan,
            algorithm,
            env,
            self._replay.client,
            train_step=version,
            environment_step=self._environment_step,
            seed=seed,
            recording_dir=self._run.experience,
            summary_dir=str(self._run.tensorboard),
            policy_version=policy_version,
            policy_epoch=lambda: self._epoch.number,
            before_turn=(lambda: None) if self._league is None else self._league.line_up,
        )

    def _build_learning(self) -> None:
        """Builds the learning side; its checkpoint may restore statistics of the acting side."""
        acting = self._acting
        self._learning = learning_side.LearningSide(
            self._experiment,
            self._plan,
            self._algorithm,
            self._run,
            self._replay.server.address,
            train_step=self._train_step,
            environment_step=self._environment_step,
            statistics=(
                metrics.EpisodeStatistics(self._experiment.reporting.window)
                if acting is None
                else acting.statistics
            ),
            steps_taken=lambda: 0 if acting is None else acting.steps_taken,
            table=self._replay.table_state,
            on_row=self._on_row,
            why_no_sample=self._why_no_sample,
            actor_shares=dict if acting is None else acting.time_shares,
            while_saving=self._while_saving,
            checkpoint_items={
                **trigger_runner.states(self._triggers),
                **({} if self._league is None else {"league": self._league.keeper}),
            },
        )
        self._closing.callback(self._learning.close)
        if self._league is not None:
            self._league.start(self._learning.trainer.learner)
            self._closing.callback(self._league.keeper.draw)
        for trigger in self._triggers:
            self._learning.trainer.learner.add_trigger(trigger)
        self._learning.pacing = self._runner.make_pacing(
            self._plan, self._learning, self._replay.table_state
        )
        if self._algorithm.share_lanes is not None:
            # The checkpoint may come from a process with other lanes.
            self._algorithm.share_lanes(0, self._plan.num_lanes)
        self._runner.learner_restored()

    @contextlib.contextmanager
    def _while_saving(self) -> Iterator[None]:
        self._epoch.require_latest()
        yield

    def _steps_are_taken(self) -> bool:
        if self._experiment.is_offline:
            return self.train_step >= self._experiment.train_steps
        return self.environment_step >= self._experiment.environment_steps

    def _target_reached(self) -> str | None:
        return None if self._evaluation is None else self._evaluation.rating.target_reached

    def _ended(self) -> bool:
        return self._stop.is_set() or self._learning.stop_reason is not None

    def _save(self) -> None:
        self._learning.save()
        self._further.save()
        if self._acting is not None:
            self._acting.save_recording()
        if self._experiment.checkpoints.save_replay:
            self._replay.save()

    def _why_no_sample(self) -> str:
        return (
            f"the learner has waited {self._experiment.sample_timeout_seconds:g} s for a sample: "
            f"{self._replay.table_state().describe()}"
        )

    def _env_name(self) -> str:
        if self._env is None:
            return "recorded experience"
        return str(getattr(self._env, "name", type(self._env).__name__))

"""The learning side of an experiment: the trainer, its pacing, progress and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import parts, run_directory
from actor_learner import plan as plan_lib
from actor_learner.acting import metrics
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.replay.reading import version_limit
from actor_learner.replay.server import state
from actor_learner.runs import pacing as pacing_lib
from actor_learner.runs import trainer
from actor_learner.runs.progress import progress_rows, progress_state
from actor_learner.support import counters, replicas

Row = progress_rows.Row


class LearningSide:
    """Trains on what acting sides have written, in any process, and reports progress.

    ```python
    while not done:
        learning.train(learning.updates_due())
        learning.write_row_if_due()
    ```

    Build it once the replay server runs: building restores the run's checkpoint. Set `pacing`
    before asking for updates: it counts from the restored counters.

    Args:
      experiment: The experiment to train.
      plan: The plan of the experiment, or of this learner's part of it.
      algorithm: Its agent is trained, in place.
      run: Where checkpoints, summaries and policies go.
      server_address: `host:port` of the replay server.
      train_step: Counts train steps.
      environment_step: Counts environment steps; saved with the agent.
      statistics: Statistics of the episodes that have ended.
      steps_taken: Returns the environment steps since this process began.
      table: Returns the state of the table with the experience.
      on_row: Takes lines of metrics.
      why_no_sample: Says why no sample came in time.
      limit: Limit of the age of experience, for streams that use every step once; None for none.
      version_lag_seconds: As in `ProgressRows`.
      actor_shares: Returns how actors spend their time, on average: see `TurnTimes.shares`.
      while_saving: Makes a context to save in; it may refuse by raising.
      checkpoint_items: Further trackables to be saved with the agent, by name.
      group: As in `Learner`.
      more_columns: Returns further columns of the lines of metrics.

    Attributes:
      trainer: Takes the train steps.
      progress: The run's clock, and its count of skipped train steps.
      pacing: Says how many train steps are due, and how far collecting may go.
    """

    pacing: pacing_lib.Pacing

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        run: run_directory.RunDirectory,
        server_address: str,
        *,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        statistics: metrics.EpisodeStatistics,
        steps_taken: Callable[[], int],
        table: Callable[[], state.TableState],
        on_row: Callable[[Row], None],
        why_no_sample: Callable[[], str],
        limit: version_limit.VersionLimit | None = None,
        version_lag_seconds: Callable[[], float | None] = lambda: None,
        actor_shares: Callable[[], Mapping[str, float]] = dict,
        while_saving: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        checkpoint_items: Mapping[str, Any] | None = None,
        group: replicas.Group | None = None,
        more_columns: Callable[[], Row] = dict,
    ) -> None:
        self._train_step = train_step
        self._steps_taken = steps_taken
        self._limit = limit
        self._actor_shares = actor_shares
        self._on_row = on_row
        self._own_columns = more_columns
        self.progress = progress_state.ProgressState(statistics)
        self.trainer = trainer.Trainer(
            experiment,
            plan,
            algorithm,
            server_address,
            str(run),
            train_step=train_step,
            checkpoint_items={
                "environment_step": environment_step,
                "progress": self.progress,
                **(checkpoint_items or {}),
            },
            why_no_sample=why_no_sample,
            limit=limit,
            while_saving=while_saving,
            group=group,
        )
        self.progress.count_skipped(lambda: self.trainer.learner.skipped_steps)
        # No step was taken yet: the value was restored from a checkpoint, or is 0.
        self._first_environment_step = int(counters.read(environment_step))
        self._rows = progress_rows.ProgressRows(
            progress=self.progress,
            statistics=statistics,
            counters=self.counters,
            table=table,
            transitions=lambda items: plan.stream.num_transitions(plan.experience, items),
            epsilon=algorithm.epsilon,
            version_lag=lambda: self.trainer.version_lag,
            version_lag_seconds=version_lag_seconds,
            on_row=self._take_row,
            more=self._more_columns,
            interval_seconds=experiment.reporting.seconds,
            # A run that repeats must not write more rows on a slower day.
            interval_steps=(
                max(1, experiment.environment_steps // 100)
                if experiment.deterministic and experiment.reporting.steps is None
                else experiment.reporting.steps
            ),
        )

    @property
    def environment_step(self) -> int:
        """Environment steps so far, including those before a resumption."""
        return self._first_environment_step + self._steps_taken()

    @property
    def train_step(self) -> int:
        """Train steps so far, without those of a call that is running."""
        return self.trainer.learner.last_step

    @property
    def train_step_now(self) -> int:
        """Train steps so far, including those of a call that is running in another thread."""
        return int(counters.read(self._train_step))

    @property
    def stop_reason(self) -> str | None:
        """The reason for which a trigger asked to end training; None if none has."""
        return self.trainer.learner.stop_reason

    def counters(self) -> tuple[int, int]:
        """Returns environment steps and train steps."""
        return self.environment_step, self.train_step

    def start(self) -> None:
        """Begins to count time, so that building does not count."""
        self.progress.start()
        self._rows.start()

    def updates_due(self) -> int:
        """Returns the train steps to take now; 0 or less means to collect first."""
        return self.pacing.updates_due(*self.counters())

    def train(self, updates: int) -> None:
        """Takes `updates` train steps, `pacing.max_updates` at most; raises as `Trainer.run`."""
        self.trainer.run(min(updates, self.pacing.max_updates))

    def write_row(self, **more: Any) -> None:
        """Writes a line of metrics, with further columns."""
        self._rows.write(self.trainer.loss, **more)

    def write_row_if_due(self) -> None:
        """Writes a line of metrics if the last one is old enough."""
        self._rows.write_if_due(self.trainer.loss)

    def save(self) -> None:
        """Saves a checkpoint."""
        self.trainer.learner.save_checkpoint()

    def close(self) -> None:
        """Ends the learner and its triggers; safe to call twice."""
        self.trainer.close()

    def _take_row(self, row: Row) -> None:
        parts.publish(latest_row=row)
        self._on_row(row)

    def _more_columns(self) -> Row:
        columns = {} if self._limit is None else {"dropped_items": self._limit.dropped}
        if self.trainer.learner.skips_steps:
            columns["skipped_steps"] = self.progress.skipped_steps
        for who, shares in (
            ("actor", self._actor_shares()),
            ("learner", self.trainer.timing.shares()),
        ):
            columns |= {f"{who}_{kind}": share for kind, share in shares.items()}
        return {**columns, **self._own_columns(), **self.trainer.gauges()}

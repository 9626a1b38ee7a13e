"""Writes a run's metrics to files, TensorBoard and the terminal."""

from __future__ import annotations

import pathlib
from typing import Any, TextIO

from actor_learner import run_directory
from actor_learner.reporting import console, curve, logger, metric_files, progress, summary
from actor_learner.support import unsaved


class Report:
    """Shows and writes the rows of a training, draws its curve, and makes the closing lines."""

    def __init__(
        self,
        run_dir: run_directory.RunDirectory,
        log_path: pathlib.Path,
        next_steps: summary.NextSteps,
    ) -> None:
        self._run_dir = run_dir
        self._log_path = log_path
        self._next_steps = next_steps
        self._loggers: logger.Loggers | None = None
        self._view: console.Console | None = None

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def open(self, training: Any, terminal: TextIO) -> None:
        """Begins to show and write; drops rows after the restored checkpoint."""
        run_dir = self._run_dir
        self._training = training
        self._loggers = metric_files.open_metric_files(
            run_dir, training.environment_step, training.experiment.reporting.loggers
        )
        self._view = console.make_view(
            terminal,
            training.total_environment_steps,
            run_dir.path.name,
            best=training.best,
        )
        self._view.start()
        damaged = run_dir.tensorboard / "checkpoints" / "corrupt"
        if damaged.is_dir():
            self._view.message(f"damaged checkpoints were set aside in {damaged}")
        if training.restored_from:
            self._view.message(
                f"resumed at environment step {training.environment_step:,} from "
                f"{training.restored_from}"
            )
        if training.replay_starts_empty:
            self._view.message(
                "the replay starts empty: training continues once it is filled again. "
                "Checkpoints.save_replay = True keeps its contents for the next time"
            )

    def write(self, row: dict[str, Any]) -> None:
        """Writes one line of metrics."""
        self._loggers.write(row)
        self._view.write({**row, progress.NOT_SAVED: unsaved.ledger().summary()})

    def say(self, text: str) -> None:
        """Tells the user something, between two lines of metrics."""
        if self._view is not None:
            self._view.message(text)

    def close(self) -> None:
        """Ends the view, closes the files, draws the curve; safe to call twice."""
        if self._view is None:
            return
        view, loggers = self._view, self._loggers
        self._view = self._loggers = None
        view.close()
        loggers.close()
        curve.draw_run(self._run_dir, self._training.experiment.evaluation.target_return)

    def closing_lines(self, status: str, reason: str | None) -> list[str]:
        """Returns the lines to print at the end."""
        training = self._training
        lines = summary.closing_lines(
            run_dir=str(self._run_dir),
            best=training.best,
            environment_steps=training.environment_step,
            train_steps=training.train_step,
            seconds=training.seconds,
            status=status,
            reason=reason,
            log_path=str(self._log_path),
            has_policies=(self._run_dir.policies / "greedy_policy").is_dir(),
            next_steps=self._next_steps,
        )
        # Below the headline, which says "Finished".
        return [*lines[:1], *unsaved.ledger().closing_lines(), *lines[1:]]

"""The files that a run's lines of metrics go to."""

from __future__ import annotations

from actor_learner import run_directory
from actor_learner.reporting import csv_file, jsonl, logger, tensorboard


def open_metric_files(run_dir: run_directory.RunDirectory, environment_step: int) -> logger.Loggers:
    """Opens them for appending; rows past `environment_step`, where the run goes on, are cut."""
    jsonl.truncate_after(run_dir.metrics_jsonl, environment_step)
    csv_file.truncate_after(run_dir.metrics_csv, environment_step)
    return logger.Loggers(
        [
            jsonl.JsonlLogger(run_dir.metrics_jsonl),
            csv_file.CsvLogger(run_dir.metrics_csv),
            tensorboard.TensorBoardLogger(str(run_dir.tensorboard)),
        ]
    )

"""The files that a run's lines of metrics go to."""

from __future__ import annotations

import os
from typing import Callable

from actor_learner import run_directory
from actor_learner.reporting import csv_file, jsonl, kept_rows, logger, tensorboard


def open_metric_files(run_dir: run_directory.RunDirectory, environment_step: int) -> logger.Loggers:
    """Opens them for appending; rows past `environment_step`, where the run goes on, are cut.

    While the disk is full rows are kept in memory.
    """
    table, lines = run_dir.metrics_csv, run_dir.metrics_jsonl
    return logger.Loggers(
        [
            _continued(lines, environment_step, jsonl.truncate_after, jsonl.JsonlLogger),
            _continued(table, environment_step, csv_file.truncate_after, csv_file.CsvLogger),
            kept_rows.KeptRows(
                "TensorBoard's charts",
                run_dir.tensorboard,
                lambda: tensorboard.TensorBoardLogger(str(run_dir.tensorboard)),
            ),
        ]
    )


def _continued(
    path: os.PathLike,
    environment_step: int,
    truncate: Callable[[os.PathLike, int], int],
    make: Callable[[os.PathLike], logger.Logger],
) -> kept_rows.KeptRows:
    is_cut = False

    def cut_and_open() -> logger.Logger:
        nonlocal is_cut
        if not is_cut:  # Once: later rows of the file are this process's own.
            truncate(path, environment_step)
            is_cut = True
        return make(path)

    return kept_rows.KeptRows(os.path.basename(path), path, cut_and_open)

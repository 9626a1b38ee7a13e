"""The files that a run's lines of metrics go to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Callable

from actor_learner import run_directory
from actor_learner.reporting import csv_file, jsonl, kept_rows, logger, tensorboard


def open_metric_files(
    run_dir: run_directory.RunDirectory,
    environment_step: int,
    more: Sequence[logger.Logger] = (),
) -> logger.Loggers:
    """Opens them for appending; rows past `environment_step`, where the run goes on, are cut.

    While the disk is full rows are kept in memory.

    Args:
      run_dir: The run's directory.
      environment_step: Where the run goes on.
      more: Loggers that the user has bound, which are opened too.
    """
    _open_all(more, run_dir, environment_step)
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
            *more,
        ]
    )


def _open_all(
    loggers: Sequence[logger.Logger], run_dir: run_directory.RunDirectory, environment_step: int
) -> None:
    """Opens loggers; if one cannot be opened, closes those before it."""
    with contextlib.ExitStack() as opened:
        for own in loggers:
            if hasattr(own, "open"):
                own.open(_context(run_dir, environment_step))
            opened.callback(own.close)
        opened.pop_all()


def _context(run_dir: run_directory.RunDirectory, environment_step: int) -> logger.RunContext:
    settings = {}
    if run_dir.operative_config.exists():
        text = run_dir.operative_config.read_text(encoding="utf-8")
        # A long value goes on in the next line.
        for line in text.replace("\\\n", " ").splitlines():
            name, equals, value = line.partition(" = ")
            if equals and not line.startswith("#"):
                settings[name.strip()] = " ".join(value.split())
    return logger.RunContext(
        run_dir=run_dir.path,
        run_id=run_dir.run_id(),
        environment_steps=environment_step,
        description=run_dir.read_description() if run_dir.description.exists() else {},
        settings=settings,
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

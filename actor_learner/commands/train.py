"""`actor-learner train`: one run in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import secrets
import shutil
import sys
import tempfile
import traceback
from typing import Any

from actor_learner import config, errors, run_directory
from actor_learner.commands import signals
from actor_learner.reporting import (
    console,
    csv_file,
    curve,
    jsonl,
    logger,
    process_output,
    summary,
    tensorboard,
)

OK, FAILED = 0, 1
JOB = "train"


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The flags of the command, as the user gave them."""

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...]
    run_dir: str | None = None
    seed: int | None = None
    resume: str | None = None
    dry_run: bool = False


def run(options: TrainOptions) -> int:
    """Trains, and returns the exit code.

    Raises:
      errors.ConfigError: For mistakes found before there is a run directory.
    """
    source = _source(options)
    config.check(source)
    if options.dry_run:
        return _dry_run(source, options)
    if options.resume:
        run_dir = run_directory.RunDirectory.existing(options.resume)
        seed = run_dir.read_description()["seed"] if options.seed is None else options.seed
    else:
        name = pathlib.Path(source.gin_files[-1]).stem
        run_dir = run_directory.RunDirectory.create(options.run_dir, name)
        seed = secrets.randbelow(2**31) if options.seed is None else options.seed
        run_dir.describe(seed=seed, argv=sys.argv, name=name)
    with (
        process_output.capture_native_output(run_dir.log(JOB), capture_stdout=True) as output,
        signals.stop_on_signal(output.terminal) as stop,
    ):
        _say(output, f"run directory: {run_dir} (seed {seed})")
        return _run_captured(source, run_dir, seed, output, stop)


def _source(options: TrainOptions) -> config.ConfigSource:
    if options.resume:
        if options.run_dir or options.gin_files:
            raise errors.ConfigError(
                "--resume goes on with a run as it was configured: leave out --run_dir and "
                "--gin_file; single values can be changed with --gin_param"
            )
        earlier = run_directory.RunDirectory.existing(options.resume)
        return config.ConfigSource((str(earlier.config),), options.bindings)
    if not options.gin_files:
        raise errors.ConfigError(
            "train needs --gin_file=FILE. Ready-made: " + ", ".join(config.leaves())
        )
    return config.ConfigSource(options.gin_files, options.bindings)


def _dry_run(source: config.ConfigSource, options: TrainOptions) -> int:
    directory = tempfile.mkdtemp(prefix="actor-learner-dry-run-")
    try:
        run_dir = run_directory.RunDirectory(directory)
        with (
            process_output.capture_native_output(run_dir.log(JOB), capture_stdout=True) as output,
            _built(source, run_dir, options.seed or 0, output) as training,
        ):
            for line in training.describe():
                _say(output, line)
            _say(output, "dry run: everything was built, nothing was trained")
        return OK
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run_captured(
    source: config.ConfigSource,
    run_dir: run_directory.RunDirectory,
    seed: int,
    output: process_output.CapturedOutput,
    stop: signals.StopRequest,
) -> int:
    """The part of the run whose native output goes to the log."""
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(_Report(run_dir))
        try:
            training = stack.enter_context(
                _built(source, run_dir, seed, output, on_row=report.write, stop=stop.event)
            )
            report.open(training, output.terminal)
            status = training.run()
            if status != "interrupted":
                training.export_policies()
            report.close()
        except errors.ConfigError:
            raise
        except errors.ActorLearnerError as error:
            report.close()
            return report.fail(output, error, str(error))
        except Exception as error:
            report.close()
            output.log.write(traceback.format_exc())
            return report.fail(output, error, traceback.format_exc())
        for line in report.closing_lines(status, training.stop_reason):
            _say(output, line)
        return stop.exit_code if status == "interrupted" else OK


@contextlib.contextmanager
def _built(
    source: config.ConfigSource,
    run_dir: run_directory.RunDirectory,
    seed: int,
    output: process_output.CapturedOutput,
    **more: Any,
) -> Any:
    """Imports TensorFlow, loads the configuration, builds every part, checks what was used."""
    _say(output, "starting TensorFlow and Reverb ...")
    with output.quiet_imports():
        from actor_learner import experiment
        from actor_learner.jobs import one_process
    with output.quiet_imports():
        config.load(source)
        training = one_process.OneProcess(experiment.Experiment(), run_dir, seed=seed, **more)
    with training:
        config.check_all_used()
        run_dir.config.write_text(config.config_text())
        run_dir.operative_config.write_text(config.operative_config())
        yield training


class _Report:
    """The run's metrics, on their way to files, TensorBoard and the terminal."""

    def __init__(self, run_dir: run_directory.RunDirectory) -> None:
        self._run_dir = run_dir
        self._loggers: logger.Loggers | None = None
        self._view: console.Console | None = None
        self._training: Any = None
        self._last_row: dict[str, Any] = {}

    def __enter__(self) -> _Report:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def open(self, training: Any, terminal: Any) -> None:
        """Begins to show and write; rows past the restored checkpoint are dropped."""
        self._training = training
        self._experiment = training.experiment
        for rows_of in (jsonl, csv_file):
            path = self._run_dir.metrics_jsonl if rows_of is jsonl else self._run_dir.metrics_csv
            rows_of.truncate_after(path, training.environment_step)
        self._loggers = logger.Loggers(
            [
                jsonl.JsonlLogger(self._run_dir.metrics_jsonl),
                csv_file.CsvLogger(self._run_dir.metrics_csv),
                tensorboard.TensorBoardLogger(str(self._run_dir.tensorboard)),
            ]
        )
        self._view = console.make_view(
            terminal, self._experiment.environment_steps, self._title(), best=training.best
        )
        self._view.start()
        if training.restored_from:
            self._view.message(
                f"resumed at environment step {training.environment_step:,} from "
                f"{training.restored_from}"
            )

    def write(self, row: dict[str, Any]) -> None:
        self._last_row = row
        self._loggers.write(row)
        self._view.write(row)

    def close(self) -> None:
        """Ends the view, closes the files, draws the curve."""
        if self._view is None:
            return
        view, loggers = self._view, self._loggers
        self._view = self._loggers = None
        view.close()
        loggers.close()
        curve.draw_curve(
            jsonl.read_rows(self._run_dir.metrics_jsonl),
            self._run_dir.curve,
            self._title(),
            self._experiment.target_return,
        )

    def closing_lines(self, status: str, reason: str | None) -> list[str]:
        training = self._training
        return summary.closing_lines(
            run_dir=str(self._run_dir),
            best=training.best if training else None,
            environment_steps=training.environment_step if training else 0,
            train_steps=training.train_step if training else 0,
            seconds=training.seconds if training else 0.0,
            status=status,
            reason=reason,
            log_path=str(self._run_dir.log(JOB)),
        )

    def fail(self, output: process_output.CapturedOutput, error: Exception, details: str) -> int:
        """Says what went wrong and where to look; returns the exit code."""
        _say(output, details)
        for line in self.closing_lines("failed", f"{type(error).__name__}: {error}"):
            _say(output, line)
        return FAILED

    def _title(self) -> str:
        return self._run_dir.path.name


def _say(output: process_output.CapturedOutput, text: str) -> None:
    print(text, file=output.terminal, flush=True)

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

from actor_learner import config, import_path, run_directory
from actor_learner.commands import report as report_lib
from actor_learner.reporting import log_limit, process_output
from actor_learner.runs import warm_start
from actor_learner.support import errors, signals, unsaved

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
      errors.ActorLearnerError: For what goes wrong before training begins.
    """
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise errors.ConfigError(f"--seed must lie in 0 to 2**32 - 1, got {options.seed}")
    source = _source(options)
    if options.resume:
        earlier = run_directory.RunDirectory.existing(options.resume)
        import_path.extend(earlier.read_description().get("import_path", []))
    import_path.extend(import_path.of(source))
    config.check(source)
    if options.dry_run:
        return _dry_run(source, options)
    if options.resume:
        run_dir = earlier
        seed = run_dir.read_description()["seed"] if options.seed is None else options.seed
    else:
        name = pathlib.Path(source.gin_files[-1]).stem
        run_dir = run_directory.RunDirectory.create(options.run_dir, name)
        seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    with run_dir.locked():
        if options.resume:
            run_dir.describe_resumption(sys.argv)
        else:
            run_dir.describe(
                seed=seed, argv=sys.argv, name=name, import_path=import_path.of(source)
            )
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
        warm_start.refuse_to_resume(options.bindings)
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
        ledger = stack.enter_context(unsaved.scope())
        ledger.say = lambda line: _say(output, line)
        report = stack.enter_context(report_lib.Report(run_dir, output.log_path))
        try:
            training = stack.enter_context(
                _built(source, run_dir, seed, output, on_row=report.write, stop=stop.event)
            )
        except Exception:
            output.log.write(traceback.format_exc())
            raise
        stack.enter_context(log_limit.limited(output.log_path))
        report.open(training, output.terminal)
        ledger.say = report.say
        try:
            status = training.run()
            if status != "interrupted":
                training.export_policies()
        except Exception as error:
            report.close()
            _settle(ledger, output, stop)
            output.log.write(traceback.format_exc())
            expected = isinstance(error, errors.ActorLearnerError)
            diverged = isinstance(error, errors.NotFiniteError)
            if not expected or (error.__cause__ is not None and not diverged):
                # What a trigger, an environment or a bug of ours raised: the place matters.
                _say(output, traceback.format_exc())
            for line in report.closing_lines("failed", f"{type(error).__name__}: {error}"):
                _say(output, line)
            return FAILED
        report.close()
        is_saved = _settle(ledger, output, stop)
        for line in report.closing_lines(status, training.stop_reason):
            _say(output, line)
        if not is_saved:
            return FAILED
        return stop.exit_code if status == "interrupted" else OK


def _settle(
    ledger: unsaved.Ledger, output: process_output.CapturedOutput, stop: signals.StopRequest
) -> bool:
    """Waits a while for room if the disk is full; Ctrl-C ends it. Whether everything is saved."""
    ledger.say = lambda line: _say(output, line)
    interrupted = stop.event.is_set()  # Then the next signal ends the process.
    return ledger.settle(lambda: stop.event.is_set() and not interrupted)


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
        from actor_learner import experiment, ray_settings
        from actor_learner.jobs import extra_jobs
        from actor_learner.runs import one_process, stored_versions
    with output.quiet_imports():
        config.load(source)
        own = extra_jobs.Jobs().extra
        ray_settings.Ray()  # Of runs on a cluster; in a file for both it is no mistake.
        log_limit.log_limit()  # Used once all is built; here so that it counts as used.
        stored_versions.stored_versions()  # Of separate jobs; in a file for both it is no mistake.
        if own:
            _say(output, f"note: {', '.join(own)} (Jobs.extra) runs with `actor-learner up` only")
        training = one_process.OneProcess(experiment.Experiment(), run_dir, seed=seed, **more)
    with training:
        config.check_all_used()
        run_dir.write_text(run_dir.config, config.config_text())
        run_dir.write_text(run_dir.operative_config, config.operative_config())
        yield training


def _say(output: process_output.CapturedOutput, text: str) -> None:
    print(text, file=output.terminal, flush=True)

"""`actor-learner train`: one run in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import secrets
import shutil
import sys
import tempfile
import traceback
from typing import Any

from actor_learner import config, import_path, run_directory
from actor_learner.reporting import log_limit, process_output, summary
from actor_learner.runs import session, warm_start
from actor_learner.support import blame, errors, programs, signals

OK, FAILED = 0, 1


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
    try:
        with run_dir.locked(), run_dir.discarded_if_refused():
            if options.resume:
                run_dir.describe_resumption(sys.argv)
            else:
                run_dir.describe(
                    seed=seed, argv=sys.argv, name=name, import_path=import_path.of(source)
                )
            with (
                process_output.capture_native_output(
                    run_dir.log(session.JOB), capture_stdout=True
                ) as output,
                signals.stop_on_signal(output.terminal) as stop,
            ):
                session.say(output, f"run directory: {run_dir} (seed {seed})")
                return _train(source, run_dir, seed, output, stop)
    except Exception as error:
        where = None if isinstance(error, errors.ActorLearnerError) else blame.place(error)
        if where is None:
            raise
        # What the user's own agent or environment raised while it was built.
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"Raised in:    {where}\nLog:          {run_dir.log(session.JOB)}", file=sys.stderr)
        return FAILED


def _source(options: TrainOptions) -> config.ConfigSource:
    if options.resume:
        if options.run_dir or options.gin_files:
            raise errors.ConfigError(
                "--resume resumes a run as it was configured: leave out --run_dir and "
                "--gin_file; single values can be changed with --gin_param"
            )
        warm_start.refuse_to_resume(options.bindings)
        earlier = run_directory.RunDirectory.existing(options.resume)
        earlier.require_config()
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
            process_output.capture_native_output(
                run_dir.log(session.JOB), capture_stdout=True
            ) as output,
            _built(source, run_dir, options.seed or 0, output) as training,
        ):
            for line in training.describe():
                session.say(output, line)
            session.say(output, "dry run: everything was built, nothing was trained")
        return OK
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _train(
    source: config.ConfigSource,
    run_dir: run_directory.RunDirectory,
    seed: int,
    output: process_output.CapturedOutput,
    stop: signals.StopRequest,
) -> int:
    """The part of the run whose native output goes to the log."""
    outcome = session.run(
        functools.partial(_built, source, run_dir, seed, output),
        run_dir,
        output,
        stop,
        summary.NextSteps.commands(run_dir.path, programs.directory()),
    )
    if outcome.error is not None:
        expected = isinstance(outcome.error, errors.ActorLearnerError)
        if not expected and blame.place(outcome.error) is None:
            # Nobody's code but ours: whoever reports it needs the place.
            error = outcome.error
            shown = traceback.format_exception(type(error), error, error.__traceback__)
            session.say(output, "".join(shown))
        return FAILED
    if not outcome.is_saved:
        return FAILED
    return stop.exit_code if outcome.status == session.INTERRUPTED else OK


@contextlib.contextmanager
def _built(
    source: config.ConfigSource,
    run_dir: run_directory.RunDirectory,
    seed: int,
    output: process_output.CapturedOutput,
    **more: Any,
) -> Any:
    """Imports TensorFlow, loads the configuration, builds every part, checks what was used."""
    session.say(output, session.STARTING)
    with output.quiet_imports():
        from actor_learner import experiment, jobs_settings, ray_settings
        from actor_learner.runs import one_process, stored_versions
    with output.quiet_imports():
        config.load(source)
        own = jobs_settings.Jobs().extra
        ray_settings.Ray()  # Of runs on a cluster; in a file for both it is no mistake.
        log_limit.log_limit()  # Used once all is built; here so that it counts as used.
        stored_versions.stored_versions()  # Of separate jobs; in a file for both it is no mistake.
        if own:
            session.say(
                output, f"note: {', '.join(own)} (Jobs.extra) runs with `actor-learner up` only"
            )
        training = one_process.OneProcess(experiment.Experiment(), run_dir, seed=seed, **more)
    with training:
        config.check_all_used()
        for line in config.drop_orphaned():
            session.say(output, f"note: {line}")
        run_dir.write_text(run_dir.config, config.config_text())
        run_dir.write_text(run_dir.operative_config, config.operative_config())
        yield training

"""Runs one job: `python -m actor_learner.jobs.main actor --gin_file=… --run=…`.

Handles flags, configuration, registry, life cycle and exit code. A program of your own ends with:

```python
if __name__ == "__main__":
    sys.exit(main.run_job("watcher", lambda arguments: Watcher()))
```
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Callable, TextIO

from absl import logging

from actor_learner import config, import_path, jobs_settings
from actor_learner.configuring import flag_parser
from actor_learner.jobs import flags, kinds, life_cycle, states, unused_bindings
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import status as status_lib
from actor_learner.jobs import worker as worker_lib
from actor_learner.reporting import log_limit, patient_stream, process_output
from actor_learner.support import abandoned_calls, blame, errors, unsaved

OK, FAILED, BAD_CONFIGURATION = 0, 1, 2

USER_ERRORS = (errors.ConfigError, errors.MissingExtraError, errors.SpecMismatchError)
"""Errors that a restart does not cure: exit code 2, and no launcher restarts the job."""

FINAL_ERRORS = (errors.EvaluationError, errors.NotFiniteError)
"""Errors that a restart does not cure either, though the configuration is right."""

CUSTOM = "custom"
"""Stands for all of the user's own kinds; the name of one follows."""

_CUSTOM_FLAG = "--job"
_TELL_SECONDS = 10.0


def run(argv: Sequence[str] | None = None) -> int:
    """Runs the job whose kind is the first word, with the flags that follow; see `run_job`."""
    given = list(sys.argv[1:] if argv is None else argv)
    kind = given[0] if given else ""
    if kind == CUSTOM:
        return _run_custom(given[1:])
    if kind not in kinds.KINDS:
        known = ", ".join([*kinds.KINDS, CUSTOM])
        print(
            f"error: no kind of job given: the first word must be one of {known}", file=sys.stderr
        )
        return BAD_CONFIGURATION
    found = kinds.KINDS[kind]
    return run_job(
        kind,
        found.make,
        given[1:],
        add_flags=found.add_flags,
        check_flags=found.check_flags,
        name=found.name,
    )


def run_job(
    kind: str,
    make_worker: Callable[[argparse.Namespace], worker_lib.Worker],
    argv: Sequence[str] | None = None,
    *,
    add_flags: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    check_flags: Callable[[argparse.Namespace], None] = lambda arguments: None,
    name: Callable[[argparse.Namespace], str] | None = None,
    needs_config: bool = True,
) -> int:
    """Runs one job in this process, to its end.

    The configuration is checked first. It is loaded, which imports TensorFlow, once other jobs can
    see this one as configuring; then `make_worker` is called, which imports what the worker needs.

    Args:
      kind: replay, actor, learner, evaluator, or the name of a user's own job.
      make_worker: Builds the worker from the flags.
      argv: The flags; None for those of the process.
      add_flags: Adds flags of this kind of job.
      check_flags: Raises `errors.ConfigError` if they are wrong for this kind; called first.
      name: Returns the kind as which other jobs know it, given the flags; None for `kind`.
      needs_config: Whether the job needs a gin file.

    Returns:
      The exit code. 0: done. 1: failed. 2: the configuration is wrong, or does not fit the run.
      3: ended in order by a controller's `exit`. 5: failed, and would fail again. 6: done, but not
      saved because a disk is full; 7: the same, but ended before it was done. 130, 143: ended by
      SIGINT or SIGTERM.
    """
    parser = flag_parser.Parser(prog=f"actor-learner {kind}", description=f"Runs the job {kind}.")
    flags.add(parser)
    add_flags(parser)
    arguments = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    with patient_stream.standard_streams():
        try:
            check_flags(arguments)
            if name is not None:
                kind = name(arguments)
            code = _run(kind, make_worker, arguments, needs_config)
            abandoned_calls.end_despite_them(code)
            return code
        except USER_ERRORS as error:
            print(f"error: {error}", file=sys.stderr)
            return BAD_CONFIGURATION
        except FINAL_ERRORS as error:
            print(f"error: {error}", file=sys.stderr)
            return states.FAILED_FOR_GOOD
        except errors.ActorLearnerError as error:
            print(f"error: {error}", file=sys.stderr)
            return FAILED


def _run_custom(given: Sequence[str]) -> int:
    """Runs the user's own job named by the first word or `--job=NAME`; returns the exit code."""
    given = list(given)
    if given and not given[0].startswith("-"):
        given[0] = f"{_CUSTOM_FLAG}={given[0]}"
    parser = argparse.ArgumentParser(prog=f"actor-learner {CUSTOM}", add_help=False)
    parser.add_argument(_CUSTOM_FLAG)
    known, _ = parser.parse_known_args(given)
    if known.job in jobs_settings.OURS:  # It would replace the real one.
        parser.error(f"{known.job} is not a job of Jobs.extra: use `actor-learner {known.job}`")
    # Without a name, it only shows the help or says that the name is missing.
    return run_job(known.job or CUSTOM, _make_custom, given, add_flags=_add_custom_flag)


def _add_custom_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        _CUSTOM_FLAG, required=True, help="its name in Jobs.extra, or the first word"
    )


def _make_custom(arguments: argparse.Namespace) -> worker_lib.Worker:
    return make_custom(jobs_settings.Jobs(), arguments.job)


def make_custom(jobs: jobs_settings.Jobs, name: str) -> worker_lib.Worker:
    """Makes the worker of one of the user's jobs.

    Raises:
      errors.ConfigError: If there is no such job, or its callable makes something else.
    """
    if name not in jobs.extra:
        known = ", ".join(sorted(jobs.extra)) or "none"
        raise errors.ConfigError(f"Jobs.extra has no job '{name}'; it has {known}")
    made = jobs.extra[name]()
    if not isinstance(made, worker_lib.Worker):
        raise errors.ConfigError(
            f"Jobs.extra['{name}'] makes a {type(made).__name__}; it must make an instance of "
            "actor_learner.jobs.worker.Worker"
        )
    return made


def _run(
    kind: str,
    make_worker: Callable[[argparse.Namespace], worker_lib.Worker],
    arguments: argparse.Namespace,
    needs_config: bool,
) -> int:
    run_dir = flags.run_directory_of(arguments.run or os.environ.get(flags.RUN_VARIABLE))
    source = flags.config_source(arguments, run_dir if needs_config else None)
    if source is not None:
        if run_dir is not None and run_dir.description.exists():
            import_path.extend(run_dir.read_description().get("import_path", []))
        import_path.extend(import_path.of(source))
        config.check(source)
    elif needs_config:
        raise errors.ConfigError(
            f"{kind} needs --gin_file=FILE. Ready-made: " + ", ".join(config.leaves())
        )
    job = flags.make_job(kind, arguments, source)

    def make() -> worker_lib.Worker:
        if source is not None:
            config.load(source)
            from actor_learner.support import leaking_python, tensorflow_threads

            tensorflow_threads.tensorflow_threads()
            unsaved.ledger().final_wait_seconds = unsaved.full_disk()
            leaking_python.warn()
        log = None if run_dir is None else run_dir.log(job.kind, job.index)
        closing.enter_context(log_limit.limited(log))
        return make_worker(arguments)

    with (
        job.names,
        _output(job) as terminal,
        unsaved.scope() as ledger,
        contextlib.ExitStack() as closing,
    ):
        ledger.say = lambda line: print(line, file=terminal, flush=True)
        teller = _Teller(terminal)

        def on_status(status: status_lib.Status) -> None:
            if status.state == states.READY and source is not None:
                unused_bindings.report(job)
            teller.tell(status)

        life = life_cycle.LifeCycle(job, make, on_status=on_status)
        try:
            life.run()
        except errors.ActorLearnerError as error:
            if job.run_dir is not None and (
                life.state != states.ERROR or isinstance(error, USER_ERRORS)
            ):
                job.run_dir.discard()  # It was refused: it leaves no directory of its own.
            raise
        except Exception as error:
            if life.state != states.ERROR:
                raise  # It is in no log yet.
            where = blame.accused(error)
            if where is None and terminal.isatty():
                # Nobody's code but ours: whoever reports it needs the place.
                traceback.print_exc(file=terminal)
            print(f"error: {type(error).__name__}: {error}", file=terminal, flush=True)
            if where is not None:
                print(f"Raised in: {where}", file=terminal, flush=True)
            return FAILED
        for line in ledger.closing_lines():
            print(line, file=terminal, flush=True)
        return life.exit_code


class _Teller:
    """Prints every change of state, and the status every ten seconds, for a person or a log."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._state = ""
        self._told = 0.0

    def tell(self, status: status_lib.Status) -> None:
        now = time.monotonic()
        if status.state == self._state and now - self._told < _TELL_SECONDS:
            return
        self._state, self._told = status.state, now
        print(status.describe(), file=self._terminal, flush=True)


@contextlib.contextmanager
def _output(job: job_lib.Job) -> Iterator[TextIO]:
    """Yields the stream on which to tell the user what happens.

    The output of a job that was started by hand goes to its log in the run directory. Where its
    standard error is not a terminal but a file, or a container's output, Python's log goes there,
    too. Under a launcher the output of the process is the job's log already.
    """
    logging.set_verbosity(logging.INFO)
    logging.use_absl_handler()
    if job.run_dir is not None and not os.environ.get(job_lib.INCARNATION_VARIABLE):
        job.run_dir.make()
        log = job.run_dir.log(job.kind, job.index)
        on_terminal = sys.stderr is not None and sys.stderr.isatty()
        with process_output.capture_native_output(
            log, capture_stdout=True, echo_log=not on_terminal
        ) as output:
            print(f"{job}: log in {log}", file=output.terminal, flush=True)
            yield output.terminal
        return
    if not faulthandler.is_enabled():
        faulthandler.enable(2)
    yield sys.stderr


if __name__ == "__main__":
    sys.exit(run())

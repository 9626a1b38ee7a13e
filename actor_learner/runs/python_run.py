"""Trains from Python: the same run as that of the command, begun by a call."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Callable, TextIO

from actor_learner import config, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.reporting import process_output, summary
from actor_learner.runs import one_process, session, warm_start
from actor_learner.runs import result as result_lib
from actor_learner.support import errors, signals


def train(
    experiment: experiment_lib.Experiment,
    run_dir: str | os.PathLike | None = None,
    *,
    seed: int | None = None,
    resume: bool = False,
    warm_start_from: str | os.PathLike | None = None,
    triggers: Sequence[Callable[[int], Any]] = (),
) -> result_lib.Result:
    """Trains an experiment in this process; see `Experiment.train`, which calls it."""
    if seed is not None and not 0 <= seed < 2**32:
        raise errors.ConfigError(f"seed must lie in 0 to 2**32 - 1, got {seed}")
    run = _open(experiment, run_dir, resume)
    if resume:
        if warm_start_from is not None:
            raise errors.ConfigError(
                "resume=True continues from the run's own checkpoint: leave out warm_start, or "
                "begin a new run with it"
            )
        seed = run.read_description()["seed"] if seed is None else seed
    elif seed is None:
        seed = secrets.randbelow(2**31)
    with run.locked(), run.discarded_if_refused():
        if resume:
            run.describe_resumption(sys.argv)
        else:
            run.describe(seed=seed, argv=sys.argv, name=run.path.name, began_in="Python")
        outcome, stop = _train(experiment, run, seed, warm_start_from, triggers)
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == session.INTERRUPTED:
        _pass_on(stop.signal_number)
    return result_lib.Result(run.path, outcome.status, outcome.reason)


def _open(
    experiment: experiment_lib.Experiment, run_dir: str | os.PathLike | None, resume: bool
) -> run_directory.RunDirectory:
    if resume:
        if run_dir is None:
            raise errors.ConfigError("resume=True: which run? Give its directory")
        return run_directory.RunDirectory.existing(os.fspath(run_dir))
    agent = getattr(experiment.agent, "func", experiment.agent)
    return run_directory.RunDirectory.create(
        run_dir,
        getattr(agent, "__name__", "run").strip("<>"),
        resume="train('{}', resume=True)",
        elsewhere="another directory",
    )


def _train(
    experiment: experiment_lib.Experiment,
    run: run_directory.RunDirectory,
    seed: int,
    source: str | os.PathLike | None,
    triggers: Sequence[Callable[[int], Any]],
) -> tuple[session.Outcome, signals.StopRequest]:
    with (
        process_output.capture_native_output(
            run.log(session.JOB), terminal=_terminal(), capture_stdout=True
        ) as output,
        signals.stop_on_signal(output.terminal, exits=False) as stop,
    ):
        session.say(output, f"run directory: {run} (seed {seed})")

        @contextlib.contextmanager
        def build(**more: Any) -> Iterator[one_process.OneProcess]:
            if source is not None:
                more["warm_start"] = warm_start.WarmStart(os.fspath(source))
            with output.quiet_imports():
                training = one_process.OneProcess(
                    experiment, run, seed=seed, triggers=triggers, **more
                )
            with training:
                _write_configuration(run)
                yield training

        then = summary.NextSteps.in_python(run.path)
        return session.run(build, run, output, stop, then), stop


def _write_configuration(run: run_directory.RunDirectory) -> None:
    """Writes what gin configured: a program may bind single values and build the rest itself."""
    run.write_text(run.operative_config, config.operative_config())


def _terminal() -> str | TextIO:
    """Returns where the user reads output: the terminal, or the cell of a notebook."""
    try:
        is_own = sys.stderr.fileno() == 2
    except (AttributeError, OSError, ValueError):
        is_own = False
    return "stderr" if is_own else sys.stdout


def _pass_on(signal_number: int | None) -> None:
    """Raises again the signal that ended training, now that everything is saved."""
    if signal_number is None or signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal_number)

"""A training run in this process from its first line to its last, for the command and for Python.

Each builds a `OneProcess` in its own way. Showing it, writing its metrics, saving it when it is
interrupted, and saying how it ended are the same.
"""

from __future__ import annotations

import contextlib
import traceback
from typing import Callable, NamedTuple

from actor_learner import run_directory
from actor_learner.reporting import log_limit, process_output, summary
from actor_learner.runs.progress import report as report_lib
from actor_learner.support import blame, signals, unsaved

JOB = "train"
FAILED = "failed"
INTERRUPTED = "interrupted"

STARTING = "starting TensorFlow and Reverb ..."


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
      status: The status of `OneProcess.run`, or `FAILED`.
      reason: Why it ended early, in words; None if it did not.
      is_saved: Whether everything is on disk; False if the disk was full.
      error: The error that it failed with; None if it did not fail.
    """

    status: str
    reason: str | None
    is_saved: bool
    error: Exception | None = None


def run(
    build: Callable[..., contextlib.AbstractContextManager],
    run_dir: run_directory.RunDirectory,
    output: process_output.CapturedOutput,
    stop: signals.StopRequest,
    next_steps: summary.NextSteps,
) -> Outcome:
    """Builds, trains and exports; shows progress and the last lines.

    Args:
      build: Given `on_row` and `stop`, makes a context of a `OneProcess`.
      run_dir: The run directory.
      output: The captured output of this process.
      stop: Ends training when it is set.
      next_steps: What the user may do next, in their own terms.

    Raises:
      What `build` raises; the log has its traceback.
    """
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(unsaved.scope())
        ledger.say = lambda line: say(output, line)
        report = stack.enter_context(report_lib.Report(run_dir, output.log_path, next_steps))
        try:
            training = stack.enter_context(build(on_row=report.write, stop=stop.event))
        except Exception:
            output.log.write(traceback.format_exc())
            raise
        stack.enter_context(log_limit.limited(output.log_path))
        report.open(training, output.terminal)
        ledger.say = stop.say = report.say
        try:
            status = training.run()
            if status != INTERRUPTED:
                training.export_policies()
        except Exception as error:
            stop.say = None
            report.close()
            is_saved = _settle(ledger, output, stop)
            output.log.write(traceback.format_exc())
            reason = f"{type(error).__name__}: {error}"
            first, *more = report.closing_lines(FAILED, reason)
            for line in (first, *_whose(error), *more):
                say(output, line)
            return Outcome(FAILED, reason, is_saved, error)
        stop.say = None
        report.close()
        is_saved = _settle(ledger, output, stop)
        for line in report.closing_lines(status, training.stop_reason):
            say(output, line)
        return Outcome(status, training.stop_reason, is_saved)


def say(output: process_output.CapturedOutput, text: str) -> None:
    """Prints a line for the user."""
    print(text, file=output.terminal, flush=True)


def _whose(error: Exception) -> list[str]:
    """Returns a line that names the code that raised, if it is not ours."""
    where = blame.accused(error)
    return [] if where is None else [f"Raised in:    {where}"]


def _settle(
    ledger: unsaved.Ledger, output: process_output.CapturedOutput, stop: signals.StopRequest
) -> bool:
    """Waits a while for room if the disk is full, or until Ctrl-C; returns whether all is saved."""
    ledger.say = lambda line: say(output, line)
    interrupted = stop.event.is_set()  # Then the next signal ends the process.
    return ledger.settle(lambda: stop.event.is_set() and not interrupted)

"""One of the user's own jobs: `actor-learner custom NAME --gin_file=… --run=… [--index=N]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from actor_learner.jobs import main, settings, worker

_FLAG = "--job"


def run(given: Sequence[str]) -> int:
    """Runs the job that the first word names, or `--job=NAME`; returns the exit code."""
    given = list(given)
    if given and not given[0].startswith("-"):
        given[0] = f"{_FLAG}={given[0]}"
    parser = argparse.ArgumentParser(prog=f"actor-learner {main.CUSTOM}", add_help=False)
    parser.add_argument(_FLAG)
    known, _ = parser.parse_known_args(given)
    if known.job in settings.OURS:  # It would take the place of the real one.
        parser.error(f"{known.job} is not a job of Jobs.extra: use `actor-learner {known.job}`")
    # Without a name there is only the help to show, or what is missing to say.
    return main.run_job(known.job or main.CUSTOM, _make, given, add_flags=_add_flags)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(_FLAG, required=True, help="its name in Jobs.extra, or the first word")


def _make(arguments: argparse.Namespace) -> worker.Worker:
    return settings.Jobs().make(arguments.job)

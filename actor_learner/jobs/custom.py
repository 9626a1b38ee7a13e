"""One of the user's own jobs: `python -m actor_learner.jobs.custom --job=NAME --gin_file=…`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from actor_learner.jobs import extra_jobs, main, worker


def run(argv: Sequence[str] | None = None) -> int:
    """Runs the job that `--job` names; returns the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--job", required=True)
    known, _ = parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))
    return main.run_job(known.job, _make, argv, add_flags=_add_flags)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", required=True, help="its name in Jobs.extra")


def _make(arguments: argparse.Namespace) -> worker.Worker:
    return extra_jobs.Jobs().make(arguments.job)


if __name__ == "__main__":
    sys.exit(run())

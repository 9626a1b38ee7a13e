"""`actor-learner plot`: several runs in one picture, as mean and interval over seeds."""

from __future__ import annotations

import argparse
import os
from typing import Any

from actor_learner.commands import run_paths
from actor_learner.reporting import curve, jsonl
from actor_learner.support import errors, formatting

OK = 0
DEFAULT_OUT = "comparison.png"


def add_parser(commands: Any) -> None:
    """Adds `plot` to the commands of the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser("plot", help="draw several runs: mean and interval over seeds")
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="[LABEL=]RUNS",
        help="run directories, a directory of them, or a pattern; runs with one label are seeds of "
        "one another (default: those of one experiment, or of one directory of --seeds)",
    )
    parser.add_argument(
        "--out", default=DEFAULT_OUT, metavar="FILE.png", help="default: %(default)s"
    )
    parser.add_argument(
        "--metric", default="eval_return", help="column of metrics.csv (default: %(default)s)"
    )
    parser.add_argument("--title", help="above the picture")
    parser.add_argument("--target", type=float, help="a dashed line")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    if not arguments.out.endswith(".png"):
        raise errors.ConfigError(f"--out={arguments.out}: the file's name must end in .png")
    groups: dict[str, list[list[dict[str, Any]]]] = {}
    for given in arguments.runs:
        label, places = _split(given)
        for run in run_paths.expand([places]):
            if not run.metrics_jsonl.exists():
                raise errors.ConfigError(f"{run} has no {run.metrics_jsonl.name} yet")
            rows = jsonl.read_rows(run.metrics_jsonl)
            groups.setdefault(label or run_paths.group(run), []).append(rows)
    known = {key for runs in groups.values() for rows in runs for row in rows for key in row}
    if arguments.metric not in known:
        raise errors.ConfigError(
            f"--metric={arguments.metric} is in none of these runs; they have "
            f"{', '.join(sorted(known))}"
        )
    bands = curve.draw_seed_bands(
        groups,
        arguments.out,
        arguments.title or " and ".join(groups),
        arguments.target,
        value=arguments.metric,
        intervals=True,
    )
    for label, (number, mean, low, high) in bands.items():
        seeds = f"{number} seed{'' if number == 1 else 's'}"
        interval = f" [{formatting.number(low)}, {formatting.number(high)}]" if number > 1 else ""
        print(f"{label}: {formatting.number(mean)}{interval} at the end, {seeds}")
    print(f"{arguments.out}: {arguments.metric}, mean and 95 % bootstrap interval over seeds")
    return OK


def _split(given: str) -> tuple[str | None, str]:
    """`label=places` in two; a directory whose name has a `=` is one."""
    label, equals, places = given.partition("=")
    if not equals or os.path.exists(given) or os.sep in label:
        return None, given
    return label, places

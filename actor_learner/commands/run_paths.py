"""The runs that a command line means: directories, patterns, and directories of runs."""

from __future__ import annotations

import glob
import os
import pathlib
from collections.abc import Sequence

from actor_learner import run_directory
from actor_learner.support import errors

SEED_PREFIX = "seed-"
"""How the runs of `train --seeds` are called, in a directory of their own."""


def expand(places: Sequence[str]) -> list[run_directory.RunDirectory]:
    """The runs in `places`, sorted within each, every run once.

    A place is a run directory, a directory of run directories, or a pattern of such
    (`'runs/dqn-*'`), which the shell may have left to us.

    Raises:
      errors.ConfigError: If there is no run in one of them.
    """
    found: dict[pathlib.Path, None] = {}
    for place in places:
        paths = [place] if os.path.exists(place) else sorted(glob.glob(place))
        runs = [run for path in paths for run in _runs_in(pathlib.Path(path))]
        if not runs:
            what = "has no run in it" if paths else "does not exist"
            raise errors.ConfigError(f"{place} {what}: give run directories, or a pattern of them")
        found.update(dict.fromkeys(runs))
    return [run_directory.RunDirectory(path) for path in found]


def group(run: run_directory.RunDirectory) -> str:
    """What a run is a seed of: its directory of seeds, else the name of its experiment."""
    if run.path.name.startswith(SEED_PREFIX):
        return run.path.absolute().parent.name
    return run.read_description().get("name") or run.path.name


def _runs_in(path: pathlib.Path) -> list[pathlib.Path]:
    if (path / "run.json").exists():
        return [path]
    return sorted((child.parent for child in path.glob("*/run.json")), key=_natural)


def _natural(path: pathlib.Path) -> tuple[int, str]:
    """`seed-2` before `seed-10`."""
    digits = path.name.rpartition("-")[2]
    return (int(digits) if digits.isdigit() else 0, path.name)

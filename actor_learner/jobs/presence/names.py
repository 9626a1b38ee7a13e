"""Names of a run's jobs in the registry: `<run>/jobs/<kind>/<index>/…`."""

from __future__ import annotations

import pathlib
import re

from actor_learner import jobs_settings
from actor_learner.support import errors

LAUNCHER = jobs_settings.LAUNCHER

_INDEX = re.compile(r"(0|[1-9][0-9]{0,8})\Z")


def run_name(run: str) -> str:
    """Returns the name of a run in the registry: the last part of its path, or `run` itself.

    Characters that a registry might misread become `_`.
    """
    last = pathlib.PurePath(run).name
    name = re.sub(r"[^A-Za-z0-9._-]", "_", last).strip(".")
    if not name:
        raise errors.ConfigError(
            f"--run={run!r} contains no name: give the path of a run directory, or a name"
        )
    return name


def job(kind: str, index: int) -> str:
    """Returns the name of a job, `actor-3`; its folder in the run directory has it, too."""
    return f"{kind}-{index}"


def jobs(run: str) -> str:
    """The subtree of all jobs of a run."""
    return f"{run}/jobs"


def place(run: str, kind: str, index: int) -> str:
    """The subtree of one job."""
    return f"{jobs(run)}/{kind}/{index}"


def record(run: str, kind: str, index: int) -> str:
    """What is left of a job: its `status.Status` when its state last changed, or when it ended."""
    return f"{place(run, kind, index)}/record"


def lease(run: str, kind: str, index: int) -> str:
    """Which process is the job, and where it is reached; expires when its heartbeats stop."""
    return f"{place(run, kind, index)}/lease"


def takeover(run: str, kind: str, index: int) -> str:
    """Held for a moment by the process that replaces a dead holder of the lease."""
    return f"{place(run, kind, index)}/takeover"


def address(run: str, kind: str, index: int) -> str:
    """Where the job serves, e.g. `10.0.0.7:8008`; expires when its heartbeats stop."""
    return f"{place(run, kind, index)}/address"


def parse(run: str, name: str) -> tuple[str, int, str] | None:
    """Splits `<run>/jobs/<kind>/<index>/<part>` into the last three; None for other names."""
    parts = name[len(jobs(run)) + 1 :].split("/")
    if len(parts) != 3 or not jobs_settings.is_kind(parts[0]) or not _INDEX.match(parts[1]):
        return None
    return parts[0], int(parts[1]), parts[2]

"""Where jobs leave what in the name registry: `<run>/jobs/<kind>/<index>/…`."""

from __future__ import annotations

import pathlib
import re

from actor_learner.support import errors

LAUNCHER = "launcher"
"""The kind under which a launcher itself is found; it is not one of the run's jobs."""

_KIND = re.compile(r"[a-z][a-z0-9_]*\Z")
_INDEX = re.compile(r"(0|[1-9][0-9]{0,8})\Z")


def run_name(run: str) -> str:
    """The name of a run in the registry: the last part of its directory, or `run` itself.

    Whatever a registry might take for something else than a letter becomes `_`.
    """
    last = pathlib.PurePath(run).name
    name = re.sub(r"[^A-Za-z0-9._-]", "_", last).strip(".")
    if not name:
        raise errors.ConfigError(
            f"--run={run!r} has no name: give the path of a run directory, or any other word"
        )
    return name


def check_kind(kind: str) -> str:
    """Returns `kind` if it can be part of a name.

    Raises:
      errors.ConfigError: If it cannot.
    """
    if not _KIND.match(kind):
        raise errors.ConfigError(
            f"{kind!r} cannot be the kind of a job: use small letters, digits and _, a letter first"
        )
    return kind


def job(kind: str, index: int) -> str:
    """How people call a job: `actor-3`. Also the name of its folder in the run directory."""
    return f"{kind}-{index}"


def jobs(run: str) -> str:
    """Everything about the jobs of a run."""
    return f"{run}/jobs"


def place(run: str, kind: str, index: int) -> str:
    """Everything about one job."""
    return f"{jobs(run)}/{kind}/{index}"


def record(run: str, kind: str, index: int) -> str:
    """What is left of a job: its `status.Status` when its state last changed, or when it ended."""
    return f"{place(run, kind, index)}/record"


def lease(run: str, kind: str, index: int) -> str:
    """Which process is this job, and where it is reached; vanishes when its heartbeats stop."""
    return f"{place(run, kind, index)}/lease"


def takeover(run: str, kind: str, index: int) -> str:
    """Held for a moment by whoever replaces a dead holder of the lease."""
    return f"{place(run, kind, index)}/takeover"


def address(run: str, kind: str, index: int) -> str:
    """Where the job serves, e.g. `10.0.0.7:8008`; vanishes with its heartbeats."""
    return f"{place(run, kind, index)}/address"


def parse(run: str, name: str) -> tuple[str, int, str] | None:
    """Kind, index and last part of `<run>/jobs/<kind>/<index>/<part>`; None for other names."""
    parts = name[len(jobs(run)) + 1 :].split("/")
    if len(parts) != 3 or not _KIND.match(parts[0]) or not _INDEX.match(parts[1]):
        return None
    return parts[0], int(parts[1]), parts[2]

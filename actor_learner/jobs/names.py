"""Where jobs leave what in the name registry: `<run>/jobs/<kind>/<index>/…`."""

from __future__ import annotations

import pathlib
import re

from actor_learner.support import errors

_KIND = re.compile(r"[a-z][a-z0-9_]*\Z")


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


def status(run: str, kind: str, index: int) -> str:
    """The last word of a job, which outlives it: a `status.Status`."""
    return f"{place(run, kind, index)}/status"


def lease(run: str, kind: str, index: int) -> str:
    """Which process is this job, and where it is reached; vanishes when its heartbeats stop."""
    return f"{place(run, kind, index)}/lease"


def takeover(run: str, kind: str, index: int) -> str:
    """Held for a moment by whoever replaces a dead holder of the lease."""
    return f"{place(run, kind, index)}/takeover"


def address(run: str, kind: str, index: int) -> str:
    """Where the job serves, e.g. `10.0.0.7:8008`; vanishes with its heartbeats."""
    return f"{place(run, kind, index)}/address"


def unused(run: str, kind: str, index: int) -> str:
    """Which bindings of the configuration the job has not used."""
    return f"{place(run, kind, index)}/unused"


def command(run: str, kind: str, index: int) -> str:
    """The next command; taken away when it is read."""
    return f"{place(run, kind, index)}/command"


def reply(run: str, kind: str, index: int, command_id: str) -> str:
    """The answer to one command."""
    return f"{place(run, kind, index)}/reply/{command_id}"

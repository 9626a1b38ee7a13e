"""`actor-learner control RUN status`: all workers of a run, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from actor_learner.jobs import status as status_lib
from actor_learner.support import formatting

_HEAD = ("job", "state", "process", "steps", "steps/s", "version", "lag", "restarts", "note")
_NONE = "-"


def table(workers: Sequence[status_lib.Status], newest: int | None) -> list[str]:
    """One line for each worker, below a head, in aligned columns.

    Args:
      workers: What they have said last.
      newest: Version of the learner, from which the lag of those that do not tell it is worked out.
    """
    rows = [_HEAD, *(_cells(status, newest) for status in workers)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


def newest_version(workers: Sequence[status_lib.Status]) -> int | None:
    """The version of the learner, which is ahead of all others; None if it has told none."""
    versions = (status.version for status in workers if status.kind == "learner")
    return max((version for version in versions if version is not None), default=None)


def _cells(status: status_lib.Status, newest: int | None) -> tuple[str, ...]:
    lag = status.version_lag
    # A further policy has versions of its own.
    if (
        lag is None
        and None not in (newest, status.version)
        and not status.kind.startswith("learner")
    ):
        lag = max(0, newest - status.version)
    rate = status.steps_per_second
    return (
        status.name,
        status.state,
        f"{status.host}/{status.pid}",
        _count(status.steps),
        _NONE if rate is None else formatting.rate(rate),
        _count(status.version),
        _count(lag),
        str(status.restarts),
        " ".join(status.note().split()) or _NONE,
    )


def _count(value: int | None) -> str:
    return _NONE if value is None else formatting.count(value)

"""The live view of a run: rich on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol, TextIO, runtime_checkable

from actor_learner.reporting import logger as logger_lib
from actor_learner.reporting import plain_view, rich_view

PlainView = plain_view.PlainView
RichView = rich_view.RichView


@runtime_checkable
class Console(Protocol):
    """What a runner tells its user while it trains. Also a `logger.Logger`."""

    def start(self) -> None:
        """Shows the view; before it, rows are only remembered."""

    def write(self, row: logger_lib.Row) -> None:
        """Brings the view up to date. Never blocks on anything but the stream."""

    def message(self, text: str) -> None:
        """Prints `text` on lines of its own, above the live part if there is one."""

    def close(self) -> None:
        """Leaves the last state in sight and the stream open. May be called twice."""


def make_view(
    stream: TextIO,
    total_environment_steps: int | None,
    title: str,
    *,
    best: logger_lib.Row | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Console:
    """The view that suits `stream`, not yet started.

    Rich where `stream` is a terminal that can move its cursor (TERM is set and not `dumb`) and
    takes Unicode; without colours where NO_COLOR is set and not empty. Plain lines otherwise.
    `best` is the score of the best policy so far, when a run is resumed.
    """
    if not can_draw(stream, environ):
        return PlainView(stream, total_environment_steps, title, best=best)
    color = not environ.get("NO_COLOR")
    return RichView(stream, total_environment_steps, title, best=best, color=color)


def can_draw(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `stream` is a terminal that can move its cursor and takes Unicode."""
    encoding = (getattr(stream, "encoding", None) or "").lower()
    return (
        stream.isatty()
        and environ.get("TERM", "") not in ("", "dumb", "unknown")
        and encoding.startswith("utf")
    )

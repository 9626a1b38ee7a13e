"""The live view of a launcher: one line for each job, on a terminal or in a log."""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Callable, Protocol, TextIO

from absl import logging

from actor_learner.reporting import console, rich_view
from actor_learner.support import formatting

if TYPE_CHECKING:
    import rich.console

_OTHER_LINES = 4  # Lines of a terminal that are not rows: title, header, prompt.
_STYLES = {
    "running": "green",
    "completed": "green",
    "error": "red",
    "failed": "red",
    "lost": "red",
    "restarting": "yellow",
    "paused": "yellow",
}


@dataclasses.dataclass(frozen=True)
class JobRow:
    """What is shown of one job.

    Attributes:
      name: `actor-3`, or `actor ×16` where several share a row.
      kind: `actor`.
      state: A state of `jobs.states`, or what the launcher knows better: starting, restarting,
        stopping, failed.
      steps_per_second: Its rate; None if unknown.
      version: Train step of the policy it has.
      version_lag: How many versions that is behind.
      restarts: So far.
      note: What deserves attention.
    """

    name: str
    kind: str
    state: str
    steps_per_second: float | None = None
    version: int | None = None
    version_lag: int | None = None
    restarts: int = 0
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """The columns as text: job, state, steps/s, version, lag, restarts, note."""
        return (
            self.name,
            self.state,
            "" if self.steps_per_second is None else formatting.rate(self.steps_per_second),
            "" if self.version is None else formatting.count(self.version),
            "" if self.version_lag is None else formatting.count(self.version_lag),
            str(self.restarts) if self.restarts else "",
            " ".join(self.note.split()),
        )

    def line(self) -> str:
        """The row as a part of a line of text."""
        _, _, rate, version, lag, restarts, note = self.cells()
        parts = [f"{self.name} {self.state}", rate]
        parts.append(f"version {version}" if version else "")
        parts.append(f"lag {lag}" if lag else "")
        parts.append(f"restarts {restarts}" if restarts else "")
        parts.append(f"({note})" if note else "")
        return " ".join(part for part in parts if part)


_NOTE = ""  # The last column has no header.
_NUMBERS = ("steps/s", "version", "lag", "restarts")
COLUMNS = ("job", "state", *_NUMBERS, _NOTE)


class JobsView(Protocol):
    """What a launcher tells its user."""

    def start(self) -> None:
        """Shows the view."""

    def update(self, rows: Sequence[JobRow]) -> None:
        """Brings it up to date. Never blocks on anything but the stream."""

    def message(self, text: str) -> None:
        """Prints `text` on lines of its own, above the live part if there is one."""

    def close(self) -> None:
        """Leaves the last state in sight and the stream open. May be called twice."""


def make_view(stream: TextIO, title: str, *, environ: Mapping[str, str] = os.environ) -> JobsView:
    """The view that suits `stream`, not yet started: a table on a terminal, else plain lines."""
    if console.can_draw(stream, environ):
        return RichJobsView(stream, title, color=not environ.get("NO_COLOR"))
    return PlainJobsView(stream, title)


def merged(rows: Sequence[JobRow], max_rows: int) -> list[JobRow]:
    """Returns about `max_rows` rows at most: if there are too many, jobs of a kind share one.

    Rates are added up, the largest lag is shown, and a note names its job.
    """
    if len(rows) <= max_rows:
        return list(rows)
    kinds: dict[str, list[JobRow]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    return [of[0] if len(of) == 1 else _together(kind, of) for kind, of in kinds.items()]


def _together(kind: str, rows: Sequence[JobRow]) -> JobRow:
    counts = collections.Counter(row.state for row in rows)
    (state, number), *others = counts.most_common()
    noted = [f"{row.name}: {row.note}" for row in rows if row.note]
    notes = [f"{count} {other}" for other, count in others] + noted[:1]
    rates = [row.steps_per_second for row in rows if row.steps_per_second is not None]
    versions = [row.version for row in rows if row.version is not None]
    lags = [row.version_lag for row in rows if row.version_lag is not None]
    return JobRow(
        f"{kind} ×{len(rows)}",
        kind,
        state if number == len(rows) else f"{number} {state}",
        sum(rates) if rates else None,
        min(versions, default=None),
        max(lags, default=None),
        sum(row.restarts for row in rows),
        ", ".join(notes),
    )


class RichJobsView:
    """A table at the bottom of the terminal, redrawn four times a second by a thread of rich."""

    def __init__(
        self,
        stream: TextIO,
        title: str,
        *,
        color: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import rich.live

        self._title = title
        self._clock = clock
        self._began = clock()
        self._rows: tuple[JobRow, ...] = ()
        self._console = rich_view.console_on(stream, color=color)
        self._live = rich.live.Live(
            get_renderable=self._picture,
            console=self._console,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self) -> None:
        self._began = self._clock()
        self._live.start()

    def update(self, rows: Sequence[JobRow]) -> None:
        self._rows = tuple(rows)

    def message(self, text: str) -> None:
        import rich.text

        self._console.print(rich.text.Text(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _picture(self) -> rich.console.RenderableType:
        import rich.console
        import rich.table
        import rich.text

        seconds = formatting.duration(self._clock() - self._began)
        title = rich.text.Text(no_wrap=True, overflow="ellipsis")
        many = f": {len(self._rows)} jobs" if self._rows else ""
        title.append(self._title + many, style="bold").append(f"  {seconds}", style="cyan")
        rows = merged(self._rows, self._console.height - _OTHER_LINES)
        cells = [COLUMNS, *(row.cells() for row in rows)]
        # A narrow terminal has no room for columns without contents; a note gives way first.
        shown = [i for i in range(len(COLUMNS)) if i < 2 or any(row[i] for row in cells[1:])]
        table = rich.table.Table.grid(padding=(0, 2, 0, 0))
        for i in shown:
            widest = max(len(row[i]) for row in cells)
            table.add_column(
                no_wrap=True,
                overflow="ellipsis",
                justify="right" if COLUMNS[i] in _NUMBERS else "left",
                min_width=0 if COLUMNS[i] == _NOTE else widest,
            )
        table.add_row(*(rich.text.Text(COLUMNS[i], style="dim") for i in shown))
        for row, texts in zip(rows, cells[1:]):
            styles = ["", _STYLES.get(row.state, "")]
            table.add_row(
                *(rich.text.Text(texts[i], style=styles[i] if i < 2 else "") for i in shown)
            )
        return rich.console.Group(title, table)


class PlainJobsView:
    """A line when a job's state changes, and one with all jobs every `interval_seconds`."""

    def __init__(
        self,
        stream: TextIO,
        title: str,
        *,
        interval_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._title = title
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._began = self._printed = clock()
        self._rows: tuple[JobRow, ...] = ()
        self._closed = False

    def start(self) -> None:
        self._began = self._printed = self._clock()
        self.message(self._title)

    def update(self, rows: Sequence[JobRow]) -> None:
        before = {row.name: row.state for row in self._rows}
        self._rows = tuple(rows)
        for row in rows:
            if before.get(row.name) != row.state:
                self.message(f"{self._time()} | {row.line()}")
        now = self._clock()
        if now - self._printed >= self._interval_seconds:
            self._printed = now
            self._print_all()

    def message(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except OSError as error:
            # Whoever was reading has gone; that ends no run.
            logging.log_first_n(logging.WARNING, "the view cannot be written: %s", 1, error)

    def close(self) -> None:
        if self._rows and not self._closed:
            self._print_all()
        self._closed = True

    def _time(self) -> str:
        return formatting.duration(self._clock() - self._began)

    def _print_all(self) -> None:
        shown = [row.line() for row in merged(self._rows, 8)]
        self.message(f"{self._time()} | {' | '.join(shown)}")

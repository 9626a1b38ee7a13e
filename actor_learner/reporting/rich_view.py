"""The live view on a terminal: a progress bar with the run's metrics below it."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Callable, TextIO

from actor_learner.reporting import logger as logger_lib
from actor_learner.reporting import progress
from actor_learner.support import formatting

if TYPE_CHECKING:
    import rich.console

_GAP = 2  # Columns between two cells.
_VALUE_WIDTH = 18  # Least width of the left values, so that the right half does not jump about.
_ROOM_FOR_TITLE = 64  # Columns from which the title fits in front of the bar.


class RichView:
    """Keeps a few lines at the bottom of the terminal up to date, from `start` to `close`.

    A thread of rich's redraws four times a second, so clocks run on while training is busy; `close`
    ends it and leaves the last picture on the screen. Writes to `stream` only, which stays open:
    `print` and tracebacks are not redirected: send text through `message`, or close the view first.
    """

    def __init__(
        self,
        stream: TextIO,
        total_environment_steps: int | None,
        title: str,
        *,
        best: logger_lib.Row | None = None,
        color: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        import rich.live

        self._title = title
        self._progress = progress.Progress(total_environment_steps, best=best)
        self._clock = clock
        self._written_at: float | None = None
        self._console = console_on(stream, color=color)
        self._live = rich.live.Live(
            get_renderable=self._picture,
            console=self._console,
            refresh_per_second=4,
            # The stream is ours alone; standard output and error belong to the caller.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self) -> None:
        self._live.start()

    def write(self, row: logger_lib.Row) -> None:
        self._progress.update(row)
        self._written_at = self._clock()

    def message(self, text: str) -> None:
        import rich.text

        self._console.print(rich.text.Text(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _picture(self) -> rich.console.RenderableType:
        import rich.console

        width = self._console.width
        parts: list[rich.console.RenderableType] = [self._bar(width)]
        metrics = self._progress.metrics()
        if metrics:
            parts.append(_grid(metrics, width))
        return rich.console.Group(*parts)

    def _bar(self, width: int) -> rich.console.RenderableType:
        import rich.console
        import rich.progress_bar
        import rich.table
        import rich.text

        state = self._progress
        fraction = state.fraction
        title = rich.text.Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        line = rich.table.Table.grid(padding=(0, 2, 0, 0), expand=True)
        cells: list[rich.console.RenderableType] = []
        if width >= _ROOM_FOR_TITLE:
            line.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 3)
            cells.append(title)
        line.add_column(ratio=1)
        # Without a known end the bar only shows that the run is alive.
        bar = rich.progress_bar.ProgressBar(
            total=1.0 if fraction is not None else None,
            completed=fraction or 0.0,
            pulse=fraction is None,
        )
        cells.append(bar)
        for text in self._clocks():
            line.add_column(no_wrap=True, justify="right")
            cells.append(rich.text.Text(text, style="cyan"))
        line.add_row(*cells)
        return line if width >= _ROOM_FOR_TITLE else rich.console.Group(title, line)

    def _clocks(self) -> list[str]:
        state = self._progress
        if self._written_at is None:
            return ["starting"]
        waited = self._clock() - self._written_at
        texts = []
        if state.fraction is not None:
            texts.append(f"{state.fraction:.0%}")
        if "seconds" in state.latest:
            texts.append(formatting.duration(state.latest["seconds"] + waited))
        seconds_left = state.seconds_left
        if seconds_left:
            texts.append(f"{formatting.duration(seconds_left - waited)} left")
        return texts


def _grid(metrics: list[tuple[str, str]], width: int) -> rich.console.RenderableType:
    """Names and values in two pairs of columns, filled downwards; in one where two do not fit."""
    import rich.table
    import rich.text

    rows = -(-len(metrics) // 2)
    halves = [metrics[:rows], metrics[rows:]]
    if _width_of(halves) > width:
        halves = [metrics]
    gap = _GAP if len(halves) > 1 else 1  # Every column counts on a narrow terminal.
    grid = rich.table.Table.grid(padding=(0, gap, 0, 0))
    for index in range(len(halves)):
        grid.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        padded = index < len(halves) - 1
        grid.add_column(
            no_wrap=True, overflow="ellipsis", min_width=_VALUE_WIDTH if padded else None
        )
    for pairs in itertools.zip_longest(*halves, fillvalue=("", "")):
        grid.add_row(*(rich.text.Text(text) for pair in pairs for text in pair))
    return grid


def _width_of(halves: list[list[tuple[str, str]]]) -> int:
    width = 0
    for half in halves:
        names, values = zip(*half) if half else ((), ())
        width += max(map(len, names), default=0) + _GAP
        width += max(_VALUE_WIDTH, max(map(len, values), default=0)) + _GAP
    return width


def console_on(stream: TextIO, *, color: bool) -> rich.console.Console:
    """A console of rich's that writes to `stream`, a terminal, and takes text as it is."""
    import rich.console

    class StreamConsole(rich.console.Console):
        """Asks the stream itself for the terminal's size.

        Rich asks descriptors 0, 1 and 2, none of which need be the terminal: the command line sends
        2 to the run's log and hands us a copy of the original.
        """

        @property
        def size(self) -> rich.console.ConsoleDimensions:
            try:
                columns, lines = os.get_terminal_size(stream.fileno())
            except (OSError, ValueError, AttributeError):  # Not a descriptor, or no terminal on it.
                columns = lines = 0
            if columns > 0 and lines > 0:
                return rich.console.ConsoleDimensions(columns, lines)
            return super().size

    return StreamConsole(
        file=stream,
        force_terminal=True,  # Whoever chose this view has looked at the stream.
        force_jupyter=False,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
    )

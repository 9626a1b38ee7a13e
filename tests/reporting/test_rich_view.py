import contextlib
import fcntl
import os
import re
import struct
import sys
import termios
import threading

import pytest

from actor_learner.reporting import rich_view

ROW = {
    "seconds": 30.0,
    "environment_steps": 25_200,
    "environment_steps_per_second": 1234.5,
    "train_steps": 12_600,
    "train_steps_per_second": 640.2,
    "return": 123.44,
    "episode_length": 99.5,
    "loss": 0.012345,
    "replay_size": 25_200,
    "samples_per_insert": 32.0,
    "best_return": 487.25,
    "best_return_std": 12.14,
    "best_environment_steps": 25_200,
    "eval_episodes": 20,
}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A real pseudo-terminal of a given size that keeps all that was written to it."""

    def __init__(self, columns, lines=24):
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream = open(slave, "w", encoding="utf-8")
        self._chunks = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        # The master side reports an error once the last writer is gone.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._master, 65536):
                self._chunks.append(chunk)

    def close(self):
        self.stream.close()
        self._reader.join()
        os.close(self._master)

    @property
    def raw(self):
        """All that was written; complete after `close`."""
        return b"".join(self._chunks).decode()

    def last_picture(self):
        """The lines of the last drawing, without control sequences."""
        drawn = re.split(r"\x1b\[2K", self.raw)[-1]
        return [line.rstrip() for line in CONTROL.sub("", drawn).replace("\r", "").splitlines()]


@pytest.fixture(autouse=True)
def terminal_type(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def show(columns, rows, *, messages=(), title="dqn_cartpole", **more):
    terminal = Terminal(columns)
    view = rich_view.RichView(terminal.stream, 60_000, title, clock=lambda: 5.0, **more)
    view.start()
    for row in rows:
        view.write(row)
    for text in messages:
        view.message(text)
    view.close()
    view.close()
    terminal.close()
    return terminal


def test_eighty_columns_show_the_bar_and_two_columns_of_metrics():
    bar, *metrics = [line for line in show(80, [ROW]).last_picture() if line]
    assert re.fullmatch(r"dqn_cartpole  [━╸╺]+  42%  0:30  0:28 left", bar)
    assert metrics == [
        "environment steps  25,200, 1.2k/s      loss            0.0123",
        "train steps        12,600, 640/s       replay size     25,200",
        "return             123.4               samples/insert  32.00",
        "episode length     99.50               best policy     487.2 ± 12.1 at 25,200",
    ]


def test_forty_columns_show_every_metric_below_one_another():
    title, bar, *metrics = [line for line in show(40, [ROW]).last_picture() if line]
    assert title == "dqn_cartpole"
    assert re.fullmatch(r"[━╸╺]+  42%  0:30  0:28 left", bar)
    assert metrics == [
        "environment steps 25,200, 1.2k/s",
        "train steps       12,600, 640/s",
        "return            123.4",
        "episode length    99.50",
        "loss              0.0123",
        "replay size       25,200",
        "samples/insert    32.00",
        "best policy       487.2 ± 12.1 at 25,200",
    ]


@pytest.mark.parametrize("columns", [10, 20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns):
    huge = {**ROW, "environment_steps": 12_345_678_901, "best_return": -123_456_789.25}
    terminal = show(columns, [ROW, huge], title="a title that is much too long " * 5)
    lines = terminal.last_picture()
    assert len(lines) > 8 or columns == 200
    assert max(len(line) for line in lines) <= columns


def test_before_the_first_row_the_view_says_that_it_starts():
    (line,) = [line for line in show(80, []).last_picture() if line]
    assert re.fullmatch(r"dqn_cartpole  ━+  starting", line)


def test_messages_are_printed_as_they_are_and_whole():
    text = "saved [bold]runs/x[/bold] :smile: " + "y" * 60
    raw = CONTROL.sub("", show(40, [ROW], messages=[text]).raw).replace("\r", "")
    assert text + "\n" in raw


def test_without_colour_no_colour_is_sent():
    colours = re.compile(r"\x1b\[(3[0-7]|9[0-7]|38|48)[;m]")
    assert colours.search(show(80, [ROW]).raw)
    assert not colours.search(show(80, [ROW], color=False).raw)


def test_the_cursor_is_back_and_the_standard_streams_are_untouched():
    stdout, stderr = sys.stdout, sys.stderr
    terminal = Terminal(80)
    view = rich_view.RichView(terminal.stream, None, "x")
    view.start()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    view.write(ROW)
    view.close()
    assert not terminal.stream.closed
    terminal.close()
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_the_best_policy_of_an_earlier_run_is_shown():
    earlier = {"best_return": 490.0, "best_return_std": 3.0, "best_environment_steps": 12_000}
    row = {key: value for key, value in ROW.items() if not key.startswith("best")}
    picture = show(40, [row], best=earlier).last_picture()
    assert "best policy       490.0 ± 3.0 at 12,000" in picture

import io

import pytest

from actor_learner.reporting import console, logger


class FakeTerminal(io.TextIOWrapper):
    def __init__(self, encoding="utf-8", tty=True):
        super().__init__(io.BytesIO(), encoding=encoding)
        self._tty = tty

    def isatty(self):
        return self._tty


@pytest.mark.parametrize(
    "stream, environ, view",
    [
        (FakeTerminal(), {"TERM": "xterm"}, console.RichView),
        (FakeTerminal(), {"TERM": "xterm", "NO_COLOR": "1"}, console.RichView),
        (FakeTerminal(), {"TERM": "dumb"}, console.PlainView),
        (FakeTerminal(), {}, console.PlainView),
        (FakeTerminal(tty=False), {"TERM": "xterm"}, console.PlainView),
        (FakeTerminal(encoding="ascii"), {"TERM": "xterm"}, console.PlainView),
        (io.StringIO(), {"TERM": "xterm"}, console.PlainView),
    ],
)
def test_the_view_is_chosen_by_what_the_stream_can_do(stream, environ, view):
    made = console.make_view(stream, 1000, "title", environ=environ)
    assert type(made) is view
    assert isinstance(made, console.Console)
    assert isinstance(made, logger.Logger)


@pytest.mark.parametrize("environ, coloured", [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_keeps_the_bar_and_drops_the_colours(environ, coloured, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = FakeTerminal()
    view = console.make_view(stream, 1000, "title", environ={"TERM": "xterm", **environ})
    view.start()
    view.write({"environment_steps": 500, "seconds": 1.0})
    view.close()
    stream.flush()
    sent = stream.buffer.getvalue().decode()
    assert "━" in sent and "50%" in sent
    assert ("\x1b[36m50%" in sent) == coloured

import io

from actor_learner.reporting import plain_view


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def make(stream, clock, **more):
    return plain_view.PlainView(stream, 1000, "dqn_cartpole", clock=clock, **more)


def test_the_first_row_is_printed_at_once_and_the_next_after_the_interval():
    stream, clock = io.StringIO(), Clock()
    view = make(stream, clock)
    view.start()
    for now, steps in ((100.0, 100), (101.0, 200), (101.9, 300), (102.0, 400), (103.0, 500)):
        clock.now = now
        view.write({"seconds": now - 90, "environment_steps": steps, "return": 20.0})
    assert stream.getvalue().splitlines() == [
        "dqn_cartpole",
        "0:10 | 10% of 1,000 | environment steps 100 | return 20.00",
        "0:12 | 40% of 1,000, 0:04 left | environment steps 400 | return 20.00",
    ]


def test_close_prints_the_last_state_once_if_it_is_owed():
    stream, clock = io.StringIO(), Clock()
    view = make(stream, clock, interval_seconds=10.0)
    view.write({"environment_steps": 100})
    view.write(
        {
            "environment_steps": 1000,
            "best_return": 475.5,
            "best_return_std": 1.25,
            "best_environment_steps": 900,
        }
    )
    view.close()
    view.close()
    assert stream.getvalue().splitlines() == [
        "10% of 1,000 | environment steps 100",
        "100% of 1,000 | environment steps 1,000 | best policy 475.5 ± 1.2 at 900",
    ]
    assert not stream.closed


def test_close_prints_nothing_when_nothing_is_owed():
    stream = io.StringIO()
    view = make(stream, Clock())
    view.write({"environment_steps": 100})
    before = stream.getvalue()
    view.close()
    assert stream.getvalue() == before


def test_messages_are_never_held_back():
    stream = io.StringIO()
    view = make(stream, Clock())
    view.message("saved checkpoint 100")
    view.message("saved checkpoint 200")
    assert stream.getvalue() == "saved checkpoint 100\nsaved checkpoint 200\n"


def test_a_stream_without_unicode_gets_a_question_mark():
    raw = io.BytesIO()
    view = make(io.TextIOWrapper(raw, encoding="ascii"), Clock())
    view.message("487.2 ± 12.1")
    assert raw.getvalue() == b"487.2 ? 12.1\n"

"""Waiting for what must happen sooner or later."""

import time

DEADLINE_SECONDS = 60.0


def eventually(condition, what):
    """Returns the first true result of `condition()`; fails if there is none for a minute."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.005)

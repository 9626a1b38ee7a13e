"""How one learner's wire bears 1 to 500 actors: how late its news come, and what it costs.

Simulated actors, in a few processes and without TensorFlow, follow the learner's news, pull a
policy of 100 kB whenever there is a new one, twice per second, and report after every turn of a
quarter of a second; a Reverb server takes an item of each turn. The learner's side is the product's
publisher, inbox and wire, in a process that does nothing else.

`news, median`: milliseconds from the learner's telling to an actor's hearing, the median of the
actors' medians. `news, oldest`: how old the news that any actor had became at most, so the longest
time between two news counts. Both depend on what else the machine does: they are medians of several
windows. `learner`: processor time of the learner's side in per cent of one core, less what it takes
to poll when nobody is there. Less is better.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import harness, partner, settings

COUNTS = (1, 8, 50, 200, 500)
POLICY_BYTES = 100_000
PUBLISH_SECONDS = 0.5
TURN_SECONDS = 0.25
WINDOW_SECONDS = 3.0
_MAX_PER_PROCESS = 150
_SETTLE_SECONDS = 2.0
_TABLE = "items"
_ITEM_SHAPE = (64, 8)
"""A turn of 64 steps, of eight floats each."""


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    quick = config.repetitions == 1
    counts = COUNTS[:2] if quick else COUNTS
    yield from count_rows(counts, WINDOW_SECONDS * config.seconds, config.few_repetitions)


def count_rows(
    counts: Sequence[int],
    seconds: float,
    repetitions: int,
    *,
    turn_seconds: float = TURN_SECONDS,
    policy_bytes: int = POLICY_BYTES,
) -> Iterator[harness.Row]:
    """Three rows for each number of actors, in growing order: further ones join those there."""
    with contextlib.ExitStack() as closing:
        learner = closing.enter_context(
            partner.Partner("benchmarks.wire_learner", PUBLISH_SECONDS, policy_bytes)
        )
        items = closing.enter_context(_Items(turn_seconds))
        actors: list[partner.Partner] = []
        there = 0
        time.sleep(_SETTLE_SECONDS)
        idle = statistics.median(_window(learner, [], seconds)["share"] for _ in range(repetitions))
        for count in counts:
            while there < count:
                some = min(count - there, _MAX_PER_PROCESS)
                actors.append(
                    closing.enter_context(
                        partner.Partner(
                            "benchmarks.wire_actors", learner.line, there, some, turn_seconds
                        )
                    )
                )
                there += some
            items.write_for(count)
            time.sleep(_SETTLE_SECONDS)
            windows = [_window(learner, actors, seconds) for _ in range(repetitions)]
            yield from window_rows(count, windows, idle)


def _window(
    learner: partner.Partner, actors: Sequence[partner.Partner], seconds: float
) -> dict[str, Any]:
    """What the learner's side cost, and what the actors saw, during some seconds."""
    for some in actors:
        some.ask()  # Forgets what was before.
    before = learner.ask()
    time.sleep(seconds)
    after = learner.ask()
    seen = [some.ask() for some in actors]
    passed = after["seconds"] - before["seconds"]
    counts: dict[str, float] = {}
    for some in seen:
        for name, count in some["counts"].items():
            counts[name] = counts.get(name, 0) + count / passed
    return {
        "present": after["actors"],
        "median": 1e3 * statistics.median([d for some in seen for d in some["delays"]] or [0.0]),
        "oldest": 1e3 * max([age for some in seen for age in some["ages"]] or [0.0]),
        "heard": sum(len(some["delays"]) for some in seen),
        "share": 100 * (after["processor_seconds"] - before["processor_seconds"]) / passed,
        "counts": counts,
    }


def window_rows(
    count: int, windows: Sequence[dict[str, Any]], idle: float
) -> Iterator[harness.Row]:
    """The rows of one number of actors.

    Args:
      count: The number.
      windows: What each `_window` has seen.
      idle: The share of a core that the learner takes with nobody there.

    Raises:
      RuntimeError: If not all of them took part.
    """
    for window in windows:
        if window["present"] != count or window["heard"] != count:
            raise RuntimeError(
                f"the learner knows {window['present']} of {count} actors, and {window['heard']} "
                "of them have heard it: the figures would be of other numbers"
            )
    actors = f"{count} actor{'s' if count > 1 else ''}"
    rates = ", ".join(
        f"{statistics.median(w['counts'].get(name, 0.0) for w in windows):,.0f} {name}"
        for name in ("news", "policies", "reports")
    )
    for case, name, note in (
        ("news, median, ms", "median", ""),
        ("news, oldest, ms", "oldest", ""),
        ("learner, % of a core", "share", f"per second {rates}"),
    ):
        figures = [window[name] for window in windows]
        if name == "share":
            figures = [max(0.01, figure - idle) for figure in figures]
        yield harness.Row(
            "wire",
            f"{actors}, {case}",
            statistics.median(figures),
            spread=max(figures) / min(figures),
            note=note,
        )


class _Items:
    """A Reverb server, and the items that actors write to it, each with a writer of its own."""

    def __init__(self, turn_seconds: float) -> None:
        import reverb

        from actor_learner.replay.server import server

        table = reverb.Table(
            name=_TABLE,
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature={"steps": _signature()},
        )
        self._turn_seconds = turn_seconds
        self._server = server.ReplayServer([table])
        self._client = self._server.client()
        self._writers: list[Any] = []
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="items", daemon=True)

    def __enter__(self) -> _Items:
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stopping.set()
        self._thread.join(60.0)
        for writer in self._writers:
            writer.abandon()
        self._server.stop()
        if self._error is not None:
            raise self._error

    def write_for(self, count: int) -> None:
        """Has items of so many actors written."""
        from actor_learner.replay.writing import item_writer

        more = [
            item_writer.ItemWriter(self._client, [_TABLE], window=1)
            for _ in range(count - len(self._writers))
        ]
        self._writers = [*self._writers, *more]

    def _run(self) -> None:
        steps = {"steps": np.zeros(_ITEM_SHAPE, np.float32)}
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                for writer in self._writers:
                    writer.append(steps)
                    writer.create_item({"steps": writer.columns["steps"][-1:]}, priority=1.0)
                    writer.make_room()
                self._stopping.wait(max(0.0, began + self._turn_seconds - time.monotonic()))
        except BaseException as error:  # noqa: B036 - raised by the thread that waits.
            self._error = error


def _signature() -> Any:
    import tensorflow as tf

    return tf.TensorSpec([1, *_ITEM_SHAPE], tf.float32)

"""Says so when a learner waits for experience, and ends the wait after a deadline.

A call of a graph that pulls from a dataset waits inside TensorFlow, in silence and beyond the reach
of signals, as long as the table is empty or its server gone.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from typing import Any, Callable

import tensorflow as tf
from absl import logging

# Not public, but all there is to end a graph call from another thread. The manager in use is one
# for the process: graph calls that other threads begin meanwhile are ended with it. That is at the
# deadline only, when training has failed anyway.
from tensorflow.python.eager import cancellation

from actor_learner.learning import sample_sources
from actor_learner.support import counters, errors

FIRST_WARNING_SECONDS = 10.0
"""How long a wait may be without a word."""

_LONGEST_SILENCE_SECONDS = 600.0
_LONG_STEP_SECONDS = 60.0

Sources = Callable[[], "list[sample_sources.Source]"]


class _Call:
    """One graph call that may wait for experience; a context, made for each."""

    def __init__(self, watch: SampleWatch, train_step: int, sources: Sources) -> None:
        self._watch = watch
        self.sources = sources
        self.manager = cancellation.CancellationManager()
        self._cancellable = cancellation.CancellationManagerContext(self.manager)
        self.why_ended: str | None = None
        # Of the watching thread: what it last saw moving, and when.
        self.train_step = train_step
        self.samples: tuple[int, ...] | None = None
        self.moved_at = time.monotonic()
        self.next_look = 0.0
        self.warned = False

    def __enter__(self) -> None:
        self._watch.begin(self)
        self._cancellable.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._cancellable.__exit__(kind, error, traceback)
        self._watch.end()
        # Without an error it came to its end in the same moment, but its iterator is cancelled.
        if self.why_ended is not None and (
            error is None or isinstance(error, tf.errors.CancelledError)
        ):
            raise errors.ReplayTimeoutError(self.why_ended) from error


class SampleWatch:
    """Watches the graph calls of one learner from a thread of its own.

    ```python
    with watch.over(int(train_step.numpy()), sources):
        ...  # A call of a graph that takes batches and counts train steps.
    ```

    What is watched is the train step: as long as it moves, the watch does nothing but read it, once
    a second, and for the first ten seconds of a call not even that. Once it has stood still for so
    long, the watch asks the tables and logs what they say, then again at growing intervals. If it
    has for `timeout_seconds`, and a table or its server is why, the call is ended by an error.

    Args:
      train_step: Grows while training goes on.
      timeout_seconds: Deadline; None for none.

    Raises:
      ValueError: If the deadline is not above 0.
    """

    def __init__(self, train_step: tf.Variable, timeout_seconds: float | None) -> None:
        if timeout_seconds is not None and timeout_seconds <= 0:
            raise ValueError(
                f"Learner.sample_timeout_seconds must be above 0, got {timeout_seconds}; None "
                "waits for ever"
            )
        self._train_step = train_step
        self._timeout = timeout_seconds
        self._first = FIRST_WARNING_SECONDS
        if timeout_seconds is not None:
            self._first = min(self._first, timeout_seconds)
        self._lock = threading.Lock()  # Held to end a call, so that no later one is hit.
        self._call: _Call | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def over(self, train_step: int, sources: Sources) -> contextlib.AbstractContextManager[None]:
        """A context in which a call is watched.

        Args:
          train_step: The train step now.
          sources: Returns the tables that the batches come from, as far as they are known; called
            only if there is reason to.

        Raises:
          errors.ReplayTimeoutError: If the deadline has passed. The iterator that was waited for is
            of no use any more.
        """
        return _Call(self, train_step, sources)

    def begin(self, call: _Call) -> None:
        """Watches `call` from now on, in the thread of the caller."""
        if self._thread is None:
            self._start()
        self._call = call

    def end(self) -> None:
        """Watches nothing any more."""
        with self._lock:
            self._call = None

    def close(self) -> None:
        """Ends the thread, without waiting for it."""
        self._closed.set()

    def _start(self) -> None:
        # A learner that is dropped and never closed takes its thread along.
        weakref.finalize(self, self._closed.set)
        self._thread = threading.Thread(
            target=_watch,
            args=(weakref.ref(self), self._closed, min(1.0, self._first / 10.0)),
            name="sample-watch",
            daemon=True,
        )
        self._thread.start()

    def look_if_due(self) -> None:
        """One turn of the thread."""
        call = self._call
        if call is None or time.monotonic() - call.moved_at < self._first:
            return
        train_step = int(counters.read(self._train_step))
        if train_step != call.train_step:
            call.train_step = train_step
            self._note_movement(call)
            return
        quiet = time.monotonic() - call.moved_at
        if quiet < call.next_look:
            return
        sources = call.sources()
        found = sample_sources.look(sources)
        if call.samples is not None and found.samples != call.samples:
            # Samples flow, but one train step takes many of them.
            call.samples = found.samples
            self._note_movement(call)
            return
        call.samples = found.samples
        text = _explain(quiet, train_step, sources, found)
        if self._timeout is not None and quiet >= self._timeout and found.hopeless:
            self._end(call, text)
        elif found.blocked or not sources or quiet >= _LONG_STEP_SECONDS:
            logging.warning("%s", text)
        else:
            logging.info("%s", text)  # The first train step is compiled, which may take as long.
        call.warned = True
        call.next_look = quiet + min(2.0 * quiet, _LONGEST_SILENCE_SECONDS)
        if self._timeout is not None and quiet < self._timeout:
            call.next_look = min(call.next_look, self._timeout)

    def _note_movement(self, call: _Call) -> None:
        if call.warned:
            logging.info("The learner goes on, at train step %d.", call.train_step)
        call.moved_at, call.next_look, call.warned = time.monotonic(), 0.0, False

    def _end(self, call: _Call, text: str) -> None:
        with self._lock:
            if self._call is not call:
                return
            call.why_ended = (
                f"{text}. It waits for {self._timeout:g} s at most "
                "(Learner.sample_timeout_seconds; None: for ever)"
            )
            call.manager.start_cancel()


def _watch(
    watch: weakref.ref[SampleWatch], closed: threading.Event, interval_seconds: float
) -> None:
    while not closed.wait(interval_seconds):
        watched = watch()
        if watched is None:
            return
        try:
            watched.look_if_due()
        except Exception:  # A watch that fails must not take anything along.
            logging.exception("The wait for samples could not be looked at.")
        del watched


def _explain(
    seconds: float,
    train_step: int,
    sources: list[sample_sources.Source],
    found: sample_sources.Look,
) -> str:
    begin = f"the learner has taken no train step for {seconds:.0f} s, after {train_step} of them"
    if not sources:
        return f"{begin}: it waits for its dataset, or the train step itself takes long"
    if found.blocked:
        return f"{begin}: it waits for a sample; {found.text}. Is anything writing to it?"
    return f"{begin}: {found.text}. The train step itself may take long, its compilation included"

"""Calls to a Reverb server that end: each has a deadline and errors in our words.

Most calls of `reverb.Client` wait for ever when the server is gone, and take no timeout.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, TypeVar

import reverb
from reverb import errors as reverb_errors

from actor_learner.support import abandoned_calls, errors

T = TypeVar("T")

_RETRY_SECONDS = 0.1
_SLICE_SECONDS = 0.5
_SILENT_SECONDS = 10.0
_INFO_SLICE_SECONDS = 5.0  # Longer: a busy server that is asked again answers no sooner.

_give_up: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "give_up", default=lambda: False
)


RUN_MARK = "@"
"""Stands in the name of a table before the id of the run that it belongs to."""


class UnknownTableError(errors.ReplayError, KeyError):
    """The server has no table of this name; the message lists those it has."""

    __str__ = Exception.__str__  # KeyError would print the message in quotes.


class ForeignTableError(UnknownTableError, errors.OtherRunError):
    """The server has no table of this run: it is that of another one, which was given its port."""


class _Caller:
    """A daemon thread that makes one call after the other, for `call_with_deadline`."""

    def __init__(self) -> None:
        self.todo: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="reverb-call", daemon=True)
        self._thread.start()

    def abandon(self) -> None:
        """Leaves it alone with its call; it ends after that, if ever."""
        self._thread.name = abandoned_calls.NAME
        self.todo.put(None)

    def _run(self) -> None:
        while True:
            call = self.todo.get()
            if call is None:
                return
            try:
                outcome = (call(), None)
            except BaseException as error:  # noqa: B036 - re-raised in the thread that waits.
                outcome = (None, error)
            self.done.put(outcome)
            del call, outcome  # Kept until the next call otherwise, which may never come.


# Callers that have nothing to do. Starting a thread for each call took as long as many a call.
_idle_callers: list[_Caller] = []
os.register_at_fork(after_in_child=_idle_callers.clear)  # Threads do not survive that.


def call_with_deadline(
    call: Callable[[], T], timeout_seconds: float, timeout_error: Callable[[], Exception]
) -> T:
    """Runs `call()` and returns its result, or raises `timeout_error()` once the time is up.

    `call` runs in a daemon thread, which stays behind when the time is up: give it only calls that
    release the interpreter lock while they wait, as Reverb's do. What `call` raises is re-raised.
    """
    try:
        caller = _idle_callers.pop()
    except IndexError:
        caller = _Caller()
    caller.todo.put(call)
    try:
        result, error = caller.done.get(timeout=max(0.0, timeout_seconds))
    except queue.Empty:
        caller.abandon()
        raise timeout_error() from None
    except BaseException:  # Such as KeyboardInterrupt: its result must not become another's.
        caller.abandon()
        raise
    _idle_callers.append(caller)
    if error is not None:
        raise error
    return result


@contextlib.contextmanager
def giving_up_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Cuts waits for tables and of `wait_in_slices` in this thread short once the condition holds.

    For processes that are asked to end while an observer waits, deep inside, for its server.
    """
    token = _give_up.set(condition)
    try:
        yield
    finally:
        _give_up.reset(token)


def given_up() -> bool:
    """Whether the condition of `giving_up_when` holds in this thread."""
    return _give_up.get()()


def wait_in_slices(
    call: Callable[[int], None],
    timeout_seconds: float,
    on_long_wait: Callable[[], None] = lambda: None,
) -> None:
    """Runs `call(timeout_ms)` again and again until it succeeds or the time is up.

    Calls `on_long_wait` once, after ten seconds.

    Raises:
      reverb.errors.DeadlineExceededError: If the time is up, or `giving_up_when` says so.
    """
    deadline = time.monotonic() + timeout_seconds
    said = False
    while True:
        left = deadline - time.monotonic()
        if not said and timeout_seconds - left >= _SILENT_SECONDS:
            said = True
            on_long_wait()
        try:
            call(max(1, int(1000 * min(left, _SLICE_SECONDS))))
            return
        except reverb_errors.DeadlineExceededError:
            if left <= _SLICE_SECONDS or given_up():
                raise


def no_answer(address: str, timeout_seconds: float) -> errors.ReplayTimeoutError:
    """The error for a server that does not answer."""
    return errors.ReplayTimeoutError(
        f"no Reverb server answered at {address} within {timeout_seconds:g} s: it is not running, "
        f"has stopped, or listens elsewhere; start it first, or correct the address"
    )


def fetch_tables(
    client: reverb.Client, timeout_seconds: float
) -> dict[str, reverb.reverb_types.TableInfo]:
    """Asks the server for all its tables; blocks up to `timeout_seconds`, rounded up to a second.

    Raises:
      errors.ReplayTimeoutError: If the server does not answer in time, or `giving_up_when` says so.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return client.server_info(timeout=max(1, math.ceil(min(left, _INFO_SLICE_SECONDS))))
        except reverb_errors.DeadlineExceededError as error:
            if left <= _INFO_SLICE_SECONDS or given_up():
                raise no_answer(client.server_address, timeout_seconds) from error
        except RuntimeError as error:  # The connection broke off: the server ends or restarts.
            if left <= 0 or given_up():
                raise no_answer(client.server_address, timeout_seconds) from error
            time.sleep(min(_RETRY_SECONDS, left))


def fetch_table(
    client: reverb.Client, table: str, timeout_seconds: float
) -> reverb.reverb_types.TableInfo:
    """Asks the server for one table; otherwise like `fetch_tables`.

    Raises:
      UnknownTableError: If the server has no such table.
    """
    tables = fetch_tables(client, timeout_seconds)
    try:
        return tables[table]
    except KeyError:
        raise (ForeignTableError if RUN_MARK in table else UnknownTableError)(
            f"the server at {client.server_address} has no table {table!r}; "
            f"it has {', '.join(map(repr, sorted(tables)))}"
        ) from None

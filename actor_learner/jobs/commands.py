"""What jobs and controllers say to each other over the wire, and the commands that wait."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from typing import Callable, NamedTuple

from absl import logging

from actor_learner.jobs import states
from actor_learner.messaging import protocol

STATUS = "status"
"""The request that every job answers at once, even during a poll, with its `status.Status`."""

COMMAND = "command"
"""The request to obey one of `states.COMMANDS`, answered when it is obeyed, between two polls."""

PING = "ping"
"""The request for a sign of life, answered at once."""

UNUSED_BINDINGS = "unused_bindings"
"""The request for the bindings that a job has not used; the answer holds None before it knows."""

_MAX_WAITING = 1_000


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a worker answered.

    Attributes:
      state: The worker's, after the command.
      error: Why it refused; None if it obeyed.
      poll_seconds: How long its present poll has lasted.
    """

    state: str
    error: str | None = None
    poll_seconds: float = 0.0


class _Waiting(NamedTuple):
    request: protocol.Request
    command: str
    received: float
    seconds: float


class Commands:
    """Keeps commands from the wire's thread until the worker's own thread obeys them.

    Args:
      who: Whose they are, for messages.
      on_command: Called, in the wire's thread, with each command that has come.
    """

    def __init__(self, who: str, on_command: Callable[[str], None]) -> None:
        self._who = who
        self._on_command = on_command
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._lock = threading.Lock()
        self._last_state: Callable[[], str] | None = None

    def take(self, request: protocol.Request) -> None:
        """Handles a request of kind `COMMAND`, in the wire's thread."""
        command, seconds = request.body.get("command"), request.body.get("seconds")
        if not isinstance(command, str) or not isinstance(seconds, (int, float)):
            request.refuse("a command has a name, 'command', and 'seconds' to wait for its answer")
            return
        states.check_command(command)
        with self._lock:
            over = self._last_state
            if over is None and len(self._waiting) >= _MAX_WAITING:
                request.refuse(f"{_MAX_WAITING:,} commands wait for {self._who} already")
                return
            if over is None:
                self._waiting.append(_Waiting(request, command, time.monotonic(), seconds))
        if over is not None:
            self._answer_late(request, command, over())
            return
        self._on_command(command)

    def next(self) -> tuple[protocol.Request, str] | None:
        """The next command whose sender still waits; None if there is none."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                waiting = self._waiting.popleft()
            age = time.monotonic() - waiting.received
            if age <= waiting.seconds:
                return waiting.request, waiting.command
            logging.warning(
                "'%s' came %.1f s ago and nobody waits for the answer any more: not obeyed",
                waiting.command,
                age,
            )

    def end(self, state: Callable[[], str]) -> None:
        """Answers all that wait and all that will come: the worker obeys no longer, it is ending.

        Args:
          state: The worker's state, for the answers.
        """
        with self._lock:
            self._last_state = state
            left = list(self._waiting)
            self._waiting.clear()
        for waiting in left:
            self._answer_late(waiting.request, waiting.command, state())

    def _answer_late(self, request: protocol.Request, command: str, state: str) -> None:
        """An exit is what happens anyway; all else comes too late."""
        if command == states.EXIT:
            request.answer({"state": state})
        else:
            request.refuse(f"{self._who} is ending")

"""Inference on a second thread, so that one group is stepped while another's actions are computed.

Worth it where stepping releases the GIL, as native environments and environments in processes of
their own do, and takes about as long as inference.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import protocol
from actor_learner.support import errors

_VOICE_SECONDS = 10.0
_CLOSE_SECONDS = 30.0


class _Request(NamedTuple):
    group: int
    time_step: ts.TimeStep


class _Failure(NamedTuple):
    error: BaseException


class ThreadedInference:
    """Answers requests in their order, on a thread of its own.

    What inference raises is raised by `result`, to whoever waits; the thread then goes on with the
    next request. `refresh` and `reset` wait for the inference that is under way.

    Args:
      groups: The inference of each group of lanes, used by nobody else.
      name: Of the thread, for messages.
    """

    def __init__(self, groups: Sequence[protocol.GroupInference], name: str = "inference") -> None:
        self._groups = tuple(groups)
        self._name = name
        self._requests: queue.SimpleQueue[_Request | threading.Event | None] = queue.SimpleQueue()
        self._answers = [queue.SimpleQueue() for _ in self._groups]
        self._under_way = [False] * len(self._groups)
        self._computing = threading.Lock()
        self._busy_with: tuple[int, float] | None = None  # Group, and since when.
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def kind(self) -> str:
        return protocol.kind_of(self._groups[0])

    def reset(self, group: int) -> None:
        """Forgets the policy state of a group, which must have no request under way."""
        self._refuse_under_way(group)
        with self._between_inferences(f"a reset of group {group}"):
            self._groups[group].reset()

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Acts with the policy's variables as they are now.

        Requests that are under way may be answered by these or by those before; the answer says.
        """
        with self._between_inferences("a refresh"):
            for group in self._groups:
                group.refresh(version, epoch, certain=certain)

    def request(self, group: int, time_step: ts.TimeStep) -> int:
        if self._closed:
            raise errors.InferenceError(f"the inference thread {self._name!r} has been closed")
        self._refuse_under_way(group)
        self._under_way[group] = True
        self._requests.put(_Request(group, time_step))
        return group  # Of one request at a time, that says it all.

    def result(self, ticket: int, timeout_seconds: float | None = None) -> protocol.Response:
        if not self._under_way[ticket]:
            raise errors.InferenceError(f"group {ticket} has not asked for actions")
        answer = self._wait(ticket, timeout_seconds)
        self._under_way[ticket] = False
        if isinstance(answer, _Failure):
            raise answer.error
        return answer

    def close(self) -> None:
        """Ends the thread after the inference that is under way; safe to call twice."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            logging.error(
                "The inference thread %r is left behind: %s.", self._name, self._what_it_does()
            )

    def _wait(self, group: int, timeout_seconds: float | None) -> Any:
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            left = _VOICE_SECONDS
            if timeout_seconds is not None:
                left = min(left, timeout_seconds - waited)
            try:
                return self._answers[group].get(timeout=max(0.0, left))
            except queue.Empty:
                waited = time.monotonic() - began
            who = (
                f"group {group} has waited {waited:.1f} s for its actions from the thread "
                f"{self._name!r}, which {self._what_it_does()}"
            )
            if self._closed and not self._thread.is_alive() and self._answers[group].empty():
                raise errors.InferenceError(f"{who}: nobody will answer")
            if timeout_seconds is not None and waited >= timeout_seconds:
                raise errors.InferenceTimeoutError(who)
            logging.warning("%s.", who[0].upper() + who[1:])

    def settle(self) -> None:
        """Waits until all that was asked for is computed, though nobody has taken it.

        Call it before variables change that the groups read in every call.
        """
        settled = threading.Event()
        if not self._closed:
            self._requests.put(settled)
        began = time.monotonic()
        while self._thread.is_alive() and not settled.wait(_VOICE_SECONDS):
            logging.warning(
                "An actor that ends its run has waited %.1f s for the thread %r, which %s.",
                time.monotonic() - began,
                self._name,
                self._what_it_does(),
            )

    @contextlib.contextmanager
    def _between_inferences(self, what: str) -> Iterator[None]:
        """Keeps the thread from computing; says in the log what waits for it if that takes long."""
        began = time.monotonic()
        while not self._computing.acquire(timeout=_VOICE_SECONDS):
            logging.warning(
                "%s has waited %.1f s for the thread %r, which %s.",
                what[0].upper() + what[1:],
                time.monotonic() - began,
                self._name,
                self._what_it_does(),
            )
        try:
            yield
        finally:
            self._computing.release()

    def _what_it_does(self) -> str:
        busy_with = self._busy_with
        if not self._thread.is_alive():
            return "has been closed"
        if busy_with is None:
            return "has nothing to do"
        group, since = busy_with
        return f"has been busy with group {group} for {time.monotonic() - since:.1f} s"

    def _refuse_under_way(self, group: int) -> None:
        if self._under_way[group]:
            raise errors.InferenceError(
                f"group {group} has a request under way: take its result first"
            )

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            if self._closed:
                break
            if isinstance(request, threading.Event):
                request.set()
                continue
            group, time_step = request
            with self._computing:
                self._busy_with = (group, time.monotonic())
                try:
                    answer: Any = self._groups[group].act(time_step)
                except BaseException as error:  # For whoever waits: it must not end the thread.
                    answer = _Failure(error)
                self._busy_with = None
            self._answers[group].put(answer)

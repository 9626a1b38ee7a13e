"""Serves the requests of many clients in batches: what has arrived is computed by one call.

What is served is a `Service`: a policy (`policy_service`), or whatever a user's own worker computes
from arrays of its own. Requests are checked against the service's spec before anything else looks
at them, and nothing in them is executed.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from absl import logging

from actor_learner.messaging import messages
from actor_learner.messaging import protocol as wire_protocol
from actor_learner.support import errors

INFER = "infer"
"""The request that an `InferenceServer` answers unless it is given another name."""

UNKNOWN_STATE = "unknown state"
"""How a refusal begins where the server should hold the state of a group, and does not."""

_MAX_GROUPS = 20_000
_BODY = {"client": str, "group": int, "ticket": int, "held": bool, "begin": bool}


class Answer(NamedTuple):
    """What a service computes for one batch.

    Attributes:
      arrays: By name, leaves `[rows, ...]`, one row for each row of the batch.
      state: Leaves `[rows, ...]` of the state after it, as `Service.state_spec` names them.
      body: Plain values that every answer of the batch carries, such as a version.
    """

    arrays: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    body: Mapping[str, Any]


class Service(Protocol):
    """Computes answers for rows that come from many clients.

    Attributes:
      request_spec: Arrays of a request; the first dimension is None, for its rows.
      state_spec: Arrays of the state that is kept for each row, likewise; empty if there is none.
    """

    request_spec: Mapping[str, messages.ArraySpec]
    state_spec: Mapping[str, messages.ArraySpec]

    def initial_state(self, num_rows: int) -> Mapping[str, np.ndarray]:
        """The state that rows begin with."""

    def answer(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> Answer:
        """Computes one batch, leaves `[rows, ...]`, on the thread that serves."""


class _Group:
    """What is known of one group of one client.

    Attributes:
      ticket: Of its latest request.
      waiting: That request, while it has no answer.
      answer: Body and arrays of the answer, for a client that asks for it again.
      state: After that request, if the server holds it.
    """

    def __init__(self) -> None:
        self.ticket = -1
        self.waiting: list[wire_protocol.Request] = []
        self.answer: tuple[Mapping[str, Any], Mapping[str, np.ndarray]] | None = None
        self.state: Mapping[str, np.ndarray] | None = None


class _Arrived(NamedTuple):
    """A request that waits for its batch."""

    group: _Group
    ticket: int
    rows: int
    arrays: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    held: bool
    at: float


class InferenceServer:
    """Answers requests in batches, on the thread that calls `serve`.

    ```python
    server = InferenceServer(job.wire, service, max_batch=256, max_delay_seconds=0.001)
    while working:
        server.serve(0.1)
    ```

    A batch is what has arrived, up to `max_batch` rows, and begins as soon as these are there or
    the oldest request is `max_delay_seconds` old. Requests are told apart by client, group and
    ticket: one that comes again, because its answer was lost, gets the same answer, and the state
    that the server holds advances once.

    Args:
      wire: Where requests come in; its owner closes it.
      service: Computes the answers.
      max_batch: Rows of a batch at most; a single request must not have more.
      max_delay_seconds: How long a request may wait for others; 0 takes what has arrived while the
        batch before was computed.
      kind: Name of the request on the wire.
    """

    def __init__(
        self,
        wire: wire_protocol.Server,
        service: Service,
        *,
        max_batch: int,
        max_delay_seconds: float = 0.0,
        kind: str = INFER,
    ) -> None:
        if max_batch < 1 or max_delay_seconds < 0:
            raise errors.ConfigError(
                f"max_batch must be at least 1, got {max_batch}, and max_delay_seconds 0 or more, "
                f"got {max_delay_seconds}"
            )
        self._service = service
        self._max_batch = max_batch
        self._max_delay_seconds = max_delay_seconds
        self._groups: collections.OrderedDict[tuple[str, int], _Group] = collections.OrderedDict()
        self._queue: collections.deque[_Arrived] = collections.deque()
        self._rows = 0  # Of the queue.
        self._arrived = threading.Condition()
        self._closed = False
        self.requests = 0
        self.batches = 0
        self.batch_sizes: collections.Counter[int] = collections.Counter()
        wire.handle(kind, self._take)

    @property
    def waiting(self) -> int:
        """Requests that wait for their batch."""
        return len(self._queue)

    def histogram(self) -> dict[str, int]:
        """How many batches had how many rows, by powers of two: `{"1": 3, "2-3": 0, "4-7": 9}`."""
        sizes = dict(self.batch_sizes)  # Another thread may be counting.
        found: dict[str, int] = {}
        least = 1
        while least <= max(sizes, default=0):
            most = 2 * least - 1
            name = str(least) if least == most else f"{least}-{most}"
            found[name] = sum(sizes.get(size, 0) for size in range(least, most + 1))
            least *= 2
        return found

    def serve(self, seconds: float) -> int:
        """Answers what arrives within so many seconds.

        Returns:
          How many batches it has computed.
        """
        deadline = time.monotonic() + seconds
        served = 0
        while (batch := self._next_batch(deadline)) is not None:
            self._compute(batch)
            served += 1
        return served

    def close(self) -> None:
        """Drops what waits, and whatever still comes; safe to call twice.

        A refusal would be an error to those who ask; without an answer they ask another server.
        """
        with self._arrived:
            self._closed = True
            self._queue.clear()
            self._rows = 0
            self._arrived.notify_all()

    def _take(self, request: wire_protocol.Request) -> None:
        """Takes a request, in the wire's thread.

        Raises:
          messages.BadMessageError: If it is not what the service's spec says.
        """
        body = _checked_body(request.body)
        with self._arrived:
            if self._closed:
                return
            key = (body["client"], body["group"])
            group = self._groups.get(key)
            if group is not None and body["ticket"] <= group.ticket:
                self._repeat(group, body["ticket"], request)
                return
            rows, arrays, state = self._checked_arrays(request.message, body["held"])
            if body["held"] and self._service.state_spec:
                if body["begin"]:
                    state = self._service.initial_state(rows)
                elif group is None or group.state is None:
                    request.refuse(f"{UNKNOWN_STATE}: no state is held for this group")
                    return
                else:
                    state = group.state
            if group is None:
                group = self._groups[key] = _Group()
                while len(self._groups) > _MAX_GROUPS:
                    self._groups.popitem(last=False)  # The one that has asked least lately.
            self._groups.move_to_end(key)
            group.ticket, group.waiting, group.answer = body["ticket"], [request], None
            arrived = _Arrived(
                group, body["ticket"], rows, arrays, state, body["held"], time.monotonic()
            )
            self._queue.append(arrived)
            self._rows += rows
            self._arrived.notify_all()

    def _repeat(self, group: _Group, ticket: int, request: wire_protocol.Request) -> None:
        """Answers a request that has come before."""
        if ticket < group.ticket:
            request.refuse(f"ticket {ticket} is older than the latest, {group.ticket}")
        elif group.answer is None:
            group.waiting.append(request)  # It is answered with the one before.
        else:
            request.answer(*group.answer)

    def _checked_arrays(
        self, message: messages.Message, held: bool
    ) -> tuple[int, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
        service = self._service
        carried = {} if held else service.state_spec
        messages.require_arrays(message, {**service.request_spec, **carried})
        sizes = {array.shape[0] for array in message.arrays.values()}
        if len(sizes) != 1:
            raise messages.BadMessageError(f"arrays of {sorted(sizes)} rows in one request")
        (rows,) = sizes
        if not 0 < rows <= self._max_batch:
            raise messages.BadMessageError(
                f"a request of {rows} rows, but a batch has 1 to {self._max_batch} (max_batch)"
            )
        return (
            rows,
            {name: message.arrays[name] for name in service.request_spec},
            {name: message.arrays[name] for name in carried},
        )

    def _next_batch(self, deadline: float) -> list[_Arrived] | None:
        """Waits for a batch; None if none has begun by the deadline."""
        with self._arrived:
            while True:
                now = time.monotonic()
                until = deadline
                if self._queue:
                    due = self._queue[0].at + self._max_delay_seconds
                    if self._rows >= self._max_batch or now >= due:
                        break
                    until = min(due, deadline)
                if now >= deadline or self._closed:
                    return None
                self._arrived.wait(until - now)
            batch, rows = [], 0
            while self._queue and rows + self._queue[0].rows <= self._max_batch:
                batch.append(self._queue.popleft())
                rows += batch[-1].rows
            self._rows -= rows
            return batch

    def _compute(self, batch: Sequence[_Arrived]) -> None:
        service = self._service
        rows = sum(each.rows for each in batch)
        try:
            answer = service.answer(
                _joined([each.arrays for each in batch], service.request_spec),
                _joined([each.state for each in batch], service.state_spec),
            )
        except Exception as error:  # For the clients that wait: others are still to be served.
            logging.exception("A batch of %d rows failed.", rows)
            for each in batch:
                self._refuse(each.group, f"{type(error).__name__}: {error}")
            return
        self.requests += len(batch)
        self.batches += 1
        self.batch_sizes[rows] += 1
        first = 0
        for each in batch:
            own = slice(first, first + each.rows)
            first += each.rows
            arrays = {name: array[own] for name, array in answer.arrays.items()}
            state = {name: array[own] for name, array in answer.state.items()}
            if not each.held:
                arrays.update(state)
            with self._arrived:
                group = each.group
                if group.ticket != each.ticket:
                    continue  # Its client was forgotten, and has begun again.
                waiting, group.waiting = group.waiting, []
                group.answer = (answer.body, arrays)
                group.state = state if each.held else None
            for request in waiting:
                request.answer(answer.body, arrays)

    def _refuse(self, group: _Group, why: str) -> None:
        with self._arrived:
            waiting, group.waiting = group.waiting, []
            group.ticket -= 1  # It may be asked again.
        for request in waiting:
            request.refuse(why)


def _joined(
    parts: Sequence[Mapping[str, np.ndarray]], spec: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in spec}


def _checked_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, kind in _BODY.items():
        value = body.get(name)
        if type(value) is not kind or (kind is int and not 0 <= value < 1 << 62):
            raise messages.BadMessageError(
                f"a request whose {name!r} is {str(value)[:80]!r}, not a {kind.__name__}"
            )
    if len(body["client"]) > 64:
        raise messages.BadMessageError("a request whose 'client' has more than 64 characters")
    return body

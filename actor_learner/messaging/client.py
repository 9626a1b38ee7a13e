"""The end of the wire that asks: connects again by itself, and never delivers a request late."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Mapping
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
import zmq
from absl import logging

from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import loop, messages, protocol

MAX_FRAME_BYTES = 1 << 30
_TICK_SECONDS = 0.1
_WARN_SECONDS = 30
_CONNECT_MS = 3_000


class _Pending(NamedTuple):
    """A request that has no answer yet."""

    answer: futures.Future
    frames: list[bytes]
    kind: str
    began: float
    deadline: float


class Client(protocol.Client):
    """Asks a server, and follows its topics; see `protocol`. Any thread may use it.

    A server that is away is connected to again by itself. Requests that cannot be delivered wait
    until their deadline, and are never delivered after it; one whose answer was lost with the
    server is not asked again unless `resend_seconds` says so.

    Args:
      address: `tcp://host:port`, what the server's `address` says.
      who: What to call this end in the server's words, e.g. `actor-3`.
      keys: Of the run; None for none.
      context: Of ZeroMQ, to share among many clients, which its owner ends; None for its own.
      resend_seconds: Ask again, with the same id, if no answer has come for so long; for servers
        that take the same request twice as once. None never does.
    """

    def __init__(
        self,
        address: str,
        *,
        who: str,
        keys: keys_lib.RunKeys | None = None,
        resend_seconds: float | None = None,
        context: zmq.Context | None = None,
    ) -> None:
        self.address = address
        self._who = who
        self._resend_seconds = resend_seconds
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._unsent: dict[int, None] = {}  # In order.
        self._sent_at: dict[int, float] = {}
        self._listeners: dict[str, protocol.Listener] = {}
        self._renewed_at = 0.0
        self._heard_at = time.monotonic()
        self._told_at = -math.inf
        self._lock = threading.Lock()
        self._closed = False
        self._own_context = zmq.Context() if context is None else None
        context = context or self._own_context
        socket = context.socket(zmq.DEALER)
        socket.identity = who.encode()[:200] + b"#" + os.urandom(8).hex().encode()
        # Nothing waits in a queue for a server that is away: it might obey hours later.
        socket.immediate = True
        socket.maxmsgsize = MAX_FRAME_BYTES
        socket.ipv6 = "[" in address
        socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 1_000
        socket.connect_timeout = _CONNECT_MS
        socket.heartbeat_ivl, socket.heartbeat_timeout = 2_000, 6_000
        if keys is not None:
            keys_lib.secure_client(socket, keys)
        socket.connect(address)
        self._loop = loop.SocketLoop(
            f"wire to {address}",
            socket,
            on_frames=self._take,
            on_tick=self._tick,
            tick_seconds=_TICK_SECONDS,
        )

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self._heard_at

    def submit(
        self,
        kind: str,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        *,
        timeout_seconds: float,
    ) -> futures.Future[messages.Message]:
        id_ = next(self._ids)
        message = messages.Message(kind, body or {}, arrays or {}, id_)
        frames = [bytes(frame) for frame in messages.encode(message)]
        now = time.monotonic()
        pending = _Pending(futures.Future(), frames, kind, now, now + timeout_seconds)
        with self._lock:
            if self._closed:
                raise protocol.NoAnswerError(f"the wire of {self._who} to {self.address} is closed")
            self._pending[id_] = pending
        self._loop.call(lambda: self._send(id_))
        return pending.answer

    def follow(self, topic: str, listener: protocol.Listener) -> None:
        self._listeners[topic] = listener
        self._renewed_at = 0.0
        self._loop.call(lambda: None)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.close()
        for pending in self._pending.values():
            self._fail(pending, "was closed")
        self._pending.clear()
        if self._own_context is not None:
            self._own_context.destroy(linger=0)

    def _send(self, id_: int) -> None:
        pending = self._pending.get(id_)
        if pending is None or time.monotonic() > pending.deadline:
            return
        if self._loop.send(pending.frames):
            self._unsent.pop(id_, None)
            self._sent_at[id_] = time.monotonic()
        else:
            self._unsent[id_] = None

    def _take(self, frames: list[bytes]) -> None:
        try:
            message = messages.decode(frames)
        except messages.BadMessageError as error:
            logging.log_every_n_seconds(
                logging.WARNING,
                "%s dropped what is not a message from %s: %s",
                _WARN_SECONDS,
                self._who,
                self.address,
                error,
            )
            return
        self._heard_at = time.monotonic()
        if message.id == 0:
            listener = self._listeners.get(message.kind)
            if listener is not None:
                self._told_at = self._heard_at
                listener(message)
            return
        pending = self._forget(message.id)
        if pending is None:
            return  # It came too late, or twice.
        if message.error is None:
            pending.answer.set_result(message)
        else:
            pending.answer.set_exception(protocol.RefusedError(message.error))

    def _tick(self) -> None:
        now = time.monotonic()
        for id_, pending in list(self._pending.items()):
            if now > pending.deadline:
                self._forget(id_)
                self._fail(pending, "has not answered")
        for id_ in list(self._unsent):
            self._send(id_)
        if self._resend_seconds is not None:
            for id_, sent_at in list(self._sent_at.items()):
                if now - sent_at > self._resend_seconds:
                    self._send(id_)
        told = now - self._told_at <= protocol.RENEW_SECONDS
        pause = protocol.RENEW_TOLD_SECONDS if told else protocol.RENEW_SECONDS
        if self._listeners and now - self._renewed_at > pause:
            self._renew(now)

    def _renew(self, now: float) -> None:
        for topic in list(self._listeners):
            # With an id that no request has: its answer only shows that the server is there.
            message = messages.Message(protocol.FOLLOW, {"topic": topic}, id=(1 << 63) - 1)
            if self._loop.send(messages.encode(message)):
                self._renewed_at = now

    def _forget(self, id_: int) -> _Pending | None:
        self._unsent.pop(id_, None)
        self._sent_at.pop(id_, None)
        with self._lock:
            return self._pending.pop(id_, None)

    def _fail(self, pending: _Pending, what: str) -> None:
        seconds = time.monotonic() - pending.began
        pending.answer.set_exception(
            protocol.NoAnswerError(
                f"{self._who} asked {self.address} for {pending.kind!r}; it {what} after "
                f"{seconds:.1f} s"
            )
        )

"""The end of the wire that answers: one socket per job, for requests and for topics."""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import zmq
from absl import logging

from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import loop, messages, protocol
from actor_learner.support import errors

MAX_FRAME_BYTES = 1 << 30
_TICK_SECONDS = 0.1
_MAX_FOLLOWERS = 100_000
_WARN_SECONDS = 30
_READING_SECONDS = 0.2
_MAX_UNSENT = 10_000
_UNSENT_SECONDS = 10.0
_FORGET_SECONDS = 0.5
_REST_SECONDS, _REST_PER_FOLLOWER = 0.02, 0.0001
_LARGE_BYTES = 1 << 14


class _Topic:
    """Who follows a topic, and what they were told last; changed by the socket's thread only.

    Attributes:
      followers: By client, until when, if it does not renew.
      names: Of the followers; replaced as a whole, for readers in other threads.
      latest: The frames of what was published last; None before the first.
    """

    def __init__(self) -> None:
        self.followers: dict[bytes, float] = {}
        self.names: list[str] = []
        self.latest: list[bytes] | None = None

    def add(self, client: bytes, until: float) -> None:
        if client not in self.followers:
            self.names = [*self.names, _who(client)]
        self.followers[client] = until

    def forget_the_silent(self, now: float) -> None:
        silent = [client for client, until in self.followers.items() if until < now]
        for client in silent:
            del self.followers[client]
        if silent:
            self.names = [_who(client) for client in self.followers]


class Server(protocol.Server):
    """Answers requests and publishes topics; see `protocol`.

    Args:
      handlers: By kind of request, what answers it; `handle` adds more.
      topics: What may be followed; `add_topic` adds more.
      host: Address to listen on. Beyond loopback the run's keys are required.
      port: Port to listen on; 0 for any free one.
      keys: Of the run; None for none.
      name: Of the thread.

    Attributes:
      port: Where it listens.
      address: What a client on this machine connects to.
      refused_frames: How many messages were dropped because they are not ours.

    Raises:
      errors.JobError: If it cannot listen there.
    """

    def __init__(
        self,
        handlers: Mapping[str, protocol.Handler],
        *,
        topics: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        keys: keys_lib.RunKeys | None = None,
        name: str = "wire",
    ) -> None:
        keys_lib.require_for(host, keys)
        for kind in handlers:
            protocol.check_kind(kind)
        # Both are replaced as a whole, never changed: the socket's thread reads them unlocked.
        self._handlers = {protocol.FOLLOW: self._follow, **handlers}
        self._changing = threading.Lock()
        self._topics = {topic: _Topic() for topic in topics}
        self._forgot_at = math.inf  # Until the loop is there.
        self._large: tuple[np.ndarray | None, zmq.Frame | None] = (None, None)
        self.refused_frames = 0
        self._sent_at = float("-inf")
        self._unsent: collections.deque[tuple[float, Sequence[loop.Frame]]] = collections.deque()
        # A context of its own: it has its own idea of who may connect.
        self._context = zmq.Context()
        socket = self._context.socket(zmq.ROUTER)
        socket.router_mandatory = True  # Says so when a client is gone, instead of dropping.
        socket.maxmsgsize = MAX_FRAME_BYTES
        socket.ipv6 = ":" in host
        self._authenticator = keys_lib.secure_server(socket, keys) if keys else None
        at = f"[{host}]" if ":" in host else host
        try:
            socket.bind(f"tcp://{at}:{port or '*'}")
        except zmq.ZMQError as error:
            socket.close()
            self._end_context()
            raise errors.JobError(f"cannot listen on {host}:{port}: {error}") from error
        self.port = int(socket.last_endpoint.decode().rpartition(":")[2])
        self.address = f"tcp://{'127.0.0.1' if host == '0.0.0.0' else at}:{self.port}"
        self._loop = loop.SocketLoop(
            name,
            socket,
            on_frames=self._take,
            on_tick=self._tick,
            tick_seconds=_TICK_SECONDS,
        )
        self._forgot_at = time.monotonic()
        self._closed = False

    def handle(self, kind: str, handler: protocol.Handler) -> None:
        protocol.check_kind(kind)
        with self._changing:
            self._handlers = {**self._handlers, kind: handler}

    def add_topic(self, topic: str) -> None:
        with self._changing:
            if topic not in self._topics:
                self._topics = {**self._topics, topic: _Topic()}

    def publish(
        self,
        topic: str,
        body: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        # A follower that is too slow misses what it has no room for, never the last one of a series
        # for longer than it takes to renew its following.
        published = self._topics.get(topic)
        if published is None:
            raise ValueError(f"there is no topic {topic!r}, only {sorted(self._topics)}")
        frames = [bytes(f) for f in messages.encode(messages.Message(topic, body, arrays or {}))]

        def send() -> None:
            published.latest = frames
            for client in published.followers:
                self._send([client, *frames])

        self._loop.call(send)

    def followers(self, topic: str) -> Sequence[str]:
        return self._topics[topic].names

    def close(self) -> None:
        """Sends what was answered so far, and ends; safe to call twice.

        Waits a fifth of a second if something was sent just now: a client drops what has reached it
        and was not read yet when it sees that the connection has ended.
        """
        if self._closed:
            return
        self._closed = True
        time.sleep(max(0.0, self._sent_at + _READING_SECONDS - time.monotonic()))
        self._loop.close()
        self._end_context()

    def _end_context(self) -> None:
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=1_000)

    def _take(self, frames: list[bytes]) -> None:
        client, *rest = frames
        try:
            message = messages.decode(rest)
        except messages.BadMessageError as error:
            self.refused_frames += 1
            logging.log_every_n_seconds(
                logging.WARNING, "Dropped what is not a message: %s", _WARN_SECONDS, error
            )
            return

        def send(answer: messages.Message) -> None:
            encoded = self._encoded(answer)
            self._sent_at = time.monotonic()  # Or soon: whoever closes next must know of it.
            self._loop.call(lambda: self._answer([client, *encoded]))

        request = _Request(message, client, send)
        error = protocol.dispatch(self._handlers, request)
        if error is not None:
            logging.error("A request %r of %s failed", message.kind, request.who, exc_info=error)

    def _encoded(self, message: messages.Message) -> list[loop.Frame]:
        """The frames of an answer; those of a large array that nobody can change are made once.

        Hundreds of clients ask for the same policy, and ZeroMQ shares the memory of such a frame.
        """
        frames = messages.encode(message)
        for index, array in enumerate(message.arrays.values(), 1):
            if array.nbytes >= _LARGE_BYTES and not array.flags.writeable:
                kept, frame = self._large
                if kept is not array:
                    frame = zmq.Frame(frames[index], copy=True)
                    self._large = (array, frame)
                frames[index] = frame
        return frames

    def _follow(self, request: protocol.Request) -> None:
        name = request.body.get("topic")
        topic = self._topics.get(name) if isinstance(name, str) else None
        if topic is None:
            request.refuse(f"there is no topic {str(name)[:80]!r}, only {sorted(self._topics)}")
            return
        client = request.client
        if client not in topic.followers and len(topic.followers) >= _MAX_FOLLOWERS:
            request.refuse(f"{_MAX_FOLLOWERS:,} clients follow {name!r} already")
            return
        topic.add(client, time.monotonic() + protocol.LEASE_SECONDS)
        request.answer()
        # At every renewal: a follower that missed it has it then.
        if topic.latest is not None:
            self._send([client, *topic.latest])

    def _send(self, frames: Sequence[loop.Frame]) -> bool | None:
        self._sent_at = time.monotonic()
        return self._loop.send(frames)

    def _answer(self, frames: Sequence[loop.Frame]) -> None:
        """Sends an answer, later if the client has no room for it now: thousands came at once."""
        if (self._unsent or self._send(frames) is False) and len(self._unsent) < _MAX_UNSENT:
            self._unsent.append((time.monotonic() + _UNSENT_SECONDS, frames))

    def _send_rest(self) -> None:
        now = time.monotonic()
        for _ in range(len(self._unsent)):
            deadline, frames = self._unsent.popleft()
            if now < deadline and self._send(frames) is False:
                self._unsent.append((deadline, frames))

    def _tick(self) -> None:
        self._send_rest()
        now = time.monotonic()
        if now - self._forgot_at >= _FORGET_SECONDS:  # Ticks come with every message.
            self._forgot_at = now
            for topic in self._topics.values():
                topic.forget_the_silent(now)
            followers = max((len(topic.followers) for topic in self._topics.values()), default=0)
            self._loop.rest_seconds = min(_REST_SECONDS, followers * _REST_PER_FOLLOWER)


class _Request(protocol.Request):
    """A request that came over a socket."""

    def __init__(self, message: messages.Message, client: bytes, send: Any) -> None:
        super().__init__(message, _who(client), send)
        self.client = client


def _who(client: bytes) -> str:
    """A client's name for itself, without what makes it unique."""
    return client.rpartition(b"#")[0].decode("utf-8", "replace") or client.hex()

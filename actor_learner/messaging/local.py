"""The wire within one process: the same two ends, joined by plain calls."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from actor_learner.messaging import messages, protocol


class LocalServer(protocol.Server):
    """Answers the requests of its own clients, in their threads; see `protocol`.

    Args:
      handlers: By kind of request, what answers it; `handle` adds more.
      topics: What may be followed; `add_topic` adds more.
    """

    def __init__(
        self, handlers: Mapping[str, protocol.Handler], *, topics: Sequence[str] = ()
    ) -> None:
        self._handlers = {}
        self._clients: dict[str, dict[LocalClient, protocol.Listener]] = {
            topic: {} for topic in topics
        }
        self._latest: dict[str, messages.Message] = {}
        self._lock = threading.RLock()
        for kind, handler in handlers.items():
            self.handle(kind, handler)

    def client(self, who: str) -> LocalClient:
        """A client of this server."""
        return LocalClient(self, who)

    def handle(self, kind: str, handler: protocol.Handler) -> None:
        protocol.check_kind(kind)
        with self._lock:
            self._handlers = {**self._handlers, kind: handler}

    def add_topic(self, topic: str) -> None:
        with self._lock:
            if topic not in self._clients:
                self._clients = {**self._clients, topic: {}}

    def publish(
        self,
        topic: str,
        body: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        if topic not in self._clients:
            raise ValueError(f"there is no topic {topic!r}, only {sorted(self._clients)}")
        message = messages.Message(topic, body, arrays or {})
        with self._lock:
            self._latest[topic] = message
            listeners = list(self._clients[topic].values())
        for listener in listeners:
            listener(message)

    def followers(self, topic: str) -> list[str]:
        with self._lock:
            return [client.who for client in self._clients[topic]]

    def close(self) -> None:
        """Nothing is left to end."""

    def take(self, request: protocol.Request) -> None:
        """Answers a client's request; what a handler raises is the caller's to see."""
        error = protocol.dispatch(self._handlers, request)
        if error is not None:
            raise error

    def follow(self, client: LocalClient, topic: str, listener: protocol.Listener) -> None:
        """Adds a follower, and tells it what was published last."""
        with self._lock:
            if topic not in self._clients:
                raise protocol.RefusedError(
                    f"there is no topic {topic!r}, only {sorted(self._clients)}"
                )
            self._clients[topic][client] = listener
            latest = self._latest.get(topic)
        if latest is not None:
            listener(latest)

    def forget(self, client: LocalClient) -> None:
        """Removes a follower from all topics."""
        with self._lock:
            for listeners in self._clients.values():
                listeners.pop(client, None)


class LocalClient(protocol.Client):
    """Asks a `LocalServer`; see `protocol`.

    Args:
      server: Of the same process.
      who: What to call this end.
    """

    def __init__(self, server: LocalServer, who: str) -> None:
        self._server = server
        self.who = who

    @property
    def silent_seconds(self) -> float:
        return 0.0

    def submit(
        self,
        kind: str,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        *,
        timeout_seconds: float,
    ) -> futures.Future[messages.Message]:
        del timeout_seconds
        future: futures.Future[messages.Message] = futures.Future()

        def answer(message: messages.Message) -> None:
            if message.error is None:
                future.set_result(message)
            else:
                future.set_exception(protocol.RefusedError(message.error))

        message = messages.Message(kind, body or {}, arrays or {}, 1)
        self._server.take(protocol.Request(message, self.who, answer))
        return future

    def request(
        self,
        kind: str,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        *,
        timeout_seconds: float,
    ) -> messages.Message:
        try:
            future = self.submit(kind, body, arrays, timeout_seconds=timeout_seconds)
            return future.result(timeout_seconds)
        except futures.TimeoutError:
            raise protocol.NoAnswerError(
                f"{self.who} asked for {kind!r} in its own process, and had no answer after "
                f"{timeout_seconds:g} s"
            ) from None

    def follow(self, topic: str, listener: protocol.Listener) -> None:
        self._server.follow(self, topic, listener)

    def close(self) -> None:
        self._server.forget(self)

"""What the two ends of the wire look like to their users, over sockets or within one process.

A server answers requests by kind, and publishes topics. A client asks, and follows topics:

```python
with server.Server({"status": answer_status}, topics=("news",)) as learner:
    learner.publish("news", {"train_step": 7})

    with client.Client(learner.address, who="actor-3") as wire:
        wire.follow("news", lambda message: print(message.body))
        print(wire.request("status", timeout_seconds=5).body)
```

`local.LocalServer` has the same methods without any socket.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, Callable

import numpy as np

from actor_learner.messaging import messages
from actor_learner.support import errors

FOLLOW = "follow"
"""The kind of request by which a client follows a topic; repeated before the lease runs out."""

LEASE_SECONDS = 10.0
"""A client that has not renewed its following for so long is forgotten."""

RENEW_SECONDS, RENEW_TOLD_SECONDS = 2.0, 4.0
"""How often a client renews its following: one that is told nothing, and one that is."""


class NoAnswerError(errors.JobTimeoutError):
    """The other end of the wire has not answered in time."""


class RefusedError(errors.JobError):
    """The other end of the wire refused a request, and says why."""


class Request:
    """A request on its way to its answer. Any thread may answer it; the first answer counts.

    Attributes:
      message: What was asked.
      who: The client's name for itself; not proved by anything.
    """

    def __init__(
        self, message: messages.Message, who: str, send: Callable[[messages.Message], None]
    ) -> None:
        self.message = message
        self.who = who
        self._send = send
        self._lock = threading.Lock()
        self._answered = False

    @property
    def body(self) -> Mapping[str, Any]:
        """The plain values of what was asked."""
        return self.message.body

    def answer(
        self,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Answers; `arrays` must not be changed afterwards."""
        self._answer(messages.Message(self.message.kind, body or {}, arrays or {}, self.message.id))

    def refuse(self, why: str) -> None:
        """Answers that it cannot be done; the client raises `RefusedError` with these words."""
        self._answer(messages.Message(self.message.kind, id=self.message.id, error=why))

    def _answer(self, message: messages.Message) -> None:
        with self._lock:
            if not self._answered:
                self._send(message)  # Raises if it cannot be sent: then it is not answered yet.
                self._answered = True


Handler = Callable[[Request], None]
"""Called with each request of one kind, in the server's thread: it must not block. It answers at
once, or hands the request to a thread that does."""

Listener = Callable[[messages.Message], None]
"""Called with each message of a topic, in the client's thread: it must not block."""


class _End(abc.ABC):
    """Either end; a context manager that closes it."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Ends; requests under way raise `NoAnswerError`. Safe to call twice."""


class Server(_End):
    """The end that answers and publishes. Any thread may use it."""

    @abc.abstractmethod
    def handle(self, kind: str, handler: Handler) -> None:
        """Has requests of a kind answered by `handler` from now on; replaces an earlier one.

        Raises:
          ValueError: If the kind is `FOLLOW`, which the server answers itself.
        """

    @abc.abstractmethod
    def add_topic(self, topic: str) -> None:
        """Lets a topic be published and followed from now on; one that is there already stays.

        A client on a socket that wanted to follow it before asks again every `RENEW_SECONDS`.
        """

    @abc.abstractmethod
    def publish(
        self,
        topic: str,
        body: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Sends to all that follow a topic, and to whoever follows it later, until the next one.

        Does not wait for sockets; `arrays` are copied.

        Raises:
          ValueError: If there is no such topic.
        """

    @abc.abstractmethod
    def followers(self, topic: str) -> Sequence[str]:
        """Who follows a topic now, by their names for themselves; not to be changed.

        Costs next to nothing, however many they are.
        """


class Client(_End):
    """The end that asks and follows. Any thread may use it."""

    @property
    @abc.abstractmethod
    def silent_seconds(self) -> float:
        """How long nothing has come from the server."""

    @abc.abstractmethod
    def submit(
        self,
        kind: str,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        *,
        timeout_seconds: float,
    ) -> futures.Future[messages.Message]:
        """Asks without waiting; the future raises as `request` does. `arrays` are copied."""

    def request(
        self,
        kind: str,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        *,
        timeout_seconds: float,
    ) -> messages.Message:
        """Asks, and waits for the answer.

        Raises:
          NoAnswerError: If none comes in time.
          RefusedError: If the server refuses.
        """
        return self.submit(kind, body, arrays, timeout_seconds=timeout_seconds).result()

    @abc.abstractmethod
    def follow(self, topic: str, listener: Listener) -> None:
        """Has `listener` called with what is published, beginning with what was published last."""


def check_kind(kind: str) -> None:
    """Refuses a handler for what every server answers itself.

    Raises:
      ValueError: If the kind is `FOLLOW`.
    """
    if kind == FOLLOW:
        raise ValueError(f"requests of kind {FOLLOW!r} are answered by the server itself")


def dispatch(handlers: Mapping[str, Handler], request: Request) -> BaseException | None:
    """Calls the handler of a request; refuses the request if there is none, or if it raises.

    Returns:
      What the handler raised and the client cannot be blamed for; None if it did not.
    """
    handler = handlers.get(request.message.kind)
    if handler is None:
        known = ", ".join(sorted(handlers))
        request.refuse(f"there is no request {request.message.kind[:80]!r} here, only {known}")
        return None
    try:
        handler(request)
    except (messages.BadMessageError, errors.ActorLearnerError) as error:
        request.refuse(str(error))
    except Exception as error:
        request.refuse(f"{type(error).__name__}: {error}")
        return error
    return None

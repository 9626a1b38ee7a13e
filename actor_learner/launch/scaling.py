"""Requests to change the number of actors of a run, on their way to the supervisor."""

from __future__ import annotations

import collections

from actor_learner.messaging import protocol

SCALE = "scale"
"""The request by which a launcher starts further actors, or ends some."""

MAX_ACTORS = 10_000
_MAX_WAITING = 100


class ScaleRequests:
    """Keeps requests from the wire's thread until the supervisor's own thread obeys them."""

    def __init__(self) -> None:
        self._waiting: collections.deque[protocol.Request] = collections.deque()
        self._over = False

    def take(self, request: protocol.Request) -> None:
        """Handles a request of kind `SCALE`, in the wire's thread."""
        actors = request.body.get("actors")
        if isinstance(actors, bool) or not isinstance(actors, int) or not 0 < actors <= MAX_ACTORS:
            request.refuse(f"a run has 1 to {MAX_ACTORS:,} actors, not {str(actors)[:40]}")
        elif len(self._waiting) >= _MAX_WAITING:
            request.refuse(f"{_MAX_WAITING} requests of this kind are waiting already")
        else:
            self._waiting.append(request)
            if self._over:
                self.end()

    def next(self) -> tuple[protocol.Request, int] | None:
        """Returns the next request, and how many actors it asks for; None if there is none."""
        if not self._waiting:
            return None
        request = self._waiting.popleft()
        return request, request.body["actors"]

    def end(self) -> None:
        """Refuses all waiting and future requests: the run is ending."""
        self._over = True
        while self._waiting:
            self._waiting.popleft().refuse("the run is ending: it needs no other actors")

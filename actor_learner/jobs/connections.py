"""Keeps the connections of a controller to the wires of a run's jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from concurrent import futures
from typing import Any

import zmq

from actor_learner.jobs import commands
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import job_entries
from actor_learner.messaging import client as client_lib
from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import messages
from actor_learner.support import errors

STATUS_SECONDS = 2.0
"""How long a job may take to tell its status before it counts as silent."""

_KNOWN_SILENT_SECONDS = 0.05  # How long to wait for a job that was silent before.


class Connection:
    """The connection to one job, and its latest status.

    Attributes:
      lease: The process it is.
      client: Connected to its wire.
      status: The latest; None before the first.
    """

    def __init__(self, lease: job_entries.LeaseEntry, client: client_lib.Client) -> None:
        self.lease = lease
        self.client = client
        self.status: status_lib.Status | None = None
        self._asked_at: float | None = None
        self._answer: futures.Future[messages.Message] | None = None

    @property
    def silent_seconds(self) -> float:
        """How long it has not answered; 0 if it has answered the last request."""
        return 0.0 if self._asked_at is None else time.monotonic() - self._asked_at

    def ask(self) -> float:
        """Asks for its status, unless an answer is still due; returns how long to wait for it."""
        was_silent = self.silent_seconds > STATUS_SECONDS
        if self._answer is None:
            if self._asked_at is None:
                self._asked_at = time.monotonic()
            self._answer = self.client.submit(commands.STATUS, timeout_seconds=STATUS_SECONDS)
        return _KNOWN_SILENT_SECONDS if was_silent else STATUS_SECONDS

    def take(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the answer; returns whether it has come."""
        if self._answer is None:
            return self._asked_at is None
        try:
            message = self._answer.result(max(0.0, timeout))
            status = status_lib.Status.from_json(message.body.get(commands.STATUS))
        except errors.ActorLearnerError:
            # No answer, or a strange one: ask again next time. Caught first, since `NoAnswerError`
            # is a `TimeoutError`, as that of futures is on Python 3.11.
            self._answer = None
            return False
        except futures.TimeoutError:
            return False
        self._answer = None
        if status.incarnation != self.lease.incarnation:
            return False  # Another process, on the port that this one had.
        self.status, self._asked_at = status, None
        return True


class Connections:
    """The connections to all jobs that this process has met. Any thread may use it.

    Args:
      who: Name of this end, e.g. `control`.
      keys: Of the run; None if its wires demand none.
    """

    def __init__(self, who: str, keys: keys_lib.RunKeys | None) -> None:
        self._who = who
        self._keys = keys
        self._connections: dict[str, Connection] = {}
        self._refusals: dict[str, str] = {}
        self._lock = threading.Lock()
        self._context = zmq.Context()  # Shared: one of its own for each would cost threads.
        self._closed = False

    def get(self, name: str) -> Connection | None:
        """Returns the connection to a job; None if `meet` has not met it."""
        with self._lock:
            return self._connections.get(name)

    def meet(self, leases: Mapping[str, job_entries.LeaseEntry]) -> dict[str, Connection]:
        """Connects to jobs that are new or have moved, and disconnects from those that are gone.

        Args:
          leases: Of all jobs that have a wire, by the jobs' names.

        Returns:
          The connections, without jobs that demand other keys than ours: see `refusal`.
        """
        with self._lock:
            if self._closed:
                raise errors.JobError(f"the connections of {self._who} are closed")
            self._refusals = {}
            for name, lease in leases.items():
                known = self._connections.get(name)
                if known is not None and known.lease == lease:
                    continue
                if known is not None:
                    self._forget([name])
                try:
                    lease.check_keys(name, self._who, self._keys)
                except errors.ConfigError as error:
                    self._refusals[name] = str(error)
                    continue
                client = client_lib.Client(
                    lease.wire, who=self._who, keys=self._keys, context=self._context
                )
                self._connections[name] = Connection(lease, client)
            self._forget(set(self._connections).difference(leases))
            return dict(self._connections)

    def refusal(self, name: str) -> str | None:
        """Returns why a job was not connected to (it demands other keys); None if it was."""
        with self._lock:
            return self._refusals.get(name)

    def close(self) -> None:
        """Ends all connections; safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._forget(list(self._connections))
                self._context.destroy(linger=0)

    def _forget(self, names: Collection[str]) -> None:
        for name in names:
            self._connections.pop(name).client.close()

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

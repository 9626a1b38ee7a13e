"""Another job of the run, asked and followed over the wire, wherever it is started again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent import futures
from typing import Any

import numpy as np
from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import names
from actor_learner.messaging import messages, protocol
from actor_learner.naming import name_errors

_SILENT_SECONDS = 3.0
_LOOK_SECONDS = 1.0
_SAY_SECONDS = 10.0


class Peer(protocol.Client):
    """A connection that outlives the other end.

    A job that dies is started again with a wire elsewhere. While the other end is silent, `check`,
    which is to be called now and then, asks the registry where it is and connects there. A peer is
    never silent for long while it lives: following a topic makes it answer every two seconds.

    Args:
      job: Who asks.
      kind: Kind of the other job.
      index: Which one of its kind.
      timeout_seconds: How long to wait until it is there.

    Raises:
      errors.JobTimeoutError: If it is not there by then.
      job_lib.Stopping: If `job` is asked to end meanwhile.
    """

    def __init__(
        self, job: job_lib.Job, kind: str, index: int = 0, *, timeout_seconds: float
    ) -> None:
        self._job = job
        self._kind, self._index = kind, index
        self._listeners: dict[str, protocol.Listener] = {}
        self._client = job.connect(kind, index, timeout=timeout_seconds)
        self._looked_at = time.monotonic()
        self._said_at = 0.0

    def __str__(self) -> str:
        return names.job(self._kind, self._index)

    @property
    def silent_seconds(self) -> float:
        return self._client.silent_seconds

    def submit(
        self,
        kind: str,
        body: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        *,
        timeout_seconds: float,
    ) -> futures.Future[messages.Message]:
        return self._client.submit(kind, body, arrays, timeout_seconds=timeout_seconds)

    def follow(self, topic: str, listener: protocol.Listener) -> None:
        self._listeners[topic] = listener
        self._client.follow(topic, listener)

    def check(self) -> bool:
        """Looks, while the other end is silent, whether it is elsewhere; does not wait for it.

        Returns:
          Whether it was, and is connected to now.
        """
        now = time.monotonic()
        silent = self._client.silent_seconds
        if silent < _SILENT_SECONDS:
            if self._said_at:
                logging.info("%s: %s answers again.", self._job, self)
                self._said_at = 0.0
            return False
        if silent >= _SAY_SECONDS and not self._said_at:
            self._said_at = now
            logging.warning("%s waits for %s, silent for %.0f s.", self._job, self, silent)
        if now - self._looked_at < _LOOK_SECONDS:
            return False
        self._looked_at = now
        try:
            address = self._job.wire_address_of(self._kind, self._index)
        except name_errors.RegistryUnavailableError:
            return False
        if address is None or address == self._client.address:
            return False
        client = self._job.connect(self._kind, self._index, timeout=0.0)
        for topic, listener in self._listeners.items():
            client.follow(topic, listener)
        self._client.close()
        self._client = client
        logging.info("%s: %s was started again, at %s.", self._job, self, client.address)
        return True

    def close(self) -> None:
        self._client.close()

"""The learner's end of the way its policy takes to actors and evaluators."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.parameters import latest_bytes, publication
from actor_learner.support import errors

_PAUSE_SECONDS = 1.0


class Publisher:
    """The learner's end. Values are copied when handed over, and sent by a thread of its own.

    What has not been sent yet is replaced by what is newer: followers want the latest only. A
    server that does not answer is tried again until it does; `patience_seconds` later the
    learner is told.

    Args:
      server_address: `host:port` of the server.
      variables: What followers need, in an order that they share.
      run_id: Of the run that the server belongs to.
      patience_seconds: How long sending may fail before `raise_if_failed` raises.
      timeout_seconds: The longest wait for an answer of the server.
      after_outage: Called before anything is sent to a server that did not take the last; raises
        if it must not be sent there, as to another run's server on the same port.
    """

    def __init__(
        self,
        server_address: str,
        variables: Sequence[tf.Variable],
        run_id: str,
        *,
        patience_seconds: float = 600.0,
        timeout_seconds: float = 30.0,
        after_outage: Callable[[], None] = lambda: None,
    ) -> None:
        self._packing = publication.pack_variables(variables)
        self._after_outage = after_outage
        self._writer = latest_bytes.Writer(
            server_address, publication.table_sizes(self._packing), timeout_seconds
        )
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._values: tuple[np.ndarray, int] | None = None
        self._values_wait = False
        self._announcement: publication.Announcement | None = None
        self._said = publication.Announcement(run_id, 0, -1, 0, 0, False, 0.0, {})
        self._sending = False
        self._failing_since: float | None = None
        self._error: Exception | None = None
        self._fatal = False
        self._stopping = False
        self.version = -1  # The last one that the server has confirmed.
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, version: int, *, with_next: bool = False) -> None:
        """Hands over the variables as they are now; does not wait until they are sent.

        Args:
          version: Theirs. They are sent together with the latest announcement.
          with_next: Send them with the next announcement, which is about to be handed over: one
            message instead of two.

        Raises:
          errors.NotFiniteError: If a variable is not finite; nothing is sent.
        """
        values = self._packing.pack()
        problem = self._packing.not_finite(values)
        if problem is not None:
            raise errors.NotFiniteError(
                f"version {version} of the policy is not published: {problem} is not finite; "
                "training has diverged"
            )
        with self._changed:
            self._values = (values, version)
            self._values_wait = with_next
            if not with_next:
                self._changed.notify_all()

    def announce(self, announcement: publication.Announcement) -> None:
        """Hands over an announcement; its `version` is set to the one that can be pulled then."""
        with self._changed:
            self._announcement = announcement
            self._values_wait = False
            self._changed.notify_all()

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Waits until all that was handed over is sent, without waiting for announcements.

        Raises:
          errors.ReplayTimeoutError: If that takes longer.
        """
        with self._changed:
            self._values_wait = False
            self._changed.notify_all()
            sent = self._changed.wait_for(
                lambda: (
                    self._fatal
                    or (self._values is None and self._announcement is None and not self._sending)
                ),
                timeout_seconds,
            )
        if self._fatal:
            raise self._error
        if not sent:
            raise errors.ReplayTimeoutError(
                f"the learner has waited {timeout_seconds:g} s for the replay server to take its "
                f"variables: {self._error}"
            )

    @property
    def is_failing(self) -> bool:
        """Whether the server did not take what was sent last."""
        return self._failing_since is not None

    def raise_if_failed(self) -> None:
        """Raises what went wrong, if sending has failed for longer than the patience.

        What trying again cannot cure is raised at once.
        """
        since, error = self._failing_since, self._error
        if self._fatal:
            raise error
        if since is not None and time.monotonic() - since > self._patience_seconds:
            raise errors.ReplayTimeoutError(
                f"the learner could not publish its variables for {self._patience_seconds:g} s"
            ) from error

    def close(self) -> None:
        """Ends the thread; what is not sent is lost. Safe to call twice."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._stopping
                        or self._announcement is not None
                        or (self._values is not None and not self._values_wait)
                    )
                )
                if self._stopping:
                    return
                values, self._values = self._values, None
                announcement, self._announcement = self._announcement, None
                self._sending = True
            try:
                error = self._send(values, announcement)
            except Exception as unexpected:  # Raised by `raise_if_failed`.
                with self._changed:
                    self._error, self._fatal = unexpected, True
                    self._changed.notify_all()
                return
            with self._changed:
                self._sending = False
                self._error = error
                if error is None:
                    self._failing_since = None
                else:
                    # What came meanwhile is newer.
                    self._values = self._values or values
                    self._announcement = self._announcement or announcement
                    self._failing_since = self._failing_since or time.monotonic()
                self._changed.notify_all()
                if error is not None:
                    logging.warning("Publishing failed, and is tried again: %s", error)
                    self._changed.wait_for(lambda: self._stopping, _PAUSE_SECONDS)

    def _send(
        self,
        values: tuple[np.ndarray, int] | None,
        announcement: publication.Announcement | None,
    ) -> Exception | None:
        """Sends variables and what is said of the run in one message, or the latter alone."""
        try:
            if self._failing_since is not None:
                self._after_outage()
            said = announcement or self._said
            if values is not None:
                packed, version = values
                header = publication.encode(said._replace(version=version))
                packed[: len(header)] = header
                self._writer.write(publication.VARIABLES_TABLE, packed)
                self.version = version
            else:
                header = publication.encode(said._replace(version=self.version))
                self._writer.write(publication.ANNOUNCEMENTS_TABLE, header)
            self._said = said
        except errors.OtherRunError:
            raise
        except errors.ReplayError as error:
            return error
        return None

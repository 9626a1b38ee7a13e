"""An actor's or evaluator's end of the way the learner's policy takes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.parameters import latest_bytes, publication
from actor_learner.support import errors

# Least time between two looks, for those who wait; and the most that it grows to for others, with
# the time between two publications: there is no use in looking more often than something comes.
_LEAST_SECONDS, _UNHURRIED_SECONDS = 0.05, 0.125


class Follower:
    """An actor's or evaluator's end: pulls in the background, applies when told to.

    Args:
      server_address: `host:port` of the server.
      variables: Assigned by `apply`, in the publisher's order.
      run_id: Of the run; another one's server is refused.
      poll_seconds: Between two looks for something new; less while somebody waits for it.
      timeout_seconds: The longest wait for an answer of the server.
      patience_seconds: How long the server may be silent before `raise_if_failed` raises.
    """

    def __init__(
        self,
        server_address: str,
        variables: Sequence[tf.Variable],
        run_id: str,
        *,
        poll_seconds: float = 0.25,
        timeout_seconds: float = 10.0,
        patience_seconds: float = 600.0,
    ) -> None:
        self._address = server_address
        self._packing = publication.pack_variables(variables)
        self._run_id = run_id
        self._poll_seconds = poll_seconds
        self._patience_seconds = patience_seconds
        self._reader = latest_bytes.Reader(
            server_address, publication.table_sizes(self._packing), timeout_seconds
        )
        self._changed = threading.Condition()
        self._pending: tuple[np.ndarray, int] | None = None
        self._pulled = -1
        self._applied = -1
        self._announcement: publication.Announcement | None = None
        self._heard_at = self._told_at = time.monotonic()
        self._behind_since: float | None = None
        self._error: Exception | None = None
        self._fatal = False
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._look_now.set()
        self._is_waited_for = threading.Event()
        # When the last publication was made that was pulled, by the learner's clock; how many
        # there had been by then; and the mean time between those since the last but one.
        self._published_at, self._publications = 0.0, 0
        self._publication_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The version that was applied last; -1 before the first."""
        return self._applied

    @property
    def pulled_version(self) -> int:
        """The newest version that `apply` would apply, or has applied."""
        return self._pulled

    @property
    def announcement(self) -> publication.Announcement | None:
        """The latest one; None before the first."""
        return self._announcement

    @property
    def lag(self) -> int | None:
        """Train steps that the learner is ahead of the applied version; None: unknown."""
        heard = self._announcement
        if heard is None or self._applied < 0:
            return None
        return max(0, heard.train_step - self._applied)

    @property
    def lag_seconds(self) -> float:
        """For how long the learner has been ahead of the applied version, by this machine's clock.

        0 when it is not.
        """
        since = self._behind_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def silent_seconds(self) -> float:
        """Seconds since the server answered."""
        return time.monotonic() - self._heard_at

    @property
    def told_seconds(self) -> float:
        """Seconds since it was last certain that the server is this run's; endless after an outage.

        What the learner says tells whose server it is, and as long as that server lives.
        """
        return time.monotonic() - self._told_at

    def look(self) -> None:
        """Has the thread look for something new soon; does not wait for it."""
        if not self._look_now.is_set():  # Asked for once per step: setting it costs more.
            self._look_now.set()

    def wait_for(
        self, condition: Callable[[], bool], timeout_seconds: float, stopping: threading.Event
    ) -> bool:
        """Waits until the condition holds; False if time is up or `stopping` was set."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            self.raise_if_failed()
            left = deadline - time.monotonic()
            if left <= 0 or stopping.is_set():
                return False
            self.look()
            self._is_waited_for.set()
            with self._changed:
                self._changed.wait(min(left, 0.2))
        return True

    def apply(self) -> bool:
        """Assigns what was pulled last, if it is new; call it between steps only."""
        if self._pending is None:
            return False
        with self._changed:
            pending, self._pending = self._pending, None
        values, version = pending
        self._packing.assign(values)
        with self._changed:
            self._applied = version
            self._behind_since = None
            self._note_lag(self._announcement)
        return True

    def raise_if_failed(self) -> None:
        """Raises if the server belongs to another run, or was silent for too long.

        Raises:
          errors.OtherRunError: If it is another run's.
          errors.ReplayTimeoutError: If it was silent.
        """
        if self._fatal:
            raise self._error
        if self.silent_seconds > self._patience_seconds:
            raise errors.ReplayTimeoutError(
                f"no replay server has answered at {self._address} for {self.silent_seconds:.0f} s"
            ) from self._error

    def close(self) -> None:
        """Ends the thread; safe to call twice."""
        self._stopping.set()
        self._look_now.set()
        self._is_waited_for.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            self._look_now.wait(self._poll_seconds)
            self._look_now.clear()
            self._is_waited_for.clear()
            if self._stopping.is_set():
                return
            try:
                self._look()
                self._error = None
            except errors.ReplayTimeoutError as error:
                self._error = error  # Nothing is announced yet, or the server restarts.
                self._told_at = -math.inf
            except Exception as error:
                with self._changed:
                    self._error, self._fatal = error, True
                    self._changed.notify_all()
                return
            least = min(_LEAST_SECONDS, self._poll_seconds)
            self._stopping.wait(least)
            self._is_waited_for.wait(
                min(self._publication_seconds, _UNHURRIED_SECONDS, self._poll_seconds) - least
            )

    def _look(self) -> None:
        changed = self._reader.changed()
        said, values, heard, pulled = None, None, None, None
        if publication.ANNOUNCEMENTS_TABLE in changed:
            said = self._reader.read(publication.ANNOUNCEMENTS_TABLE)
        if publication.VARIABLES_TABLE in changed:
            values = self._reader.read(publication.VARIABLES_TABLE)
        if said is not None:
            heard = self._decode(said)
        if values is not None:
            beside = self._decode(values)
            # Also an earlier one: the learner was resumed from an earlier checkpoint.
            if beside.version != self._pulled and self._is_sound(values, beside.version):
                pulled = (values, beside.version)
                self._note_publication(beside.time)
            if beside.time and (heard is None or beside.time > heard.time):
                heard = beside
        with self._changed:
            self._heard_at = time.monotonic()
            self._told_at = self._heard_at if self._reader.has_read else -math.inf
            if pulled is not None:
                self._pending, self._pulled = pulled, pulled[1]
            if heard is not None:
                self._announcement = heard
                self._note_lag(heard)
            self._changed.notify_all()

    def _decode(self, content: np.ndarray) -> publication.Announcement:
        heard = publication.decode(content)
        if heard.run_id != self._run_id:
            raise errors.OtherRunError(
                f"the server at {self._address} belongs to another run ({heard.run_id}, not "
                f"{self._run_id}): it was started on a port that a server of this run had before"
            )
        return heard

    def _is_sound(self, values: np.ndarray, version: int) -> bool:
        """Whether all variables are finite; an earlier release may have published others."""
        problem = self._packing.not_finite(values)
        if problem is not None:
            logging.error(
                "Version %d of the policy is refused, and version %d kept until another one comes: "
                "%s is not finite.",
                version,
                self._applied,
                problem,
            )
        return problem is None

    def _note_publication(self, published_at: float) -> None:
        publications = self._reader.times_written(publication.VARIABLES_TABLE)
        seconds, number = published_at - self._published_at, publications - self._publications
        # Neither grows when the learner or the server was restarted.
        self._publication_seconds = seconds / number if number > 0 and seconds > 0 else 0.0
        self._published_at, self._publications = published_at, publications

    def _note_lag(self, heard: publication.Announcement | None) -> None:
        if heard is None or heard.train_step <= self._applied:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.monotonic()

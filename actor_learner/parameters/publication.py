"""The learner's policy on its way to actors and evaluators, through two Reverb tables.

`variables` holds the latest variables with their version. `announcements` holds a few numbers about
the run, small enough to be renewed many times per second: followers look at these, and pull
variables only when there are newer ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import reverb
import tensorflow as tf
from absl import logging

from actor_learner import errors
from actor_learner.parameters import reverb_variable_container as container_lib

VARIABLES_TABLE = container_lib.DEFAULT_TABLE
ANNOUNCEMENTS_TABLE = "announcements"

MOST_ACTORS = 1_024
"""Actors beyond this number may run a little further ahead of the learner than the others."""

_RUN_ID_BYTES = 32
_PAUSE_SECONDS = 1.0
_WAITING_POLL_SECONDS = 0.05


class Announcement(NamedTuple):
    """What the learner says about the run.

    Attributes:
      run_id: Of the run that the server belongs to; 32 characters.
      train_step: Train steps taken.
      version: The version that can be pulled.
      environment_step: Environment steps that the learner knows of, over all actors.
      steps_allowed: Environment steps by which actors are to wait for the learner.
      counted: By actor, how many of the steps that its process has reported are part of
        `environment_step`. Missing actors have reported none.
      done: Training is complete, and `version` the final one.
      time: When this was said, in seconds since the epoch, by the learner's clock.
    """

    run_id: str
    train_step: int
    version: int
    environment_step: int
    steps_allowed: int
    done: bool
    time: float
    counted: Mapping[int, int]


def publication_tables(variables: Sequence[tf.Variable]) -> list[reverb.Table]:
    """The tables that a server needs for publishing `variables`."""
    return [
        container_lib.variable_table(_nest(variables, 0), VARIABLES_TABLE),
        container_lib.variable_table(_encode(_NOTHING), ANNOUNCEMENTS_TABLE),
    ]


class Publisher:
    """The learner's end. Values are copied when handed over, and sent by a thread of its own.

    What has not been sent yet is replaced by what is newer: followers want the latest only. A
    server that does not answer is tried again until it does; `patience_seconds` later the
    learner is told.

    Args:
      server_address: `host:port` of the server.
      variables: What followers need, in an order that they share.
      patience_seconds: How long sending may fail before `raise_if_failed` raises.
      timeout_seconds: The longest wait for an answer of the server.
      after_outage: Called before anything is sent to a server that did not take the last; raises
        if it must not be sent there, as to another run's server on the same port.
    """

    def __init__(
        self,
        server_address: str,
        variables: Sequence[tf.Variable],
        *,
        patience_seconds: float = 600.0,
        timeout_seconds: float = 30.0,
        after_outage: Callable[[], None] = lambda: None,
    ) -> None:
        self._variables = tuple(variables)
        self._after_outage = after_outage
        self._read = tf.function(lambda: [tf.identity(v) for v in self._variables], autograph=False)
        self._container = container_lib.ReverbVariableContainer(
            server_address, (VARIABLES_TABLE, ANNOUNCEMENTS_TABLE), timeout_seconds=timeout_seconds
        )
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._values: tuple[list[tf.Tensor], int] | None = None
        self._announcement: Announcement | None = None
        self._sending = False
        self._failing_since: float | None = None
        self._error: Exception | None = None
        self._fatal = False
        self._stopping = False
        self.version = -1  # The last one that the server has confirmed.
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, version: int) -> None:
        """Hands over the variables as they are now; does not wait until they are sent."""
        values = self._read()
        with self._changed:
            self._values = (values, version)
            self._changed.notify_all()

    def announce(self, announcement: Announcement) -> None:
        """Hands over an announcement; its `version` is set to the one that can be pulled then."""
        with self._changed:
            self._announcement = announcement
            self._changed.notify_all()

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Waits until all that was handed over is sent.

        Raises:
          errors.ReplayTimeoutError: If that takes longer.
        """
        with self._changed:
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
                        self._stopping or self._values is not None or self._announcement is not None
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
        self, values: tuple[list[tf.Tensor], int] | None, announcement: Announcement | None
    ) -> Exception | None:
        try:
            if self._failing_since is not None:
                self._after_outage()
            if values is not None:
                self._container.push(_nest(*values), VARIABLES_TABLE)
                self.version = values[1]
            if announcement is not None:
                known = announcement._replace(version=self.version)
                self._container.push(_encode(known), ANNOUNCEMENTS_TABLE)
        except errors.OtherRunError:
            raise
        except errors.ReplayError as error:
            return error
        return None


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
        self._variables = tuple(variables)
        self._run_id = run_id
        self._poll_seconds = poll_seconds
        self._patience_seconds = patience_seconds
        self._container = container_lib.ReverbVariableContainer(
            server_address, (VARIABLES_TABLE, ANNOUNCEMENTS_TABLE), timeout_seconds=timeout_seconds
        )
        self._changed = threading.Condition()
        self._pending: tuple[Sequence[Any], int] | None = None
        self._pulled = -1
        self._applied = -1
        self._announcement: Announcement | None = None
        self._heard_at = time.monotonic()
        self._behind_since: float | None = None
        self._error: Exception | None = None
        self._fatal = False
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._look_now.set()
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
    def announcement(self) -> Announcement | None:
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

    def look(self) -> None:
        """Has the thread look for something new now; does not wait for it."""
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
            with self._changed:
                self._changed.wait(min(left, 0.2))
        return True

    def apply(self) -> bool:
        """Assigns what was pulled last, if it is new; call it between steps only."""
        with self._changed:
            pending, self._pending = self._pending, None
        if pending is None:
            return False
        values, version = pending
        for variable, value in zip(self._variables, values):
            variable.assign(value)
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
        self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            self._look_now.wait(self._poll_seconds)
            self._look_now.clear()
            if self._stopping.is_set():
                return
            try:
                self._look()
                self._error = None
            except errors.ReplayTimeoutError as error:
                self._error = error  # Nothing is announced yet, or the server restarts.
            except Exception as error:
                with self._changed:
                    self._error, self._fatal = error, True
                    self._changed.notify_all()
                return
            self._stopping.wait(min(_WAITING_POLL_SECONDS, self._poll_seconds))

    def _look(self) -> None:
        heard = _decode(self._container.pull(ANNOUNCEMENTS_TABLE))
        if heard.run_id != self._run_id:
            raise errors.OtherRunError(
                f"the server at {self._address} belongs to another run ({heard.run_id}, not "
                f"{self._run_id}): it was started on a port that a server of this run had before"
            )
        if heard.version > self._pulled or (
            # The learner was resumed from an earlier checkpoint: what it says counts.
            0 <= heard.version < self._pulled and heard.train_step < self._pulled
        ):
            pulled = self._container.pull(VARIABLES_TABLE)
            values = list(pulled[container_lib.POLICY_KEY])
            version = int(pulled[container_lib.TRAIN_STEP_KEY])
            with self._changed:
                self._pending = (values, version)
                self._pulled = version
        with self._changed:
            self._announcement = heard
            self._heard_at = time.monotonic()
            self._note_lag(heard)
            self._changed.notify_all()

    def _note_lag(self, heard: Announcement | None) -> None:
        if heard is None or heard.train_step <= self._applied:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.monotonic()


_NOTHING = Announcement("0" * _RUN_ID_BYTES, 0, -1, 0, 0, False, 0.0, {})


def _nest(variables: Sequence[Any], version: int) -> dict[str, Any]:
    return {
        container_lib.POLICY_KEY: list(variables),
        container_lib.TRAIN_STEP_KEY: tf.constant(version, tf.int64),
    }


def _encode(announcement: Announcement) -> dict[str, tf.Tensor]:
    numbers = [
        announcement.train_step,
        announcement.version,
        announcement.environment_step,
        announcement.steps_allowed,
        int(announcement.done),
    ]
    counted = np.zeros(MOST_ACTORS, np.int64)
    for actor, steps in announcement.counted.items():
        if actor < MOST_ACTORS:
            counted[actor] = steps
    run_id = np.frombuffer(announcement.run_id.encode().ljust(_RUN_ID_BYTES), np.uint8)
    return {
        "counted": tf.constant(counted),
        "numbers": tf.constant(numbers, tf.int64),
        "run_id": tf.constant(run_id[:_RUN_ID_BYTES]),
        "time": tf.constant(announcement.time, tf.float64),
    }


def _decode(pulled: dict[str, tf.Tensor]) -> Announcement:
    train_step, version, environment_step, steps_allowed, done = pulled["numbers"].numpy().tolist()
    counted = pulled["counted"].numpy()
    return Announcement(
        pulled["run_id"].numpy().tobytes().decode().rstrip(),
        train_step,
        version,
        environment_step,
        steps_allowed,
        bool(done),
        float(pulled["time"].numpy()),
        {actor: int(counted[actor]) for actor in np.flatnonzero(counted).tolist()},
    )

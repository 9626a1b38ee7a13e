"""Describes a job to its worker: which one it is, its run, and how to reach the other jobs."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import time
import uuid

from absl import logging

from actor_learner import config, jobs_settings, run_directory
from actor_learner.jobs.presence import job_entries, names
from actor_learner.messaging import client as client_lib
from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import protocol
from actor_learner.naming import name_errors, registry
from actor_learner.support import errors

INCARNATION_VARIABLE = "ACTOR_LEARNER_INCARNATION"
RESTARTS_VARIABLE = "ACTOR_LEARNER_RESTARTS"
"""Set by a launcher for the jobs it starts."""

_GLANCE_SECONDS = 0.5  # How often a wait checks whether the job is asked to end.
_LOOK_SECONDS = 0.2  # How often a wait looks for another job's wire.
_SAY_SECONDS = 10.0  # A longer wait is logged,
_SAY_AGAIN_SECONDS = 60.0  # and again after each such interval.


class Stopping(errors.JobError):
    """Ends a wait because the job is asked to end; this is not a failure."""


@dataclasses.dataclass
class Job:
    """Describes one process of a run to the worker in it.

    Attributes:
      kind: replay, actor, learner, evaluator, or the name of a user's own job.
      index: Which one of its kind, from 0.
      run: Name of the run in the registry.
      names: The registry.
      run_dir: The run directory; None where this machine has none.
      seed: Of everything random in the run; jobs of one kind derive their own by `index`.
      source: The configuration, which is loaded before the worker is made; None if it needs none.
      hold: Whether to stay ready until the command `start`, instead of running at once.
      heartbeat_seconds: Between two heartbeats.
      lost_after_seconds: A job without a heartbeat for this long counts as lost, and another
        process may replace it. It may do so at once if the first is known to be dead, by its pid on
        the same machine.
      host: Name or address by which the other jobs reach this machine. The wire listens on loopback
        if this is a loopback address; otherwise on all interfaces, and `keys` are required.
      keys: Of the run, which its wires demand; None if they demand none.
      incarnation: Differs from that of the process that was this job before.
      restarts: How often the launcher has restarted this job.
      stopping: Set when the job is asked to end; a long poll may look at it.
      displaced: Whether another process is this job now, and owns its files: `close` must not save.
    """

    kind: str
    index: int
    run: str
    names: registry.NameRegistry
    run_dir: run_directory.RunDirectory | None = None
    seed: int = 0
    source: config.ConfigSource | None = None
    hold: bool = False
    heartbeat_seconds: float = 5.0
    lost_after_seconds: float = 15.0
    host: str = "localhost"
    keys: keys_lib.RunKeys | None = None
    incarnation: str = dataclasses.field(
        default_factory=lambda: os.environ.get(INCARNATION_VARIABLE) or uuid.uuid4().hex
    )
    restarts: int = dataclasses.field(
        default_factory=lambda: int(os.environ.get(RESTARTS_VARIABLE) or 0)
    )
    stopping: threading.Event = dataclasses.field(default_factory=threading.Event)
    displaced: bool = False

    def __post_init__(self) -> None:
        jobs_settings.check_kind(self.kind)
        if self.index < 0:
            raise errors.ConfigError(f"--index must be at least 0, got {self.index}")
        if not 0 < self.heartbeat_seconds < self.lost_after_seconds:
            raise errors.ConfigError(
                f"heartbeats every {self.heartbeat_seconds} s are too rare: {self} counts as lost "
                f"after {self.lost_after_seconds} s without one"
            )
        self._wire: protocol.Server | None = None
        self.wire_address = ""  # Where the wire is reached; empty while it is closed.
        self._address: str | None = None
        self._remembered: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{names.job(self.kind, self.index)} of run {self.run}"

    @property
    def directory(self) -> pathlib.Path | None:
        """`jobs/<kind>-<index>` of the run directory, where this job may leave files of its own.

        Made when asked for; None where there is no run directory.
        """
        if self.run_dir is None:
            return None
        return self.run_dir.log(self.kind, self.index).parent

    @property
    def address(self) -> str | None:
        """The address given to `publish_address`; None before."""
        return self._address

    @property
    def wire(self) -> protocol.Server:
        """Answers requests and publishes topics of this job, while it lives.

        The life cycle opens it before the worker is made and closes it last. Handlers are called in
        the wire's own thread, from `configure` until after `close`.

        Raises:
          errors.JobError: If it is not open.
        """
        if self._wire is None:
            raise errors.JobError(
                f"{self} has no wire: it is open from before the worker is made until the job ends"
            )
        return self._wire

    @wire.setter
    def wire(self, server: protocol.Server | None) -> None:
        self._wire = server

    def wire_address_of(self, kind: str, index: int = 0) -> str | None:
        """Returns the current address of another job's wire; None if that job is not there.

        Does not wait. A client with another `address` is connected to a predecessor of that job:
        close it and connect again.

        Raises:
          name_errors.RegistryUnavailableError: If the registry does not answer.
        """
        entry = self._lease_of(kind, index)
        return entry.wire or None if entry is not None else None

    def connect(self, kind: str, index: int = 0, *, timeout: float) -> client_lib.Client:
        """Waits up to `timeout` seconds for another job, and connects to its wire.

        Only the first request shows whether that job answers: it may just have died.

        Raises:
          errors.JobTimeoutError: If it is not there by then.
          errors.ConfigError: If it demands other keys than this job has.
          Stopping: If this job is asked to end meanwhile; let it through.
        """
        whom = names.job(kind, index)
        began = time.monotonic()
        say_at = began + _SAY_SECONDS
        problem = "it is not running, or was started with another --run or --registry"
        while True:
            now = time.monotonic()
            try:
                entry = self._lease_of(kind, index)
            except name_errors.RegistryUnavailableError as error:
                entry, problem = None, f"the registry does not answer: {error}"
            if entry is not None and entry.wire:
                entry.check_keys(whom, str(self), self.keys)
                return client_lib.Client(
                    entry.wire, who=names.job(self.kind, self.index), keys=self.keys
                )
            if now - began >= timeout:
                raise errors.JobTimeoutError(
                    f"{self} has waited {timeout:g} s for {whom}: {problem}"
                )
            if now >= say_at:
                say_at = now + _SAY_AGAIN_SECONDS
                logging.warning("%s has waited %.0f s for %s", self, now - began, whom)
            if self.stopping.wait(min(_LOOK_SECONDS, max(0.0, began + timeout - now))):
                raise Stopping(f"{self} was asked to end while it waited for {whom}")

    def publish_address(self, address: str) -> None:
        """Publishes the address at which this job serves, until it ends or is lost."""
        self.names.add(
            names.address(self.run, self.kind, self.index),
            address,
            ttl=self.lost_after_seconds,
            replace=True,
        )
        self._address = address

    def remember(self, name: str, value: str) -> None:
        """Leaves a value for later processes of the run, as `<run>/<name>` of the registry.

        It is written again whenever the registry has lost it, for as long as this job lives.
        """
        self.names.add(f"{self.run}/{name}", value, replace=True)
        self._remembered[name] = value

    def recall(self, name: str) -> str | None:
        """Returns what a process of the run has left; None if none has."""
        try:
            return self.names.get(f"{self.run}/{name}")
        except name_errors.NameNotFoundError:
            return None

    def agree_on(self, name: str, otherwise: str) -> str:
        """Returns what a process of the run has left; `otherwise`, which is left, if none has."""
        try:
            self.names.add(f"{self.run}/{name}", otherwise)
        except name_errors.NameTakenError:
            return self.names.get(f"{self.run}/{name}")
        self._remembered[name] = otherwise
        return otherwise

    def remind(self) -> None:
        """Writes all values again, after the registry has lost them."""
        for name, value in dict(self._remembered).items():
            self.names.add(f"{self.run}/{name}", value, replace=True)

    def _lease_of(self, kind: str, index: int) -> job_entries.LeaseEntry | None:
        try:
            text = self.names.get(names.lease(self.run, kind, index))
            return job_entries.LeaseEntry.from_json(text)
        except name_errors.NameNotFoundError:
            return None
        except errors.JobError as error:
            logging.log_first_n(
                logging.WARNING, "the lease of %s is damaged: %s", 1, names.job(kind, index), error
            )
            return None

    def address_of(self, kind: str, index: int = 0, *, timeout: float = 60.0) -> str:
        """Waits up to `timeout` seconds until another job has published its address.

        Raises:
          errors.JobTimeoutError: If it has not by then.
          Stopping: If this job is asked to end meanwhile; let it through.
        """
        wanted = names.address(self.run, kind, index)
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                return self.names.wait(wanted, max(0.0, min(left, _GLANCE_SECONDS)))
            except name_errors.NameWaitTimeoutError as error:
                if self.stopping.is_set():
                    raise Stopping(f"{self} was asked to end while it waited for {kind}") from None
                if left <= 0:
                    raise errors.JobTimeoutError(
                        f"{self} has waited {timeout:g} s for {names.job(kind, index)} to publish "
                        f"its address as {wanted}: it is not running, is still configuring, or "
                        "was started with another --run or --registry"
                    ) from error

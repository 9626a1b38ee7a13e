"""Asks jobs for their status in a thread, so that no silent job or registry delays a launcher."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from absl import logging

from actor_learner.jobs import controller as controller_lib
from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.support import errors

READ_SECONDS = 1.0


class StatusReader:
    """Keeps the latest status of every job of a run at hand.

    Args:
      controller: Of the run.
      jobs: Names of all jobs that the run should have.
    """

    def __init__(self, controller: controller_lib.Controller, jobs: Iterable[str]) -> None:
        self._controller = controller
        self._jobs = set(jobs)
        self._unused: list[str] | None = None
        self._statuses: dict[str, status_lib.Status] = {}
        self._problem = ""
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status reader", daemon=True)

    def __enter__(self) -> StatusReader:
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stop.set()
        self._thread.join(10.0)  # A registry that hangs must not keep the launcher from ending.

    @property
    def problem(self) -> str:
        """Why statuses cannot be read at present; empty if they can."""
        return self._problem

    def status(self, name: str, incarnation: str) -> status_lib.Status | None:
        """The latest status of a job's present process; None if it has left none yet.

        Raises:
          The error that ended the thread, which would be a bug.
        """
        if self._failure is not None:
            raise self._failure
        status = self._statuses.get(name)
        return status if status is not None and status.incarnation == incarnation else None

    def any_alive(self, kind: str) -> bool:
        """Whether a job of this kind is alive, whoever started it."""
        return any(
            status.kind == kind and status.state in states.LIVE
            for status in list(self._statuses.values())
        )

    def expect(self, jobs: Iterable[str]) -> None:
        """Changes which jobs the run should have."""
        self._jobs = set(jobs)

    @property
    def unused_bindings(self) -> list[str] | None:
        """Bindings that no job has used; None before all jobs have reported theirs."""
        return self._unused

    def read_now(self) -> None:
        """Reads once, in the calling thread; an error becomes `problem`."""
        try:
            self._statuses = {status.name: status for status in self._controller.workers()}
            jobs = self._jobs
            if self._unused is None and jobs <= set(self._statuses):
                self._unused = self._controller.unused_bindings(sorted(jobs))
            self._problem = ""
        except errors.ActorLearnerError as error:
            if not self._problem:  # Once per outage.
                logging.warning("states cannot be read: %s", error)
            self._problem = f"states cannot be read: {error}"

    def _run(self) -> None:
        try:
            while not self._stop.wait(READ_SECONDS):
                self.read_now()
        except BaseException as error:  # noqa: BLE001 - raised by `status`.
            self._failure = error

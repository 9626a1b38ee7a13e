"""The life of one worker: configured, ready, running, paused, ended; polled in between."""

from __future__ import annotations

import collections
import contextlib
import datetime
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable, NamedTuple

from absl import logging

from actor_learner.jobs import commands, states, unused_bindings
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import heartbeat as heartbeat_lib
from actor_learner.jobs.presence import lease as lease_lib
from actor_learner.jobs.presence import wire as wire_lib
from actor_learner.messaging import protocol
from actor_learner.support import errors, signals, unsaved

if TYPE_CHECKING:
    from actor_learner.jobs import worker as worker_lib

_PAUSED_SECONDS = 1.0  # Between two looks of a worker that does not run; commands cut it short.
_GLANCE_SECONDS = 0.2  # How often a wait looks whether the job is asked to end.
_CONTRIBUTION_SECONDS = 1.0  # Between two questions to a worker for its status.
_RATE_SECONDS = 10.0  # Rates are over so long.


class PollResult(NamedTuple):
    """What a poll has come to.

    Attributes:
      done: Whether the worker has finished its work; it then completes.
      idle_seconds: How long there is nothing to do; commands and signals cut it short.
    """

    done: bool = False
    idle_seconds: float = 0.0


class LifeCycle:
    """Takes one worker through its life.

    Args:
      job: Its place in the run.
      make_worker: Builds it; called once the job has shown itself as configuring, so that slow
        imports belong in it.
      on_status: Called with the status at each change of state and about once per second, from
        the thread that runs.
    """

    def __init__(
        self,
        job: job_lib.Job,
        make_worker: Callable[[], worker_lib.Worker],
        *,
        on_status: Callable[[status_lib.Status], None] = lambda status: None,
    ) -> None:
        self._job = job
        self._make_worker = make_worker
        self._on_status = on_status
        self._state = states.CONFIGURING
        self._message = ""
        self._failure: status_lib.Failure | None = None
        self._contribution = status_lib.Contribution({}, {})
        self._contributed_at = 0.0
        self._poll_began: float | None = None
        self._recent: collections.deque[tuple[float, int]] = collections.deque()
        self._steps_per_second: float | None = None
        self._done = False
        self._is_configured = False
        self._stop_request: signals.StopRequest | None = None
        self._heartbeat: heartbeat_lib.Heartbeat | None = None
        self._wake = threading.Event()
        self._commands = commands.Commands(str(job), self._on_command)

    @property
    def state(self) -> str:
        return self._state

    @property
    def exit_code(self) -> int:
        """0: its work is done. Ended before: 128 + the signal's number, or `TOLD_TO_EXIT`.

        `DONE_NOT_SAVED` or `ENDED_NOT_SAVED` instead if a disk is full.
        """
        request = self._stop_request
        if unsaved.ledger().entries:
            return states.DONE_NOT_SAVED if self._done else states.ENDED_NOT_SAVED
        if self._done:
            return 0
        if request is None or request.signal_number is None:
            return states.TOLD_TO_EXIT
        return request.exit_code

    def run(self) -> str:
        """Lives; blocks until the end.

        In the main thread of a process, SIGTERM and SIGINT ask for an orderly end; the second one
        ends at once.

        Returns:
          `states.COMPLETED`.

        Raises:
          Whatever the worker raised, after it was closed and its end was recorded.
        """
        with self._signals():
            lease = lease_lib.Lease(self._job)
            try:
                lease.claim()
            except job_lib.Stopping:
                self._state = states.COMPLETED
                return self._state
            self._forget_error()
            with self._wire(lease):
                heartbeat = heartbeat_lib.Heartbeat(self._job, lease, self.status, self._stop)
                self._heartbeat = heartbeat
                heartbeat.start()
                self._on_status(self.status())
                try:
                    self._live()
                except BaseException as error:
                    self._report(error)
                    self._enter(states.ERROR)
                    raise
                finally:
                    self._commands.end(lambda: self._state)
                    heartbeat.stop()
                    unsaved.ledger().thread = None
        return self._state

    def status(self) -> status_lib.Status:
        """The status of now; any thread may ask."""
        job, began = self._job, self._poll_began
        known = dict(self._contribution.known)
        words = (unsaved.ledger().summary(), self._message or known.get("message", ""))
        known["message"] = "; ".join(filter(None, words))
        return status_lib.Status(
            kind=job.kind,
            index=job.index,
            state=self._state,
            pid=os.getpid(),
            host=socket.gethostname(),
            incarnation=job.incarnation,
            restarts=job.restarts,
            steps_per_second=self._steps_per_second,
            poll_seconds=0.0 if began is None else time.monotonic() - began,
            failure=self._failure,
            details=self._contribution.details,
            **known,
        )

    def _live(self) -> None:
        worker = None
        unsaved.ledger().thread = threading.current_thread()
        try:
            try:
                worker = self._make_worker()
                worker.job = self._job
                worker.configure()
                self._is_configured = True
                self._enter(states.READY)
                self._work(worker)
                self._contribute(worker, now=True)
            except job_lib.Stopping:
                if not self._job.stopping.is_set():
                    raise
                if self._state != states.CONFIGURING:
                    self._contribute(worker, now=True)
            # Silent for a while, stopped by a debugger say, it may have a successor by now.
            self._heartbeat.require_lease()
        except BaseException as error:
            self._job.displaced = isinstance(
                error, (lease_lib.LeaseLostError, errors.SupersededError)
            )
            self._report(error)
            self._commands.end(lambda: self._state)
            self._close_after_failure(worker)
            raise
        self._commands.end(lambda: self._state)
        if worker is not None:
            self._message = "closing"  # Which may take long: it saves.
            try:
                if self._is_configured:
                    self._save(worker)
            finally:
                worker.close()
            self._message = ""
        self._enter(states.COMPLETED)

    def _work(self, worker: worker_lib.Worker) -> None:
        if not self._job.hold and not self._job.stopping.is_set():
            self._enter(states.RUNNING)
        while not self._job.stopping.is_set():
            self._wake.clear()
            unsaved.ledger().retry_due()
            self._obey(worker)
            self._heartbeat.check()
            if self._job.stopping.is_set():
                break
            if self._state != states.RUNNING:
                self._wait(_PAUSED_SECONDS)
                continue
            result = self._poll(worker)
            self._contribute(worker)
            if result.done:
                self._done = True
                break
            if result.idle_seconds > 0:
                self._wait(result.idle_seconds)

    def _wait(self, seconds: float) -> None:
        """Waits for a command, or for the request to end, which a signal makes in a thread."""
        deadline = time.monotonic() + seconds
        while not self._job.stopping.is_set():
            left = deadline - time.monotonic()
            if left <= 0 or self._wake.wait(min(left, _GLANCE_SECONDS)):
                return

    def _poll(self, worker: worker_lib.Worker) -> PollResult:
        self._poll_began = time.monotonic()
        try:
            result = worker.poll()
        finally:
            self._poll_began = None
        if isinstance(result, PollResult):
            return result
        if getattr(result, "shape", None) == ():
            result = result.item()  # A comparison of NumPy's.
        if result is None or isinstance(result, bool):
            return PollResult(done=bool(result))
        raise errors.JobError(
            f"poll() of {self._job} returned {result!r}; it must return whether it is done: True, "
            "False, None or a PollResult"
        )

    def _close_after_failure(self, worker: worker_lib.Worker | None) -> None:
        if worker is None:
            return
        try:
            try:
                if self._is_configured and not self._job.displaced:
                    self._save(worker)
            finally:
                worker.close()
        except Exception:  # What came first is what is raised.
            logging.exception("%s, having failed, could not be closed either", self._job)

    def _save(self, worker: worker_lib.Worker) -> None:
        stopping = self._job.stopping.is_set()
        worker.save()
        # One that was asked to end before it began to wait has its launcher's grace.
        unsaved.ledger().settle(lambda: not stopping and self._job.stopping.is_set())

    def _contribute(self, worker: worker_lib.Worker, now: bool = False) -> None:
        """Asks the worker for its status, at most once per second."""
        time_now = time.monotonic()
        pause = min(_CONTRIBUTION_SECONDS, self._job.heartbeat_seconds)
        if not now and time_now - self._contributed_at < pause:
            return
        self._contributed_at = time_now
        contribution = status_lib.Contribution.of(str(self._job), worker.status())
        steps = contribution.known.get("steps")
        if steps is not None:
            if self._recent and steps < self._recent[-1][1]:
                self._recent.clear()  # It counts from the start again.
            self._recent.append((time_now, steps))
            while len(self._recent) > 2 and self._recent[0][0] < time_now - _RATE_SECONDS:
                self._recent.popleft()
            (first, then), (last, steps) = self._recent[0], self._recent[-1]
            self._steps_per_second = (steps - then) / (last - first) if last > first else None
        self._contribution = contribution
        self._on_status(self.status())

    def _obey(self, worker: worker_lib.Worker) -> None:
        while (waiting := self._commands.next()) is not None:
            request, command = waiting
            try:
                following = states.state_after(str(self._job), self._state, command)
            except errors.JobError as error:
                request.refuse(str(error))
                continue
            if command == states.PAUSE:
                worker.on_pause()
            elif command == states.RESUME:
                worker.on_resume()
            if following != self._state:
                self._enter(following)
            request.answer({"state": self._state})

    def _on_command(self, command: str) -> None:
        """In the wire's thread: has the worker's own look at a command soon."""
        if command == states.EXIT:
            self._job.stopping.set()  # A long poll that looks at it ends sooner.
        self._wake.set()

    def _stop(self) -> None:
        self._job.stopping.set()
        self._wake.set()

    def _enter(self, state: str) -> None:
        states.check_transition(str(self._job), self._state, state)
        self._state = state
        self._recent.clear()
        self._steps_per_second = None
        logging.info("%s: %s", self._job, state)
        self._on_status(self.status())

    def _report(self, error: BaseException) -> None:
        """Tells log, run directory and whoever asks what has gone wrong."""
        if self._failure is not None:
            return
        self._failure = status_lib.Failure.of(error)
        logging.error("%s failed\n%s", self._job, self._failure.traceback)
        directory = self._job.directory
        if directory is not None:
            when = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            text = f"{self._job}, process {os.getpid()}, {when}\n\n{self._failure.traceback}"
            unsaved.ledger().attempt(
                "error.txt",
                lambda: (directory / "error.txt").write_text(text, encoding="utf-8"),
                where=directory,
                retry=False,
            )

    def _forget_error(self) -> None:
        directory = self._job.directory
        if directory is not None:
            with contextlib.suppress(FileNotFoundError):
                (directory / "error.txt").unlink()

    @contextlib.contextmanager
    def _wire(self, lease: lease_lib.Lease) -> Iterator[None]:
        with wire_lib.held_wire(self._job, lease) as opened:
            opened.handle(commands.STATUS, self._answer_status)
            opened.handle(commands.PING, self._answer_ping)
            opened.handle(commands.COMMAND, self._commands.take)
            unused_bindings.answer_unknown(opened)
            yield

    def _answer_status(self, request: protocol.Request) -> None:
        request.answer({commands.STATUS: self.status().to_json()})

    def _answer_ping(self, request: protocol.Request) -> None:
        status = self.status()
        request.answer({"state": status.state, "poll_seconds": status.poll_seconds})

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with signals.stop_on_signal(sys.stderr) as request:
            if self._job.stopping.is_set():
                request.event.set()
            self._job.stopping = request.event
            self._stop_request = request
            yield

"""The thread that speaks for a worker: heartbeats, status, commands, answers.

All that a running worker has to do with the name registry happens here, so that a registry that is
slow, or gone for a while, holds up no work.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import Callable

from absl import logging

from actor_learner.jobs import control, names, states
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import lease as lease_lib
from actor_learner.jobs import status as status_lib
from actor_learner.naming import name_errors
from actor_learner.support import errors

_COMMAND_SECONDS = 0.2  # Between two looks into the letter box.
_END_SECONDS = 10.0  # For the last words; a registry that is gone must not keep a job from ending.


class Heart:
    """Beats from `start` to `stop`.

    Args:
      job: Whose heart it is; its place must have been claimed.
      place: Its place.
      status: Returns what to publish; called from the thread.
    """

    def __init__(
        self, job: job_lib.Job, lease: lease_lib.Lease, status: Callable[[], status_lib.Status]
    ) -> None:
        self.wake = threading.Event()
        """Set when there is something for the worker to see: a command, a request to end."""
        self._job = job
        self._lease = lease
        self._status = status
        self._commands: collections.deque[tuple[control.Command, float]] = collections.deque()
        self._replies: collections.deque[control.Reply] = collections.deque()
        self._kick = threading.Event()
        self._publish_now = False
        self._ending = False
        self._given_up_at: float | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"heart of {names.job(job.kind, job.index)}", daemon=True
        )

    def start(self) -> None:
        """Writes the first status, from the calling thread, so that no predecessor's is left."""
        self._beat()
        self._thread.start()

    def publish(self) -> None:
        """Has the status written at once, in the thread; does not wait for it."""
        self._publish_now = True
        self._kick.set()

    def next_command(self) -> control.Command | None:
        """The next command that the worker has to obey itself; None if there is none."""
        while self._commands:
            command, received = self._commands.popleft()
            if time.monotonic() - received <= command.seconds:
                return command
            logging.warning(
                "'%s' came %.1f s ago and nobody waits for the answer any more: not obeyed",
                command.command,
                time.monotonic() - received,
            )
        return None

    def answer(self, reply: control.Reply) -> None:
        """Has an answer sent, in the thread, together with the status of now."""
        self._replies.append(reply)
        self.publish()

    def check(self) -> None:
        """Raises what has gone wrong in the thread, if anything has."""
        if self._failure is not None:
            raise self._failure

    def require_lease(self) -> None:
        """Looks, from the calling thread, whether the place is still this process's.

        A registry that does not answer is taken for a yes.

        Raises:
          lease.LeaseLostError: If another process has it.
        """
        self.check()
        with contextlib.suppress(name_errors.RegistryUnavailableError):
            self._lease.beat()

    def stop(self) -> None:
        """Has the last status written and the place given up; waits some seconds for that."""
        self._given_up_at = time.monotonic() + _END_SECONDS
        self._publish_now = True  # Before the next line: the thread looks at them the other way.
        self._ending = True
        self._kick.set()
        self._thread.join(_END_SECONDS + 1.0)
        if self._thread.is_alive():
            logging.error("The last status of %s was not written: the registry hangs", self._job)

    def _run(self) -> None:
        next_beat = time.monotonic() + self._job.heartbeat_seconds
        unavailable = False
        pause = min(_COMMAND_SECONDS, self._job.heartbeat_seconds)
        while True:
            ending = self._ending  # Read first: what is published below is then the last status.
            # What is answered by now is sent after a status that is no older than the answer.
            answers = len(self._replies)
            try:
                now = time.monotonic()
                if answers or self._publish_now or now >= next_beat:
                    self._publish_now = False
                    self._beat()
                    next_beat = now + self._job.heartbeat_seconds
                self._send_replies(answers)
                if ending:
                    self._lease.release()
                    return
                self._read_command()
                if unavailable:
                    logging.info("the registry answers again")
                unavailable = False
            except name_errors.RegistryUnavailableError as error:
                if not unavailable:  # Once per outage: work goes on without it.
                    logging.warning("%s works on without its registry: %s", self._job, error)
                unavailable = True
                self._publish_now = True
                if ending and time.monotonic() > self._given_up_at:
                    logging.error("The last status of %s was not written: %s", self._job, error)
                    return
            except BaseException as error:  # noqa: BLE001 - raised by `check`.
                self._failure = error
                self._job.stopping.set()
                self.wake.set()
                return
            if self._job.stopping.is_set():
                self.wake.set()
            self._kick.wait(pause)
            self._kick.clear()

    def _beat(self) -> None:
        self._lease.beat()
        name = names.status(self._job.run, self._job.kind, self._job.index)
        self._job.names.add(name, self._status().to_json(), replace=True)

    def _send_replies(self, number: int) -> None:
        for _ in range(number):
            job = self._job
            control.answer(job.names, job.run, job.kind, job.index, self._replies[0])
            self._replies.popleft()

    def _read_command(self) -> None:
        job = self._job
        try:
            command = control.take(job.names, job.run, job.kind, job.index)
        except errors.JobError as error:
            logging.warning("%s was sent what is no command: %s", job, error)
            return
        if command is None:
            return
        if command.command == states.PING:
            # Answered here, so that a worker in a long poll can be told from one that is gone.
            status = self._status()
            self._replies.append(
                control.Reply(command.id, status.state, poll_seconds=status.poll_seconds)
            )
            self._kick.set()
            return
        self._commands.append((command, time.monotonic()))
        if command.command == states.EXIT:
            job.stopping.set()  # A long poll that looks at it ends sooner.
        self.wake.set()

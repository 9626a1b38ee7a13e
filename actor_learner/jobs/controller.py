"""Sees all workers of a run and tells them what to do, from anywhere the registry is reached."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping

from actor_learner.jobs import control, names, states, unused_bindings
from actor_learner.jobs import status as status_lib
from actor_learner.naming import registry
from actor_learner.support import errors

_LOOK_SECONDS = 0.1  # Between two looks of a wait for a state,
_ANSWER_SECONDS = 0.05  # and of one for an answer.


class Controller:
    """Reads states and sends commands by way of the name registry.

    ```python
    controller = Controller(connect.connect("redis://host:6379"), "my_run")
    controller.wait_for(states.RUNNING, ["actor-0", "actor-1"], timeout=120)
    controller.send(states.PAUSE, kind="actor")
    ```

    Args:
      names: The registry.
      run: Name of the run.
    """

    def __init__(self, names: registry.NameRegistry, run: str) -> None:
        self._names = names
        self._run = run

    def workers(self, kind: str | None = None) -> list[status_lib.Status]:
        """The last status of every worker that has ever shown itself, by kind and index.

        One that ended without a word, or has been silent for too long, is shown as `lost`.
        """
        found = self._names.find_subtree(names.jobs(self._run))
        statuses = []
        for name, value in found.items():
            if not name.endswith("/status"):
                continue
            status = status_lib.Status.from_json(value)
            alive = names.lease(self._run, status.kind, status.index) in found
            if not alive and status.state in states.LIVE:
                status = dataclasses.replace(
                    status,
                    state=states.LOST,
                    steps_per_second=None,
                    message=f"was {status.state}; no heartbeats any more",
                )
            if kind in (None, status.kind):
                statuses.append(status)
        return sorted(statuses, key=lambda status: (status.kind, status.index))

    def worker(self, kind: str, index: int = 0) -> status_lib.Status:
        """The last status of one worker.

        Raises:
          errors.JobError: If it has never shown itself; says which ones have.
        """
        everyone = self.workers()
        for status in everyone:
            if (status.kind, status.index) == (kind, index):
                return status
        there = ", ".join(status.name for status in everyone) or "none"
        raise errors.JobError(
            f"run {self._run} has no worker {names.job(kind, index)}; it has {there}. Is it "
            "started, with this run and registry?"
        )

    def failures(self) -> dict[str, status_lib.Failure]:
        """What ended each worker that has failed, by its name."""
        return {s.name: s.failure for s in self.workers() if s.failure is not None}

    def unused_bindings(self, workers: Collection[str]) -> list[str] | None:
        """What none of `workers` has used of the configuration; None before all have said so."""
        return unused_bindings.in_common(self._names, self._run, list(workers))

    def send(
        self,
        command: str,
        *,
        kind: str | None = None,
        index: int | None = None,
        only: Collection[str] | None = None,
        timeout: float = 30.0,
    ) -> dict[str, control.Reply]:
        """Sends a command to workers and waits until all of them have obeyed.

        Workers obey between two polls; `ping` is answered at once, even during a poll.

        Args:
          command: One of `states.COMMANDS`.
          kind: To those of this kind only.
          index: To those with this index only.
          only: To those in one of these states only; None is all that are alive.
          timeout: Seconds that all of them have together.

        Returns:
          The answers, by the workers' names.

        Raises:
          errors.JobTimeoutError: Names those who did not answer, and what is known of them.
          errors.JobError: If there is nobody to send it to, or one refuses; says why.
        """
        states.check_command(command)
        addressed = [
            status
            for status in self.workers(kind)
            if status.state in (states.LIVE if only is None else only)
            and index in (None, status.index)
        ]
        if not addressed:
            wanted = "alive" if only is None else " or ".join(only)
            there = "; ".join(status.describe() for status in self.workers(kind)) or "none"
            raise errors.JobError(
                f"there is nobody to send '{command}' to: {self._who(kind, index)} of run "
                f"{self._run} is {wanted}. Those known: {there}"
            )
        places = {status.name: (self._run, status.kind, status.index) for status in addressed}
        replies = self._exchange(command, places, timeout)
        self._check_replies(command, places, replies, timeout)
        return replies

    def wait_for(
        self,
        state: str | Collection[str],
        workers: Collection[str],
        *,
        timeout: float,
    ) -> dict[str, status_lib.Status]:
        """Waits until all of `workers`, such as `actor-0`, are in a state, or in one of several.

        Raises:
          errors.JobError: As soon as one of them cannot get there any more, because it has ended.
            Its traceback is in the message.
          errors.JobTimeoutError: Names those that are not there in time, and what they are instead.
        """
        wanted = {state} if isinstance(state, str) else set(state)
        deadline = time.monotonic() + timeout
        while True:
            found = {s.name: s for s in self.workers() if s.name in workers}
            if len(found) == len(set(workers)) and all(s.state in wanted for s in found.values()):
                return found
            for status in found.values():
                if status.state in states.ENDED and status.state not in wanted:
                    raise errors.JobError(_ended(status, wanted))
            if time.monotonic() >= deadline:
                missing = [
                    found[name].describe() if name in found else f"{name}: never seen"
                    for name in sorted(set(workers))
                    if name not in found or found[name].state not in wanted
                ]
                raise errors.JobTimeoutError(
                    f"not {' or '.join(sorted(wanted))} within {timeout:g} s, in run {self._run}: "
                    + "; ".join(missing)
                )
            time.sleep(_LOOK_SECONDS)

    def forget_ended(self) -> None:
        """Removes the records of workers that have ended or are lost, when a run begins anew."""
        for status in self.workers():
            if status.state not in states.LIVE:
                self._names.clear_subtree(names.place(self._run, status.kind, status.index))

    def _who(self, kind: str | None, index: int | None) -> str:
        if kind is None:
            return "no worker" if index is None else f"no worker with index {index}"
        return f"no {kind}" if index is None else f"no {names.job(kind, index)}"

    def _exchange(
        self, command: str, places: Mapping[str, tuple[str, str, int]], timeout: float
    ) -> dict[str, control.Reply]:
        """Sends to all at once, and collects what answers there are in time."""
        deadline = time.monotonic() + timeout
        sent: dict[str, str] = {}
        replies: dict[str, control.Reply] = {}
        while True:
            left = deadline - time.monotonic()
            for name, place in places.items():
                if name not in sent:
                    id_ = control.post(self._names, *place, command, left)
                    if id_ is not None:
                        sent[name] = id_
                elif name not in replies:
                    reply = control.collect(self._names, *place, sent[name])
                    if reply is not None:
                        replies[name] = reply
            if len(replies) == len(places) or left <= 0:
                return replies
            time.sleep(_ANSWER_SECONDS)

    def _check_replies(
        self,
        command: str,
        sent: Collection[str],
        replies: Mapping[str, control.Reply],
        timeout: float,
    ) -> None:
        silent = sorted(set(sent) - set(replies))
        if silent:
            now = {status.name: status for status in self.workers()}
            known = "; ".join(now[name].describe() for name in silent if name in now)
            raise errors.JobTimeoutError(
                f"'{command}' was not answered within {timeout:g} s by {', '.join(silent)} of run "
                f"{self._run}. {known or 'Nothing is known of them any more'}"
            )
        refused = [reply.error for _, reply in sorted(replies.items()) if reply.error]
        if refused:
            raise errors.JobError("; ".join(refused))


def _ended(status: status_lib.Status, wanted: Collection[str]) -> str:
    text = f"{status.describe()}: it will not be {' or '.join(sorted(wanted))} any more"
    return f"{text}\n{status.failure.traceback}" if status.failure else text

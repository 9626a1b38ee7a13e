"""Shows all workers of a run and commands them, from anywhere that reaches their wires."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Collection, Mapping
from concurrent import futures
from typing import Any

from actor_learner.jobs import commands, connections, states, unused_bindings
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import job_entries, names
from actor_learner.messaging import keys as keys_lib
from actor_learner.messaging import messages, protocol
from actor_learner.naming import registry
from actor_learner.support import errors

_LOOK_SECONDS = 0.1  # Between two checks while waiting for a state.
_LEASE_SECONDS = 1.0  # Between two checks whether silent workers are still there.
_ANSWER_SECONDS = 0.3  # A worker that has not answered by then may have ended: ask the registry.


class Controller:
    """Finds workers in the name registry, and asks and commands them over their wires.

    ```python
    with Controller(connect.connect("redis://host:6379"), "my_run") as controller:
        controller.wait_for(states.RUNNING, ["actor-0", "actor-1"], timeout=120)
        controller.send(states.PAUSE, kind="actor")
    ```

    Connections are kept until `close`. Any thread may use it.

    Args:
      names: The registry.
      run: Name of the run.
      keys: Of the run; None if its wires demand none.
      who: Name of this end, for the workers.
    """

    def __init__(
        self,
        names: registry.NameRegistry,
        run: str,
        *,
        keys: keys_lib.RunKeys | None = None,
        who: str = "controller",
    ) -> None:
        self._names = names
        self._run = run
        self._entries = job_entries.JobEntriesReader(names, run)
        self._connections = connections.Connections(who, keys)
        self._said: dict[str, status_lib.Status] = {}
        self._unused: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends its connections; the registry stays open. Safe to call twice."""
        self._connections.close()

    def workers(self, kind: str | None = None) -> list[status_lib.Status]:
        """Returns the status of every worker that the run has had, by kind and index.

        All living ones are asked at the same time, for at most two seconds. A worker that does not
        answer is shown as it was last seen, with `silent_seconds`; one whose lease has run out, as
        `lost`.
        """
        with self._lock:
            found = self._ask_all()
            shown = [self._status(entries) for entries in found.values()]
        return sorted(
            (status for status in shown if status is not None and kind in (None, status.kind)),
            key=lambda status: (status.kind, status.index),
        )

    def worker(self, kind: str, index: int = 0) -> status_lib.Status:
        """Returns the status of one worker.

        Raises:
          errors.JobError: If the run has never had it; lists those it has had.
        """
        everyone = self.workers()
        for status in everyone:
            if (status.kind, status.index) == (kind, index):
                return status
        there = ", ".join(status.name for status in everyone) or "none"
        raise errors.JobError(
            f"run {self._run} has no worker {names.job(kind, index)}; it has {there}. Was it "
            "started, with this run and registry?"
        )

    def failures(self) -> dict[str, status_lib.Failure]:
        """Returns the error of each worker that has failed, by the worker's name."""
        return {s.name: s.failure for s in self.workers() if s.failure is not None}

    def unused_bindings(self, workers: Collection[str]) -> list[str] | None:
        """Returns the bindings that none of `workers` has used; None before all have told theirs.

        Asks those that have not; an answer is kept even if its worker has ended since.
        """
        asked = {}
        unknown = [name for name in workers if name not in self._unused]
        if any(self._connections.get(name) is None for name in unknown):
            self.workers()
        for name in unknown:
            peer = self._connections.get(name)
            if peer is not None:
                asked[name] = peer.client.submit(
                    commands.UNUSED_BINDINGS, timeout_seconds=connections.STATUS_SECONDS
                )
        for name, answer in asked.items():
            try:
                unused = unused_bindings.read(answer.result().body)
            except errors.ActorLearnerError:
                continue  # It is silent or ending: ask again next time.
            if unused is not None:
                self._unused[name] = unused
        if not self._unused.keys() >= set(workers):
            return None
        return unused_bindings.in_common({name: self._unused[name] for name in workers})

    def send(
        self,
        command: str,
        *,
        kind: str | None = None,
        index: int | None = None,
        only: Collection[str] | None = None,
        timeout: float = 30.0,
    ) -> dict[str, commands.Reply]:
        """Sends a command to workers and waits until all of them have obeyed.

        Workers obey between two polls; `ping` is answered at once, even during a poll.

        Args:
          command: One of `states.COMMANDS`.
          kind: Restricts it to workers of this kind.
          index: Restricts it to workers with this index.
          only: Restricts it to workers in one of these states, and silent ones, whose state is not
            known; None sends it to all living workers.
          timeout: Seconds for all of them together.

        Returns:
          The answers, by the workers' names.

        Raises:
          errors.JobTimeoutError: If some did not answer; names them and what is known of them.
          errors.JobError: If there is no worker to send it to, or one refuses; says why.
        """
        states.check_command(command)
        deadline = time.monotonic() + timeout
        everyone = self.workers(kind)
        addressed = [
            status
            for status in everyone
            if status.state in states.LIVE
            and (only is None or status.state in only or status.silent_seconds)
            and index in (None, status.index)
        ]
        if not addressed:
            wanted = "alive" if only is None else " or ".join(only)
            known = everyone or self.workers()
            there = "; ".join(status.describe() for status in known) or "none"
            raise errors.JobError(
                f"'{command}' was not sent: {self._who(kind, index)} of run {self._run} is "
                f"{wanted}. Known workers: {there}"
            )
        sent = [status.name for status in addressed]
        replies = self.ask(command, sent, timeout=deadline - time.monotonic())
        self._check_replies(command, sent, replies, timeout)
        return replies

    def ask(
        self, command: str, workers: Collection[str], *, timeout: float
    ) -> dict[str, commands.Reply]:
        """Sends a command to workers, all at the same time, and collects the answers.

        Unlike `send` it does not fail if some are silent or refuse.

        Args:
          command: One of `states.COMMANDS`.
          workers: Such as `actor-0`.
          timeout: Seconds for all of them together.

        Returns:
          The answers, by the workers' names, without those that did not answer.

        Raises:
          errors.ConfigError: If one demands other keys than were given.
        """
        states.check_command(command)
        deadline = time.monotonic() + timeout
        answers: dict[str, futures.Future[messages.Message]] = {}
        while True:
            left = max(0.0, deadline - time.monotonic())
            for name in workers:
                peer, refusal = self._connections.get(name), self._connections.refusal(name)
                if refusal is not None:
                    raise errors.ConfigError(refusal)
                if name in answers or peer is None:
                    continue
                # `ping` is a request of its own: it does not wait for the end of a poll.
                question = commands.PING if command == states.PING else commands.COMMAND
                answers[name] = peer.client.submit(
                    question, {"command": command, "seconds": left}, timeout_seconds=left
                )
            if len(answers) == len(set(workers)) or left <= 0:
                break
            time.sleep(min(left, _LOOK_SECONDS))  # A new worker opens its wire soon.
            self.workers()
        return self._replies(command, answers, deadline)

    def wait_for(
        self,
        state: str | Collection[str],
        workers: Collection[str],
        *,
        timeout: float,
    ) -> dict[str, status_lib.Status]:
        """Waits until all of `workers`, such as `actor-0`, are in a state, or in one of several.

        Raises:
          errors.JobError: As soon as one of them has ended, and so cannot get there; with its
            traceback.
          errors.ConfigError: If one of them demands other keys than were given.
          errors.JobTimeoutError: If some are not in time; names them and their states.
        """
        wanted = {state} if isinstance(state, str) else set(state)
        deadline = time.monotonic() + timeout
        while True:
            found = {s.name: s for s in self.workers() if s.name in workers}
            for name in found:  # First: the state in its record may be an old one.
                if (refusal := self._connections.refusal(name)) is not None:
                    raise errors.ConfigError(refusal)
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
        """Removes the records of workers that have ended or are lost, before a run is resumed."""
        for entries in self._entries.read().values():
            if entries.lease is None:
                self._names.clear_subtree(names.place(self._run, entries.kind, entries.index))
        with self._lock:
            self._said.clear()

    def _ask_all(self) -> dict[str, job_entries.JobEntries]:
        """Asks all living workers for their status; returns the registry's entries of each job."""
        found = self._entries.read()
        met = self._connections.meet(_reachable(found))
        waits = {name: peer.ask() for name, peer in met.items()}
        began = time.monotonic()
        looked_again = False
        for name in sorted(waits, key=waits.__getitem__):
            peer = met[name]
            if peer.take(began + min(waits[name], _ANSWER_SECONDS) - time.monotonic()):
                continue
            if waits[name] > _ANSWER_SECONDS and not looked_again:
                looked_again = True
                found = self._entries.read()
            if found.get(name) is not None and found[name].lease == peer.lease:
                peer.take(began + waits[name] - time.monotonic())
        return found

    def _replies(
        self,
        command: str,
        answers: Mapping[str, futures.Future[messages.Message]],
        deadline: float,
    ) -> dict[str, commands.Reply]:
        """Collects answers until the deadline; does not wait for workers that have ended."""
        replies: dict[str, commands.Reply] = {}
        pending = dict(answers)
        while pending:
            left = deadline - time.monotonic()
            futures.wait(pending.values(), min(max(0.0, left), _LEASE_SECONDS))
            for name in [name for name, answer in pending.items() if answer.done()]:
                reply = self._reply(name, pending.pop(name))
                if reply is not None:
                    replies[name] = reply
            if not pending or left <= 0:
                break
            found = self._entries.read()
            for name in list(pending):
                peer, entries = self._connections.get(name), found.get(name)
                if peer is not None and entries is not None and entries.lease == peer.lease:
                    continue
                pending.pop(name)
                if command == states.EXIT:  # It has ended, as it was told to.
                    record = None if entries is None else entries.record
                    replies[name] = commands.Reply(
                        states.COMPLETED if record is None else record.state
                    )
        return replies

    def _reply(self, name: str, answer: futures.Future[messages.Message]) -> commands.Reply | None:
        try:
            body = answer.result().body
            return commands.Reply(
                str(body.get("state")), poll_seconds=float(body.get("poll_seconds", 0.0))
            )
        except protocol.RefusedError as error:
            said = self._said.get(name)
            return commands.Reply(said.state if said else "", str(error))
        except (protocol.NoAnswerError, TypeError, ValueError):
            return None  # Silent, or not a worker of ours.

    def _status(self, entries: job_entries.JobEntries) -> status_lib.Status | None:
        """Returns the status to show of one job; None if nothing is known of it."""
        known, said = entries.status(), self._said.get(entries.name)
        if (
            known is not None
            and said is not None
            and said.incarnation == known.incarnation
            and known.state in states.LIVE
        ):
            known = said  # A record follows the job's state by a heartbeat: this is newer.
        if entries.lease is None:
            return None if known is None else _lost(known)
        peer = self._connections.get(entries.name)
        if peer is None or peer.lease != entries.lease:
            why = self._connections.refusal(entries.name)  # Else its wire is not open yet.
            return (
                known if known is None or why is None else dataclasses.replace(known, message=why)
            )
        silent = peer.silent_seconds
        if not silent and peer.status is not None:
            self._said[entries.name] = peer.status
            return peer.status
        return known and dataclasses.replace(known, silent_seconds=silent, steps_per_second=None)

    def _who(self, kind: str | None, index: int | None) -> str:
        if kind is None:
            return "no worker" if index is None else f"no worker with index {index}"
        return f"no {kind}" if index is None else f"no {names.job(kind, index)}"

    def _check_replies(
        self,
        command: str,
        sent: Collection[str],
        replies: Mapping[str, commands.Reply],
        timeout: float,
    ) -> None:
        silent = sorted(set(sent) - set(replies))
        if silent:
            now = {status.name: status for status in self.workers()}
            known = "; ".join(now[name].describe() for name in silent if name in now)
            raise errors.JobTimeoutError(
                f"'{command}' was not answered within {timeout:g} s by {', '.join(silent)} of run "
                f"{self._run}. {known or 'The registry no longer has them'}"
            )
        refused = [reply.error for _, reply in sorted(replies.items()) if reply.error]
        if refused:
            raise errors.JobError("; ".join(refused))


def _reachable(
    found: Mapping[str, job_entries.JobEntries],
) -> dict[str, Any]:
    return {
        name: entries.lease
        for name, entries in found.items()
        if entries.lease is not None and entries.lease.wire
    }


def _lost(status: status_lib.Status) -> status_lib.Status:
    """Returns the status of a job whose lease has run out; if it has ended, its last."""
    if status.state not in states.LIVE:
        return status
    return dataclasses.replace(
        status,
        state=states.LOST,
        steps_per_second=None,
        silent_seconds=0.0,
        message=f"was {status.state}; its heartbeats have stopped",
    )


def _ended(status: status_lib.Status, wanted: Collection[str]) -> str:
    text = f"{status.describe()}: it has ended, and will not be {' or '.join(sorted(wanted))}"
    return f"{text}\n{status.failure.traceback}" if status.failure else text

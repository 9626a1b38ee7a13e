"""A job's place in its run: exactly one process has it, and others see when it is gone."""

from __future__ import annotations

import json
import os
import socket
import time

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import names
from actor_learner.naming import name_errors
from actor_learner.support import errors

_TAKEOVER_TTL = 5.0
_PAUSE = 0.2


class PlaceLostError(errors.JobError):
    """Another process has this job's place now."""


class Place:
    """Holds `<run>/jobs/<kind>/<index>` for one process, by heartbeats.

    Args:
      job: Whose place it is.
    """

    def __init__(self, job: job_lib.Job) -> None:
        self._job = job
        self._names = job.names
        self._heartbeat = names.heartbeat(job.run, job.kind, job.index)
        self._takeover = names.takeover(job.run, job.kind, job.index)
        self._address = names.address(job.run, job.kind, job.index)
        self._holder = json.dumps(_this_process())

    def claim(self) -> None:
        """Takes the place, waiting until a predecessor that has died counts as lost.

        A predecessor that is known to be dead, by its pid on this machine, is replaced at once.

        Raises:
          errors.JobError: If a process that is alive has the place.
          job_lib.Stopping: If this job is asked to end meanwhile.
        """
        # Whoever has died beats no more, so its place is free by then.
        deadline = time.monotonic() + 1.2 * self._job.lost_after_seconds + 1.0
        waiting = False
        while not self._try_claim():
            holder = self._holder_now()
            if holder is not None and _is_dead(holder):
                self._replace(holder)
                continue
            if holder is not None and (_is_alive(holder) or time.monotonic() > deadline):
                raise errors.JobError(
                    f"{self._job} is running already, as process {holder.get('pid')} on "
                    f"{holder.get('host')}: stop that one first, or use another --index or --run"
                )
            if not waiting:
                waiting = True
                logging.info("%s waits for its predecessor %s to be lost", self._job, holder)
            if self._job.stopping.wait(_PAUSE):
                raise job_lib.Stopping(f"{self._job} was asked to end while it waited for its turn")

    def beat(self) -> None:
        """Shows that this process is alive, and that its address holds.

        Raises:
          PlaceLostError: If another process has taken the place, this one having been silent.
        """
        try:
            self._names.touch(self._heartbeat)
        except name_errors.NotOwnerError as error:
            raise PlaceLostError(
                f"{self._job} was silent for more than {self._job.lost_after_seconds:g} s, and "
                f"another process has taken its place: this one ends ({error})"
            ) from error
        except name_errors.NameNotFoundError:
            # Silent for too long, or the registry was emptied; nobody else has come meanwhile.
            if not self._try_claim():
                return  # Somebody has, just now: the next beat says so.
            self._job.remind()
        if self._job.address is not None:
            self._job.publish_address(self._job.address)

    def release(self) -> None:
        """Gives the place up; its status stays."""
        for name in (self._heartbeat, self._address):
            try:
                self._names.delete(name)
            except (name_errors.NameNotFoundError, name_errors.NotOwnerError):
                pass  # It ran out, or belongs to a successor already.

    def _try_claim(self) -> bool:
        try:
            self._names.add(self._heartbeat, self._holder, ttl=self._job.lost_after_seconds)
        except name_errors.NameTakenError:
            return False
        return True

    def _holder_now(self) -> dict | None:
        try:
            return json.loads(self._names.get(self._heartbeat))
        except name_errors.NameNotFoundError:
            return None

    def _replace(self, dead: dict) -> None:
        """Removes the dead holder; of several that try, one at a time."""
        try:
            self._names.add(self._takeover, self._holder, ttl=_TAKEOVER_TTL)
        except name_errors.NameTakenError:
            self._job.stopping.wait(_PAUSE)
            return
        try:
            if self._holder_now() == dead:
                logging.info("%s replaces process %s, which has died", self._job, dead.get("pid"))
                self._names.take(self._heartbeat)
        except name_errors.NameNotFoundError:
            pass  # It ran out at this very moment.
        finally:
            self._release_takeover()

    def _release_takeover(self) -> None:
        try:
            self._names.delete(self._takeover)
        except (name_errors.NameNotFoundError, name_errors.NotOwnerError):
            pass


def _this_process() -> dict[str, str | int]:
    pid = os.getpid()
    return {
        "pid": pid,
        "host": socket.gethostname(),
        "machine": _machine(),
        "started": _started(pid) or "",
    }


def _machine() -> str:
    """Tells apart machines, their boots, and containers, within which pids mean something."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process was started, in the kernel's own count; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # Field 3 is the state: a process that has ended and was not collected yet is dead.
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _is_here(holder: dict) -> bool:
    return bool(holder.get("machine")) and holder["machine"] == _machine()


def _is_alive(holder: dict) -> bool:
    return _is_here(holder) and _started(holder["pid"]) == holder["started"]


def _is_dead(holder: dict) -> bool:
    return _is_here(holder) and _started(holder["pid"]) != holder["started"]

"""What a job's lease says in the name registry: which process holds it, and where it is reached."""

from __future__ import annotations

import dataclasses
import json
import os
import socket

from actor_learner.messaging import keys as keys_lib
from actor_learner.support import errors


@dataclasses.dataclass(frozen=True)
class LeaseEntry:
    """The value of a lease.

    Attributes:
      pid: The process that holds it.
      host: Its machine, for people.
      machine: Tells apart machines, their boots, and containers, within which pids mean something;
        empty if unknown.
      started: When the process was started, in the kernel's own count; empty if unknown.
      incarnation: Of the job; differs from that of its predecessor.
      wire: Where its wire listens, as `tcp://host:port`; empty before it does.
      keys: Fingerprint of the keys that its wire demands; empty if it demands none.
    """

    pid: int
    host: str
    machine: str
    started: str
    incarnation: str
    wire: str = ""
    keys: str = ""

    @classmethod
    def of_this_process(cls, incarnation: str) -> LeaseEntry:
        pid = os.getpid()
        return cls(pid, socket.gethostname(), _machine(), _started(pid) or "", incarnation)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LeaseEntry:
        """Reads what `to_json` wrote; fields that a later version has added are left out.

        Raises:
          errors.JobError: If it is something else.
        """
        try:
            content = json.loads(text)
            known = {field.name: content[field.name] for field in dataclasses.fields(cls)}
            if not isinstance(known.pop("pid"), int) or not all(
                isinstance(value, str) for value in known.values()
            ):
                raise TypeError("a value has another type than it has in a lease")
            return cls(content["pid"], **known)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise errors.JobError(f"not a lease ({error!r}): {text[:200]!r}") from error

    def is_alive(self) -> bool:
        """Whether the process is known to live: it does on this machine, under the same pid."""
        return self._is_here() and _started(self.pid) == self.started

    def is_dead(self) -> bool:
        """Whether the process is known to have ended; of one on another machine, nothing is."""
        return self._is_here() and _started(self.pid) != self.started

    def check_keys(self, name: str, who: str, keys: keys_lib.RunKeys | None) -> None:
        """Refuses to connect with keys that the wire will not take: it would never answer.

        Args:
          name: Of the job.
          who: Wants to connect.
          keys: What that one has.

        Raises:
          errors.ConfigError: If the wire demands others.
        """
        ours = keys.fingerprint if keys is not None else ""
        if ours != self.keys:
            raise errors.ConfigError(
                f"{name} demands {'the keys of its run' if self.keys else 'no keys'}, and {who} "
                f"has {'other keys' if ours else 'none'}: give every process of the run the same, "
                f"by {keys_lib.VARIABLE}"
            )

    def _is_here(self) -> bool:
        return bool(self.machine) and self.machine == _machine()


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process was started; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # Field 3 is the state: a process that has ended and was not collected yet is dead.
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()

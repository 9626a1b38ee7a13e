"""A lock between processes, held on a file and freed by the system when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
import time
from collections.abc import Iterator

from actor_learner.support import disk_space, errors

# Between two looks at a lock that somebody holds, in seconds: at random, so that waiters that were
# refused together do not come back together.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.01

_SIGNATURE_BYTES = 256
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class LockTimeoutError(errors.ActorLearnerError, TimeoutError):
    """The lock stayed with somebody else past the deadline; the message says with whom."""


@contextlib.contextmanager
def locked(path: str | os.PathLike, *, purpose: str, timeout: float = 30.0) -> Iterator[None]:
    """Holds the lock of `path` against other processes, and other threads of this one.

    Locks are meant to be held for milliseconds. The file is made if it is missing; it must never
    be removed while anybody uses it. A holder that dies, even by `kill -9`, frees the lock.

    Args:
      path: The file, in a directory that exists.
      purpose: What the lock is wanted for, for the error: "adding the name 'a'".
      timeout: The longest wait, in seconds.

    Raises:
      LockTimeoutError: If another one holds it for longer than `timeout`.
      OSError: If the file cannot be opened or the file system has no locks.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _acquire(file, path, purpose, timeout)
        try:
            _sign(file)
            yield
        finally:
            # Closing alone would not free it if a child was forked meanwhile.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _sign(file: int) -> None:
    """Notes who holds the lock, for the messages of others: always over the same bytes.

    So a full disk, which has no room for a first signature, still has it for the next.
    """
    holder = f"process {os.getpid()} on {socket.gethostname()}".encode()
    try:
        os.pwrite(file, holder[:_SIGNATURE_BYTES].ljust(_SIGNATURE_BYTES), 0)
    except OSError as error:
        if not disk_space.is_out_of_space(error):
            raise


def _acquire(file: int, path: str | os.PathLike, purpose: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                signed = os.pread(file, _SIGNATURE_BYTES, 0).decode(errors="replace").strip()
                holder = signed or "an unknown process"
                raise LockTimeoutError(
                    f"process {os.getpid()} has waited {timeout:g} s for the lock {path}, for "
                    f"{purpose}; {holder} holds it: that process is stopped or its disk hangs"
                ) from None
            time.sleep(random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE))
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                raise OSError(
                    error.errno,
                    f"the file system of {path} has no locks (flock); use a directory on another "
                    f"one",
                ) from error
            raise

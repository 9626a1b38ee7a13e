"""Whether there is room on a disk, and whether an error says that there is none."""

from __future__ import annotations

import errno
import os
import shutil

_ERROR_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = tuple(os.strerror(number) for number in _ERROR_NUMBERS)
_LEAST_BYTES = 4_096  # No writer can do anything with less.


def is_out_of_space(error: BaseException | None, where: str | os.PathLike | None = None) -> bool:
    """Whether `error`, or what has caused it, says that a disk or a quota is full.

    TensorFlow and Reverb have no error of their own for it: the one raises ResourceExhaustedError
    or others of its family, the other IndexError or RuntimeError; `shutil` gathers several errors
    in one. They are believed if they say so in the system's words, or if the file system of
    `where` has no room in fact.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            if error.errno in _ERROR_NUMBERS:
                return True
        elif _may_be_disguised(error):
            if any(words in str(error) for words in _WORDS):
                return True
            if where is not None and not has_room(where):
                return True
        error = error.__cause__
    return False


def has_room(where: str | os.PathLike, num_bytes: int = _LEAST_BYTES) -> bool:
    """Whether the file system of `where` has `num_bytes` left; True where that cannot be known.

    `where` need not exist yet.
    """
    path = os.path.abspath(where)
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return True
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return blocks * found.f_frsize >= num_bytes


def full(where: str | os.PathLike) -> OSError:
    """The error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(where))


def _may_be_disguised(error: BaseException) -> bool:
    if isinstance(error, (IndexError, RuntimeError, shutil.Error)):
        return True
    return any(kind.__module__.startswith("tensorflow.") for kind in type(error).__mro__)

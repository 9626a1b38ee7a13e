"""Keeps the log of a run of weeks from filling the disk: the newest lines stay, the oldest go."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Iterator

from absl import logging

from actor_learner.support import configurable, errors

_LOOK_SECONDS = 10.0
_COPIED_BYTES = 2**20
_OLDER = ".1"


@configurable.register
def log_limit(max_bytes: int = 64 * 2**20) -> int:
    """How large the log of one process may become.

    A log that is larger is moved to `log.1`, in the place of the one before, and begun again: on
    disk are at most twice as many bytes, and those that were written within ten seconds.

    Args:
      max_bytes: Bytes of `log`, and of `log.1`.

    Raises:
      errors.ConfigError: If that is too little to read anything in.
    """
    if max_bytes < 4096:
        raise errors.ConfigError(f"log_limit.max_bytes must be at least 4096, got {max_bytes!r}")
    return max_bytes


def move_if_large(path: str | os.PathLike, max_bytes: int) -> bool:
    """Moves what a log holds to `<path>.1` if it is larger than `max_bytes`; True if it did.

    The file stays the same and is emptied: native libraries and child processes hold it open, and
    write to its descriptor for as long as they live. They must have opened it for appending. Lines
    that are written between the last look and the emptying are lost, which takes microseconds.

    Raises:
      OSError: If it cannot be copied; the log is left as it is.
    """
    path = pathlib.Path(path)
    size = path.stat().st_size
    if size <= max_bytes:
        return False
    older = path.with_name(path.name + _OLDER)
    copy = path.with_name(path.name + _OLDER + ".new")
    try:
        with open(path, "rb") as source, open(copy, "wb") as target:
            source.seek(size - max_bytes)
            source.readline()  # Most likely cut.
            while True:
                content = source.read(_COPIED_BYTES)
                if not content:
                    break
                target.write(content)
                target.flush()
            os.truncate(path, 0)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            copy.unlink()
        raise
    os.replace(copy, older)
    return True


@contextlib.contextmanager
def limited(path: str | os.PathLike | None) -> Iterator[None]:
    """Within it, this process's log stays below the configured limit.

    Args:
      path: The log. Nothing happens unless this process's standard error goes to that very file:
        a terminal, or a file of somebody else's, is not ours to empty. None: there is none.

    Raises:
      errors.ConfigError: As `log_limit`.
    """
    max_bytes = log_limit()
    if path is None or not _is_own_error_output(path):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(path, max_bytes, ended), name="log-limit", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(path: str | os.PathLike, max_bytes: int, ended: threading.Event) -> None:
    while not ended.wait(_LOOK_SECONDS):
        try:
            if move_if_large(path, max_bytes):
                logging.info("What was logged before is in %s%s.", path, _OLDER)
        except OSError as error:
            # Tried again at the next look. On a full disk the log does not grow either.
            logging.log_first_n(logging.WARNING, "%s cannot be shortened: %s", 1, path, error)


def _is_own_error_output(path: str | os.PathLike) -> bool:
    try:
        return os.path.samestat(os.fstat(2), os.stat(path))
    except OSError:
        return False

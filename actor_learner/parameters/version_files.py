"""The files of one name in a parameter store: versions in the order they were pushed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import uuid
from collections.abc import Iterator
from typing import BinaryIO

from actor_learner.support import file_lock

_LOCK = "lock"
_INCOMING = ".incoming-"
_FILE = re.compile(r"(\d{9})-v(\d+)\.npz\Z")


def in_order(directory: pathlib.Path) -> list[pathlib.Path]:
    """The versions, the last pushed last; none if there is no such directory."""
    try:
        files = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [directory / file for file in sorted(files) if _FILE.match(file)]


def version_of(path: pathlib.Path) -> int:
    """The version that a file's name says."""
    return int(_FILE.match(path.name)[2])


def next_path(directory: pathlib.Path, version: int) -> pathlib.Path:
    """Where the next push goes; the caller holds the lock."""
    files = in_order(directory)
    number = int(_FILE.match(files[-1].name)[1]) + 1 if files else 1
    return directory / f"{number:09d}-v{version}.npz"


@contextlib.contextmanager
def locked(directory: pathlib.Path, purpose: str, timeout: float) -> Iterator[None]:
    """Keeps other writers and collectors away; readers need no lock."""
    with file_lock.locked(directory / _LOCK, purpose=purpose, timeout=timeout):
        yield


@contextlib.contextmanager
def incoming(directory: pathlib.Path, timeout: float) -> Iterator[BinaryIO]:
    """A file to write and rename; removed if it was not renamed.

    It is locked as long as its writer lives, which is how `remove_abandoned` knows.
    """
    path = directory / f"{_INCOMING}{uuid.uuid4().hex}"
    with locked(directory, "beginning to write", timeout):
        file = open(path, "xb")
        fcntl.flock(file, fcntl.LOCK_EX)
    with file:
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)


def remove_abandoned(directory: pathlib.Path) -> None:
    """Removes what was begun by writers that have died since; the caller holds the lock."""
    for path in directory.glob(f"{_INCOMING}*"):
        try:
            file = open(path, "rb")
        except FileNotFoundError:
            continue  # Renamed or removed by its writer just now.
        with file, contextlib.suppress(BlockingIOError):  # Its writer lives.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)


def sync(directory: pathlib.Path) -> None:
    """Has the renaming of files reach the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

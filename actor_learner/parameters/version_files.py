"""The files of one name in a parameter store: versions in the order they were pushed, and tags."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from actor_learner.parameters import parameter_errors
from actor_learner.support import file_lock

_LOCK = "lock"
_TAGS = "tags.json"
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


def read_tags(directory: pathlib.Path) -> dict[str, str]:
    """The file that each tag points to.

    Raises:
      parameter_errors.ParameterError: If the tags are damaged.
    """
    path = directory / _TAGS
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        tags = json.loads(text)
        if not isinstance(tags, dict) or not all(isinstance(file, str) for file in tags.values()):
            raise ValueError("it is not a dictionary of strings")
    except ValueError as error:
        raise parameter_errors.ParameterError(
            f"{path} is damaged ({error}): remove it and tag again"
        ) from error
    return tags


def write_tags(directory: pathlib.Path, tags: Mapping[str, str]) -> None:
    """Replaces the tags; the caller holds the directory's lock."""
    incoming = directory / f".{_TAGS}"
    with open(incoming, "w", encoding="utf-8") as file:
        json.dump(dict(tags), file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(incoming, directory / _TAGS)
    sync(directory)

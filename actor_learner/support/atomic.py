"""Files that are either complete or not there, whenever the process is killed."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import BinaryIO


def temporary_sibling(path: str | os.PathLike) -> pathlib.Path:
    """A hidden name in the same directory, with the same suffix, that only this process uses."""
    path = pathlib.Path(path)
    return path.with_name(f".{os.getpid()}.{path.name}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a path to write; on success it becomes `path`, on an error it is removed.

    Creates the parent directory. The old file, if any, stays readable until the new one is whole.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_sibling(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def append(file: BinaryIO, content: bytes) -> None:
    """Appends to an unbuffered file, all of `content` or, where that fails, nothing of it."""
    end = file.seek(0, os.SEEK_END)
    written = 0
    try:
        while written < len(content):
            written += file.write(content[written:])
    except OSError:
        file.truncate(end)
        raise


def drop_torn_line(path: str | os.PathLike) -> int:
    """Cuts off what follows the last newline of `path`: the line a killed process left unfinished.

    Returns the number of bytes cut; 0 if the file is missing or whole.
    """
    try:
        file = open(path, "r+b")
    except FileNotFoundError:
        return 0
    with file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 8192)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                position = start + newline + 1
                break
            position = start
        if position < end:
            file.truncate(position)
        return end - position

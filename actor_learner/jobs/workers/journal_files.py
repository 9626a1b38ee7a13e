"""Files in which a process counts what it does, for its successor to find: one per process."""

from __future__ import annotations

import contextlib
import pathlib
from typing import BinaryIO, NamedTuple
from urllib import parse

from absl import logging

MAX_EARLIER = 8
"""How many earlier processes of one actor are remembered: more of them than can be started within
one checkpoint interval of the learner."""


class EarlierFile(NamedTuple):
    """What an earlier process of the same job has left.

    Attributes:
      incarnation: Which one it was.
      path: Its file.
      content: Of the file, as it was when its process ended.
    """

    incarnation: str
    path: pathlib.Path
    content: bytes


def begin(
    directory: pathlib.Path | None, folder: str, incarnation: str, what: str
) -> tuple[BinaryIO | None, list[EarlierFile]]:
    """Opens the file of this process, and reads those of the latest before it, the oldest first.

    What is written to it without a buffer survives `kill -9`.

    Args:
      directory: The job's own; None where there is none: then nothing outlives the process.
      folder: Below it, for files of one kind.
      incarnation: Of this process.
      what: Is counted, for the log.

    Returns:
      The file, None where it cannot be written, which is logged; and the earlier ones.
    """
    if directory is None:
        return None, []
    try:
        (directory / folder).mkdir(exist_ok=True)
        earlier = _read_all(directory / folder)
        path = directory / folder / parse.quote(incarnation, safe="")
        return open(path, "wb", buffering=0), earlier  # Open for as long as the process acts.
    except OSError as error:
        logging.warning(
            "%s are not written to %s: what this process has not reported when it is killed will "
            "not be counted. %s",
            what,
            directory,
            error,
        )
        return None, []


def _read_all(folder: pathlib.Path) -> list[EarlierFile]:
    """Reads what earlier processes left, and removes what nobody needs any more."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # Another process of this actor removes, too.
            content, written = path.read_bytes(), path.stat().st_mtime_ns
            if not content.strip(b"\0"):
                path.unlink()  # It has done nothing.
            else:
                found.append((written, EarlierFile(parse.unquote(path.name), path, content)))
    found.sort()
    for _, left in found[:-MAX_EARLIER]:
        left.path.unlink(missing_ok=True)
    return [left for _, left in found[-MAX_EARLIER:]]

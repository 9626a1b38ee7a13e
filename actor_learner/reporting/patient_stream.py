"""A text stream on a file descriptor that a full disk does not break."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from absl import logging

from actor_learner.support import disk_space

_MOST_KEPT_BYTES = 256 * 1024


class _PatientFile(io.FileIO):
    """Keeps what a full disk does not take, and writes it before the next bytes that it takes.

    Of more than `_MOST_KEPT_BYTES` the oldest are dropped, and a line in their place says so.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=True)
        self._kept = bytearray()
        self._dropped = 0

    def write(self, data) -> int:  # The type of FileIO: any buffer.
        content = bytes(data)
        try:
            self._write_kept()
            written = self._write_all(content)
        except OSError as error:
            if not disk_space.is_out_of_space(error):
                raise
            self._keep(content)
            return len(content)
        self._kept += content[written:]
        return len(content)

    def _write_kept(self) -> None:
        if self._dropped:
            line = f"\n[{self._dropped} bytes are missing here: the disk was full]\n".encode()
            written = super().write(line)
            self._kept[:0] = line[written:]
            self._dropped = 0
        while self._kept:
            del self._kept[: super().write(self._kept)]

    def _write_all(self, content: bytes) -> int:
        """Writes until the disk is full; returns how many bytes it took, none at least."""
        written = super().write(content)
        try:
            while written < len(content):
                written += super().write(content[written:])
        except OSError as error:
            if not disk_space.is_out_of_space(error):
                raise
        return written

    def _keep(self, content: bytes) -> None:
        self._kept += content
        excess = len(self._kept) - _MOST_KEPT_BYTES
        if excess > 0:
            del self._kept[:excess]
            self._dropped += excess


def open_stream(fd: int) -> TextIO:
    """A line-buffered UTF-8 stream on `fd`, which it owns.

    What is written while the disk is full is kept, the last 256 kB of it, and written once there
    is room. Other errors are raised as ever.
    """
    raw = _PatientFile(fd)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Makes `sys.stdout` and `sys.stderr` patient, and so what absl logs.

    For processes whose output is a file: there a full disk would end whoever prints, and give a
    process that has done its work the exit code 120 when the interpreter flushes for the last time.
    """
    handler = logging.get_absl_handler().python_handler
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    logged_to = handler.stream
    for name, stream in before.items():
        try:
            copy = os.dup(stream.fileno())
        except (AttributeError, OSError, ValueError):
            continue  # Closed, or not on a file.
        stream.flush()
        setattr(sys, name, open_stream(copy))
    if logged_to is before["stderr"]:
        handler.stream = sys.stderr
    try:
        yield
    finally:
        handler.stream = logged_to
        for name, stream in before.items():
            setattr(sys, name, stream)

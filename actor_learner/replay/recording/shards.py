"""Files of recorded rows: written whole or not at all, and checked when they are read."""

from __future__ import annotations

import os
import pathlib
import re
import zipfile
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from absl import logging

_HEAD = "head"
_NAME = re.compile(r"shard-(?P<session>.+)-(?P<index>\d{6,})\.npz")
# What reading a cut or changed archive raises.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError)


class Shard(NamedTuple):
    """One file: consecutive rows of all lanes.

    Attributes:
      path: The file.
      session: The recording it belongs to; each has lanes of its own.
      first_row: Number of its first row in the session.
      num_rows: Rows it holds.
      num_lanes: Lanes of each row.
    """

    path: pathlib.Path
    session: str
    first_row: int
    num_rows: int
    num_lanes: int


def write(
    directory: pathlib.Path,
    session: str,
    index: int,
    first_row: int,
    fields: Mapping[str, np.ndarray],
    compress: bool,
) -> pathlib.Path:
    """Writes a shard; it appears under its name once it is whole and on the disk.

    It is an `.npz` archive, which `numpy.load` reads as well.

    Args:
      directory: Where; must exist.
      session: Name of the recording.
      index: Number of the shard in it.
      first_row: Number of its first row.
      fields: `[rows, lanes, ...]` each, at least one, or `[rows]` for what is the same in all.
      compress: Whether to compress, quickly rather than well.
    """
    rows, lanes = next(field for field in fields.values() if field.ndim > 1).shape[:2]
    head = np.array([first_row, rows, lanes], np.int64)
    path = directory / f"shard-{session}-{index:06d}.npz"
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    try:
        with open(temporary, "wb") as file:
            with zipfile.ZipFile(file, "w", compression, compresslevel=1) as archive:
                for name, array in {_HEAD: head, **fields}.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def find(directory: pathlib.Path) -> list[Shard]:
    """All whole shards of a directory, by session and row; others are named in a warning."""
    found = []
    for path in sorted(directory.glob("shard-*.npz")):
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        head = _read(path, [_HEAD])
        if head is not None:
            first_row, rows, lanes = head[_HEAD].tolist()
            found.append(Shard(path, name["session"], first_row, rows, lanes))
    return sorted(found, key=lambda shard: (shard.session, shard.first_row))


def contiguous(found: list[Shard]) -> list[list[Shard]]:
    """Groups shards whose rows follow one another; a missing shard begins another group."""
    groups: list[list[Shard]] = []
    for shard in found:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and (last.session, last.num_lanes) == (shard.session, shard.num_lanes)
            and last.first_row + last.num_rows == shard.first_row
        ):
            groups[-1].append(shard)
        else:
            groups.append([shard])
    return groups


def read(shard: Shard, names: list[str]) -> dict[str, np.ndarray] | None:
    """Some fields of a shard; None, after a warning, if the file is cut or changed."""
    return _read(shard.path, names)


def _read(path: pathlib.Path, names: list[str]) -> dict[str, np.ndarray] | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except _UNREADABLE as error:
        logging.warning("%s is not whole and is left out: %s.", path, error)
        return None

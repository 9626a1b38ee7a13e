"""The checkpoints of a replay server on disk.

Reverb keeps one checkpoint per directory, orders them by the clock, so that one dated in the future
makes the next save delete itself, does not fall back from a bad one, and loads one with lost chunks
in silence as a smaller table. Hence a layout of our own:

    <checkpoint_dir>/
      incoming/               the only place Reverb writes to; emptied at every save and start
      checkpoint-00000007/    complete, numbered; the newest few are kept
      checkpoint-00000006.corrupt/   set aside, never read again
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import shutil

import tensorflow as tf
from absl import logging
from reverb.cc import schema_pb2

_NUMBERED = re.compile(r"checkpoint-(\d{8})$")
_CORRUPT = ".corrupt"
_DONE = "DONE"
_SIZES = "sizes.json"
_FILES = ("tables.tfrecord", "items.tfrecord", "chunks.tfrecord", _DONE)


class CheckpointDirectory:
    """Names, orders, keeps and sets aside the checkpoints in one directory.

    One server at a time owns the directory. Methods do file operations only.
    """

    def __init__(self, path: str | os.PathLike, keep: int):
        self.path = pathlib.Path(path).expanduser().absolute()
        self.incoming = self.path / "incoming"
        self._keep = keep
        self.incoming.mkdir(parents=True, exist_ok=True)

    def newest_first(self) -> list[pathlib.Path]:
        """The numbered checkpoints, readable or not."""
        numbered = [path for path in self.path.iterdir() if _NUMBERED.match(path.name)]
        return sorted(numbered, reverse=True)

    def corrupt(self) -> list[pathlib.Path]:
        """Those that were set aside."""
        return sorted(path for path in self.path.iterdir() if path.name.endswith(_CORRUPT))

    def adopt(self, remove_unfinished: bool) -> list[pathlib.Path]:
        """Numbers the complete checkpoints that Reverb wrote.

        Looks in `incoming`, where any client's `checkpoint()` call writes to, and in the directory
        itself, where Reverb's own checkpointer may have written before this layout was used.
        `remove_unfinished` also deletes those whose writer died: only while no server runs.
        """
        found = [path for path in self.incoming.iterdir() if path.is_dir()]
        found += [
            path
            for path in self.path.iterdir()
            if (path / _DONE).exists()
            and not _NUMBERED.match(path.name)
            and not path.name.endswith(_CORRUPT)
        ]
        adopted = []
        for path in sorted(found, key=lambda path: path.stat().st_mtime):
            if (path / _DONE).exists():
                adopted.append(self._number(path))
            elif remove_unfinished:
                logging.warning("Removing %s: its writer did not finish.", path)
                shutil.rmtree(path)
        return adopted

    def unfinished(self) -> set[pathlib.Path]:
        """Those in `incoming` that are being written, or whose writer failed."""
        found = (path for path in self.incoming.iterdir() if path.is_dir())
        return {path for path in found if not (path / _DONE).exists()}

    def accept(self, written: str | os.PathLike) -> pathlib.Path:
        """Gives the checkpoint just written to `incoming` its number, and removes old ones."""
        path = self._number(pathlib.Path(written))
        for old in self.newest_first()[self._keep :]:
            shutil.rmtree(old)
        return path

    def set_aside(self, path: pathlib.Path, reason: str) -> pathlib.Path:
        """Renames an unreadable checkpoint to `<name>.corrupt`."""
        target = path.with_name(path.name + _CORRUPT)
        path.rename(target)
        logging.warning(
            "Replay checkpoint %s cannot be read (%s). It is set aside as %s.",
            path,
            reason,
            target.name,
        )
        return target

    def _number(self, path: pathlib.Path) -> pathlib.Path:
        taken = [
            int(re.search(r"\d{8}", entry.name).group())
            for entry in self.path.iterdir()
            if re.match(r"checkpoint-\d{8}", entry.name)
        ]
        sizes = {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
        part = path / (_SIZES + ".part")
        try:
            part.write_text(json.dumps(sizes))
            os.replace(part, path / _SIZES)
        finally:
            part.unlink(missing_ok=True)
        target = self.path / f"checkpoint-{max(taken, default=0) + 1:08d}"
        path.rename(target)
        return target


def _check_sizes(path: pathlib.Path) -> None:
    """Compares the files with the sizes noted when they were complete.

    A compressed file cut at an unlucky place reads to its end without an error.
    """
    if not (path / _SIZES).exists():
        return  # Written before sizes were noted.
    for name, size in json.loads((path / _SIZES).read_text()).items():
        file = path / name
        actual = file.stat().st_size if file.exists() else 0
        if actual != size:
            raise ValueError(f"{name} has {actual} of its {size} bytes")


def count_items(path: pathlib.Path) -> dict[str, int]:
    """Items per table that a checkpoint lists, read from its files.

    Raises:
      ValueError: If a file is missing or damaged.
    """
    _check_sizes(path)
    missing = [name for name in _FILES if not (path / name).exists()]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    counts: collections.Counter = collections.Counter()
    items = tf.data.TFRecordDataset(str(path / "items.tfrecord"), compression_type="ZLIB")
    try:
        for record in items.as_numpy_iterator():
            counts[schema_pb2.PrioritizedItem.FromString(record).table] += 1
    except tf.errors.DataLossError as error:
        raise ValueError(f"items.tfrecord is damaged: {error.message}") from error
    return dict(counts)

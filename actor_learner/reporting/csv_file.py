"""`metrics.csv`: the same rows for spreadsheets, with columns that grow as metrics appear."""

from __future__ import annotations

import csv
import io
import os
import pathlib
from collections.abc import Sequence
from typing import BinaryIO, TextIO

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import atomic


class CsvLogger:
    """Appends each row to `path`; a missing value is an empty cell.

    A row that cannot be written leaves no trace. A row with a new key rewrites the file under the
    wider header, which replaces the old file in one step. An existing file is continued under its
    own header; a torn last line is cut off first.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic.drop_torn_line(self._path)
        self._columns = _read_table(self._path)[0] if self._path.exists() else []
        self._file = self._open()

    def write(self, row: logger_lib.Row) -> None:
        cells = {key: _cell(value) for key, value in logger_lib.plain_row(row).items()}
        new = [key for key in cells if key not in self._columns]
        if new:
            self._widen(new)
        line = io.StringIO()
        _writer(line, self._columns).writerow(cells)
        atomic.append(self._file, line.getvalue().encode())

    def close(self) -> None:
        self._file.close()

    def _open(self) -> BinaryIO:
        return open(self._path, "ab", buffering=0)

    def _widen(self, new: Sequence[str]) -> None:
        columns = [*self._columns, *new]
        _write_table(self._path, columns, _read_table(self._path)[1])
        self._file.close()
        self._file = self._open()
        self._columns = columns


def truncate_after(path: str | os.PathLike, environment_steps: int) -> int:
    """Drops the rows beyond `environment_steps`; see `jsonl.truncate_after`."""
    if not os.path.exists(path):
        return 0
    atomic.drop_torn_line(path)
    columns, rows = _read_table(path)
    known = [{key: cell for key, cell in row.items() if cell != ""} for row in rows]
    kept = logger_lib.rows_up_to(known, environment_steps)
    if len(kept) < len(rows):
        _write_table(path, columns, kept)
    return len(rows) - len(kept)


def _cell(value: logger_lib.Value) -> str:
    if isinstance(value, str):
        return " ".join(value.splitlines())  # One row stays one line, so a torn one can be told.
    return repr(value)


def _writer(file: TextIO, columns: Sequence[str]) -> csv.DictWriter:
    return csv.DictWriter(file, fieldnames=columns, lineterminator="\n")


def _read_table(path: str | os.PathLike) -> tuple[list[str], list[dict[str, str]]]:
    """The columns, and the rows as written: text is not parsed, so rewriting changes no digit."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, restval="")
        return list(reader.fieldnames or ()), list(reader)


def _write_table(
    path: str | os.PathLike, columns: Sequence[str], rows: Sequence[logger_lib.Row]
) -> None:
    with atomic.replacing(path) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            writer = _writer(file, columns)
            writer.writeheader()
            writer.writerows(rows)

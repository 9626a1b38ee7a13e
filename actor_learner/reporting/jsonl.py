"""`metrics.jsonl`: one JSON object per row, whole after every row."""

from __future__ import annotations

import json
import math
import os
import pathlib

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import atomic, errors

# JSON has no word for these; Python's own NaN literal would make the file unreadable elsewhere.
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class JsonlLogger:
    """Appends each row to `path` as one line; a row that cannot be written leaves no trace.

    An existing file is continued; a last line torn by a killed process is cut off first. A metric
    that is not finite (a diverged loss) is written as "NaN", "Infinity" or "-Infinity", which
    `read_rows` turns back into floats.
    """

    def __init__(self, path: str | os.PathLike):
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.drop_torn_line(path)
        self._file = open(path, "ab", buffering=0)  # Closed by close().

    def write(self, row: logger_lib.Row) -> None:
        atomic.append(self._file, _line(row).encode())

    def close(self) -> None:
        self._file.close()


def read_rows(path: str | os.PathLike) -> list[dict[str, logger_lib.Value]]:
    """The rows of `path`, oldest first, without an unfinished last line: it may be being written.

    Raises:
      FileNotFoundError: If there is no such file.
      errors.ActorLearnerError: If a finished line is not a JSON object.
    """
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                break
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise _not_a_row(path, number, line) from error
            if not isinstance(row, dict):
                raise _not_a_row(path, number, line)
            rows.append({key: _decoded(value) for key, value in row.items()})
    return rows


def truncate_after(path: str | os.PathLike, environment_steps: int) -> int:
    """Drops the rows beyond `environment_steps`, so that a resumed curve does not fold back.

    Call it before a `JsonlLogger` opens the file. Returns the number of rows dropped; a missing
    file is left missing.
    """
    if not os.path.exists(path):
        return 0
    rows = read_rows(path)
    kept = logger_lib.rows_up_to(rows, environment_steps)
    if len(kept) < len(rows):
        with atomic.replacing(path) as temporary:
            temporary.write_text("".join(_line(row) for row in kept), encoding="utf-8")
    return len(rows) - len(kept)


def _line(row: logger_lib.Row) -> str:
    encoded = {key: _encoded(value) for key, value in logger_lib.plain_row(row).items()}
    return json.dumps(encoded, allow_nan=False) + "\n"


def _encoded(value: logger_lib.Value) -> logger_lib.Value:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decoded(value: logger_lib.Value) -> logger_lib.Value:
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _not_a_row(path: str | os.PathLike, number: int, line: str) -> errors.ActorLearnerError:
    return errors.ActorLearnerError(
        f"{os.fspath(path)}:{number} is not a JSON object: {line.strip()[:60]!r}; the file was "
        "edited or damaged: remove that line, or move the file away to start a new one"
    )

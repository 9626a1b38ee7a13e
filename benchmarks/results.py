"""benchmarks/results.json: what was measured last of each case, and when, and of which code.

Rows are told apart by (name, case). A measurement replaces the row it repeats and leaves all others
alone, so that benchmarks can be measured one by one, and a crash loses only what had not been
measured. Besides its figures a row says when it was measured (UTC) and the digest of the package
(`proofs.code_digest`) that it measured.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import harness, proofs


@dataclasses.dataclass(frozen=True)
class Measured:
    """A row, and where it comes from.

    Attributes:
      row: The figures.
      measured_at: When, UTC, to the second.
      code_digest: Of the package's sources then.
      fresh: By this process, rather than read from the file.
    """

    row: harness.Row
    measured_at: str
    code_digest: str
    fresh: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.row.as_dict(),
            "measured_at": self.measured_at,
            "code_digest": self.code_digest,
        }

    def origin(self, code_digest: str) -> str:
        """What the table says about it: "now", or that it was kept, and of which code."""
        if self.fresh:
            return "now"
        code = "this code" if self.code_digest == code_digest else "other code"
        return f"kept: {self.measured_at[:10] or 'before'}, {code}"


class Results:
    """The rows of a file and those that are measured now.

    Args:
      path: The file, written anew by every `add`; None keeps nothing. One that is there is read.
      names: Benchmarks there are, in the order of the table. Rows of others are dropped.
    """

    def __init__(self, path: pathlib.Path | None, names: Sequence[str]) -> None:
        self._path = path
        self._names = tuple(names)
        self._rows: dict[tuple[str, str], Measured] = {}
        for stored in _read(path):
            if stored["name"] in self._names:
                row = harness.Row.from_dict(stored)
                self._rows[row.name, row.case] = Measured(
                    row, stored.get("measured_at", ""), stored.get("code_digest", ""), False
                )

    def add(self, row: harness.Row) -> None:
        """Takes a measurement in and writes the file, which is never seen half written."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._rows[row.name, row.case] = Measured(row, now, proofs.present_code(), True)
        self._write()

    def complete(self, name: str, cases: Sequence[str]) -> None:
        """Has a benchmark's rows in this order, and forgets cases that it has no more.

        Args:
          name: A benchmark that has just measured all it has.
          cases: Of its rows.
        """
        known = {key: self._rows.pop(key) for key in list(self._rows) if key[0] == name}
        self._rows.update({(name, case): known[name, case] for case in cases})
        self._write()

    def measured(self) -> list[Measured]:
        """In the order of the benchmarks."""
        return sorted(self._rows.values(), key=lambda one: self._names.index(one.row.name))

    def table(self) -> str:
        """All rows as a Markdown table; its last column tells fresh rows from kept ones."""
        measured = self.measured()
        code = proofs.present_code()
        return harness.table(
            [one.row for one in measured], origins=[one.origin(code) for one in measured]
        )

    def _write(self) -> None:
        if self._path is None:
            return
        text = json.dumps([one.as_dict() for one in self.measured()], indent=2) + "\n"
        partial = self._path.with_name(f"{self._path.name}.partial")
        partial.write_text(text)
        os.replace(partial, self._path)


def _read(path: pathlib.Path | None) -> Iterable[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return json.loads(path.read_text())

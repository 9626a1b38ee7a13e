"""Writes gin files for tests."""

from __future__ import annotations

import pathlib
import textwrap


def write(directory: pathlib.Path, text: str, name: str = "run.gin") -> pathlib.Path:
    """Writes a file below `directory`, without the indentation of its text."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path

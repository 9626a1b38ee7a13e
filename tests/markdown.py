"""Reads Markdown for tests: its blocks of code, and the spans of code within its text."""

from __future__ import annotations

import dataclasses
import re

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.S | re.M
)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_NOTE = re.compile(r"<!-- (file|test): (\S+) -->")


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
      path: File that it is in.
      line: Its first line there.
      language: What stands behind the fence; empty if nothing does.
      code: The text.
      file: What `<!-- file: … -->` before it calls it, so that others can import it; else None.
      test: What `<!-- test: … -->` before it asks for: `run` it, or `build` the run it configures.
    """

    path: str
    line: int
    language: str
    code: str
    file: str | None = None
    test: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def blocks(path: str, text: str) -> list[Block]:
    """All blocks of a file."""
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].splitlines()
        notes = {}
        while before and (note := _NOTE.fullmatch(before[-1].strip())):
            notes[note[1]] = note[2]
            before.pop()
        code = match["code"]
        if match["indent"]:
            code = re.sub(rf"^{match['indent']}", "", code, flags=re.M)
        line = text.count("\n", 0, match.start()) + 2
        found.append(
            Block(path, line, match["language"], code, notes.get("file"), notes.get("test"))
        )
    return found


def spans(path: str, text: str) -> list[tuple[str, str]]:
    """Pairs of a place and the code in it, for all code within the text."""
    prose = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    prose = re.sub(r"<!--.*?-->", "", prose, flags=re.S)
    return [
        (f"{path}:{prose.count(chr(10), 0, match.start()) + 1}", " ".join(match[1].split()))
        for match in _SPAN.finditer(prose)
    ]
